// SPDX-License-Identifier: GPL-2.0
//! The eventfds by which processes learn of events that verbs do not have.

use core::ptr::NonNull;

use kernel::{error::from_err_ptr, prelude::*};

use crate::bindings;

/// An eventfd of a process.
///
/// # Invariants
///
/// The pointer is the pointer to an eventfd of `helpers.c`, to which this type has a reference.
pub(crate) struct Eventfd(NonNull<bindings::rdma_eventfd>);

// SAFETY: the functions of eventfds may be called by any thread.
unsafe impl Send for Eventfd {}
// SAFETY: `eventfd_signal` takes the eventfd's lock.
unsafe impl Sync for Eventfd {}

impl Eventfd {
    /// Returns an eventfd of the calling process.
    ///
    /// # Errors
    ///
    /// `EBADF` if there is no such descriptor, `EINVAL` if it is another file.
    pub(crate) fn get(fd: i32) -> Result<Self> {
        // SAFETY: any number may be passed.
        let raw = from_err_ptr(unsafe { bindings::rdma_helper_eventfd_get(fd) })?;
        // INVARIANT: the function has returned a new reference.
        NonNull::new(raw).map(Self).ok_or(EBADF)
    }

    /// Signals it. Can be called in any context.
    pub(crate) fn signal(&self) {
        // SAFETY: by the type's invariants it is alive.
        unsafe { bindings::rdma_helper_eventfd_signal(self.0.as_ptr()) };
    }
}

impl Drop for Eventfd {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants this is the reference of this object.
        unsafe { bindings::rdma_helper_eventfd_put(self.0.as_ptr()) };
    }
}
