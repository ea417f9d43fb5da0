// SPDX-License-Identifier: GPL-2.0
//! Watches whether the driver calls a completion queue's handler from within a method of the
//! device, which the core forbids (Documentation/infiniband/core_locking.rst): a client may hold a
//! lock there that its handler takes.

use core::{mem, ptr};

use kernel::{
    ffi::c_void,
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
};

use crate::{bindings, kclient::cq::Cq};

/// A completion handler as the core has it.
type Handler = unsafe extern "C" fn(*mut bindings::ib_cq, *mut c_void);

/// The core's own handler, which is one for all queues of this client; zero as long as nothing is
/// watched.
static CORES: Atomic<usize> = Atomic::new(0);
/// The task that is within a method, by the address of its struct.
static WITHIN: Atomic<usize> = Atomic::new(0);
/// Calls of a handler from there.
static FORBIDDEN: Atomic<u32> = Atomic::new(0);

/// The task that runs this.
fn this_task() -> usize {
    ptr::from_ref(&**kernel::current!()).addr()
}

/// Goes between the device and the core's handler of a queue.
///
/// # Safety
///
/// Nothing may complete meanwhile, and this module must be there as long as the queue is.
pub(crate) unsafe fn install(cq: &Cq) {
    let cq = cq.as_raw();
    // SAFETY: live, and its handler is not called now.
    unsafe {
        if let Some(handler) = (*cq).comp_handler.replace(handler) {
            CORES.store(handler as usize, Relaxed);
        }
    }
}

unsafe extern "C" fn handler(cq: *mut bindings::ib_cq, context: *mut c_void) {
    if WITHIN.load(Relaxed) == this_task() {
        FORBIDDEN.fetch_add(1, Relaxed);
    }
    // SAFETY: `install` has stored a handler of this type before it let this one be called.
    let cores = unsafe { mem::transmute::<usize, Handler>(CORES.load(Relaxed)) };
    // SAFETY: as the core would have been called.
    unsafe { cores(cq, context) };
}

/// Runs `method`, in which no handler may be called.
///
/// # Errors
///
/// Those of `method`; `EDEADLK` if a handler was.
pub(crate) fn within<R>(method: impl FnOnce() -> Result<R>) -> Result<R> {
    WITHIN.store(this_task(), Relaxed);
    let result = method();
    WITHIN.store(0, Relaxed);
    match FORBIDDEN.load(Relaxed) {
        0 => result,
        calls => {
            pr_err!("{calls} calls of a completion handler from within a method\n");
            Err(EDEADLK)
        }
    }
}
