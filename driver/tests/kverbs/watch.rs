// SPDX-License-Identifier: GPL-2.0
//! Watches how the driver calls the handler of a completion queue. The core forbids two things
//! (Documentation/infiniband/core_locking.rst): calling it from within a method of the device,
//! where a client may hold a lock that its handler takes, and calling it while it runs.

use core::ptr;

use kernel::{
    ffi::c_void,
    prelude::*,
    sync::atomic::{Atomic, Full, Relaxed},
    time::{Delta, delay::udelay},
};

use crate::{bindings, kclient::cq::Cq};

/// A completion handler in the form that the core has.
type Handler = unsafe extern "C" fn(*mut bindings::ib_cq, *mut c_void);

/// The number of tasks that may be within a method at a time.
const TASKS: usize = 8;
/// The time for which a handler runs on, so that another call is seen if there is one.
const LINGER: Delta = Delta::from_micros(100);

/// The tasks that are within a method, by the addresses of their structs; zero for none.
static WITHIN: [Atomic<usize>; TASKS] = [const { Atomic::new(0) }; TASKS];

/// Returns the task that runs this.
fn this_task() -> usize {
    ptr::from_ref(&**kernel::current!()).addr()
}

/// Runs `method`, in which no handler may be called.
///
/// # Errors
///
/// The error of `method`; `EBUSY` if more than [`TASKS`] tasks are within a method at a time.
pub(crate) fn within<R>(method: impl FnOnce() -> Result<R>) -> Result<R> {
    let free = |place: &&Atomic<usize>| place.cmpxchg(0, this_task(), Full).is_ok();
    let place = WITHIN.iter().find(free).ok_or(EBUSY)?;
    let result = method();
    place.store(0, Relaxed);
    result
}

/// Returns whether this was called by a task that is within a method. An interrupt was not.
fn is_within() -> bool {
    let task = this_task();
    // SAFETY: the function only looks at the context that it is called in.
    !unsafe { bindings::kclient_in_hardirq() }
        && WITHIN.iter().any(|place| place.load(Relaxed) == task)
}

/// The calls of a queue's handler, for which this stands between the device and the core.
pub(crate) struct Watch {
    /// The core's own handler.
    handler: Handler,
    /// Calls that have not returned.
    running: Atomic<u32>,
    /// All calls.
    calls: Atomic<u32>,
    /// Calls while another had not returned.
    overlapping: Atomic<u32>,
    /// Calls from within a method.
    nested: Atomic<u32>,
}

impl Watch {
    /// Watches a queue.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the queue has no handler.
    ///
    /// # Safety
    ///
    /// Nothing may complete meanwhile. What is returned must be there as long as the queue is.
    pub(crate) unsafe fn new(cq: &Cq) -> Result<KBox<Self>> {
        let cq = cq.as_raw();
        // SAFETY: the queue is live, and the field does not change.
        let handler = unsafe { (*cq).comp_handler }.ok_or(EINVAL)?;
        let this = Self {
            handler,
            running: Atomic::new(0),
            calls: Atomic::new(0),
            overlapping: Atomic::new(0),
            nested: Atomic::new(0),
        };
        let this = KBox::new(this, GFP_KERNEL)?;
        // SAFETY: the queue is live; the core's handlers do not look at the context, and none is
        // called now.
        unsafe { (*cq).cq_context = ptr::from_ref(&*this).cast_mut().cast() };
        // SAFETY: the queue is live, its context is the one that `watched` takes, and its handler
        // is not called now.
        unsafe { (*cq).comp_handler = Some(watched) };
        Ok(this)
    }

    /// Checks the calls so far.
    ///
    /// # Errors
    ///
    /// `EDEADLK` if a call was forbidden, `EIO` if there was none; the log says so.
    pub(crate) fn check(&self) -> Result {
        let [calls, overlapping, nested] =
            [&self.calls, &self.overlapping, &self.nested].map(|count| count.load(Relaxed));
        if overlapping != 0 || nested != 0 {
            pr_err!(
                "of {calls} calls of a completion handler, {overlapping} came while it ran, and \
                 {nested} came from within a method of the device\n"
            );
            return Err(EDEADLK);
        }
        if calls == 0 {
            pr_err!("the completion handler was never called\n");
            return Err(EIO);
        }
        Ok(())
    }
}

/// Handles a completion of a watched queue.
unsafe extern "C" fn watched(cq: *mut bindings::ib_cq, context: *mut c_void) {
    // SAFETY: `Watch::new` has set this context, whose owner keeps it as long as the queue.
    let watch = unsafe { &*context.cast::<Watch>() };
    watch.calls.fetch_add(1, Relaxed);
    if watch.running.fetch_add(1, Full) != 0 {
        watch.overlapping.fetch_add(1, Relaxed);
    }
    if is_within() {
        watch.nested.fetch_add(1, Relaxed);
    }
    // SAFETY: the core's handler of this queue, which does not look at its context.
    unsafe { (watch.handler)(cq, ptr::null_mut()) };
    udelay(LINGER);
    watch.running.fetch_sub(1, Full);
}
