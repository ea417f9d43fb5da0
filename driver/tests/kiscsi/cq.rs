// SPDX-License-Identifier: GPL-2.0
//! The completion queue of a stream queue pair.

use core::{mem::ManuallyDrop, ptr::NonNull};

use kernel::{error::from_err_ptr, ffi::c_void, prelude::*, sync::Arc, types::ForeignOwnable};

use crate::{
    kclient::{attached::Attached, bindings as ib, pd::Device},
    waker::Waker,
};

/// A CQ that is destroyed on drop.
///
/// # Invariants
///
/// The pointer refers to a CQ that this type owns. `context` is the foreign form of an
/// `Arc<Waker>`, which the handler uses.
pub(super) struct RawCq(NonNull<ib::ib_cq>, *mut c_void);

impl RawCq {
    /// Creates a CQ with this number of entries, which wakes `waker`.
    pub(super) fn new(device: &Attached, entries: usize, waker: Arc<Waker>) -> Result<Self> {
        let attr = ib::ib_cq_init_attr { cqe: u32::try_from(entries)?, comp_vector: 0, flags: 0 };
        let context = waker.into_foreign();
        let (raw, name) = (device.as_raw().as_ptr(), device.owner().as_char_ptr());
        // SAFETY: the device is registered, as the caller has it; the core copies the attributes,
        // and the name is static. The handler gets an `Arc<Waker>` that lives until the CQ has
        // gone.
        let cq = unsafe { ib::__ib_create_cq(raw, Some(changed), None, context, &attr, name) };
        let cq = from_err_ptr(cq).and_then(|cq| NonNull::new(cq).ok_or(ENOMEM));
        // INVARIANT: it was created just now, for this caller.
        cq.map(|cq| Self(cq, context)).inspect_err(|_| {
            // SAFETY: there is no CQ whose handler would use it.
            drop(unsafe { Arc::<Waker>::from_foreign(context) });
        })
    }

    /// Returns the CQ.
    pub(super) fn get(&self) -> NonNull<ib::ib_cq> {
        self.0
    }

    /// Gives the CQ and its context away.
    pub(super) fn into_parts(self) -> (NonNull<ib::ib_cq>, *mut c_void) {
        let this = ManuallyDrop::new(self);
        (this.0, this.1)
    }
}

impl Drop for RawCq {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants both are this type's own; no queue pair uses the CQ.
        unsafe { free_cq(self.0, self.1) };
    }
}

/// Destroys a CQ.
///
/// # Safety
///
/// The caller must own it, no queue pair may use it, and `context` must be as for [`RawCq`].
pub(super) unsafe fn free_cq(cq: NonNull<ib::ib_cq>, context: *mut c_void) {
    // SAFETY: the caller owns the CQ, and nothing uses it. On return its handler does not run.
    let _ = unsafe { ib::ib_destroy_cq_user(cq.as_ptr(), core::ptr::null_mut()) };
    // SAFETY: the caller promises that it is an `Arc<Waker>`. The handler, which used it, has
    // ended.
    drop(unsafe { Arc::<Waker>::from_foreign(context) });
}

/// The handler of completions.
///
/// # Safety
///
/// `context` must be the foreign form of an `Arc<Waker>` that is alive.
unsafe extern "C" fn changed(_cq: *mut ib::ib_cq, context: *mut c_void) {
    // SAFETY: the caller promises so.
    Waker::wake(unsafe { Arc::<Waker>::borrow(context) });
}
