// SPDX-License-Identifier: GPL-2.0
//! Page faults in the name of a process, which go on in the background.
//!
//! The process decides how long a fault takes, because programs may supply its pages (userfaultfd,
//! FUSE). So nothing that others wait for may wait for one.

use core::ptr::NonNull;

use kernel::{
    error::{from_err_ptr, to_result},
    ffi::{c_long, c_void},
    prelude::*,
    sync::Arc,
};

use crate::bindings;
use crate::rdma::memory::paged_umem::{PagedUmem, Unmap};

/// What waits for a fault.
pub(crate) trait Faulted: Send + Sync {
    /// Called once, with the error if the first page cannot be had. Otherwise at least this page
    /// was present just now. Does not sleep.
    fn faulted(&self, result: Result);
}

/// The queues of faults, for the whole module.
pub(crate) struct FaultQueues(());

impl FaultQueues {
    /// Creates the queues. While they exist, there can be a [`Fault`].
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: the module calls this once, before there is any device.
        to_result(unsafe { bindings::rdma_helper_faults_init() })?;
        Ok(Self(()))
    }
}

impl Drop for FaultQueues {
    fn drop(&mut self) {
        // SAFETY: the queues exist by the type's construction. There is no fault any more, because
        // each keeps the module loaded.
        unsafe { bindings::rdma_helper_faults_exit() };
    }
}

/// A fault that goes on, or has ended. It is given up on drop, which does not wait for it.
///
/// # Invariants
///
/// The pointer refers to a fault of the helpers, which this type owns. Its function gets a pointer
/// to the contents of `user`.
pub(crate) struct Fault<U: Faulted> {
    raw: NonNull<bindings::rdma_fault>,
    user: Arc<U>,
}

// SAFETY: any thread may end a fault.
unsafe impl<U: Faulted> Send for Fault<U> {}
// SAFETY: a shared reference gives access only to the user, which several threads may use.
unsafe impl<U: Faulted> Sync for Fault<U> {}

impl<U: Faulted> Fault<U> {
    /// Starts to make pages of a memory, or of an anchor, present in their process, with the rights
    /// that the device needs.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `ENODEV` if the module is being removed.
    pub(crate) fn start<M: Unmap>(
        memory: &PagedUmem<M>,
        first: u64,
        count: u64,
        user: Arc<U>,
    ) -> Result<Self> {
        // SAFETY: the memory is alive. The function gets a pointer to `user`, which is kept until
        // the fault has been given up; after that the function is not called.
        let raw = unsafe {
            bindings::rdma_helper_fault_start(
                memory.as_raw(),
                first,
                count,
                Some(faulted::<U>),
                Arc::as_ptr(&user).cast(),
            )
        };
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // INVARIANT: the helpers have made it just now, for the caller.
        Ok(Self { raw, user })
    }

    /// Returns what waits for it.
    pub(crate) fn user(&self) -> &U {
        &self.user
    }
}

impl<U: Faulted> Drop for Fault<U> {
    fn drop(&mut self) {
        // SAFETY: the type owns the fault by its invariants, and gives it up once.
        unsafe { bindings::rdma_helper_fault_end(self.raw.as_ptr()) };
    }
}

/// The function of the helpers.
///
/// # Safety
///
/// `user` must point to a live `U`.
unsafe extern "C" fn faulted<U: Faulted>(user: *const c_void, result: c_long) {
    // SAFETY: the helpers pass the pointer that they were given with the fault, whose user lives
    // until the fault has been given up.
    let user = unsafe { &*user.cast::<U>() };
    // CAST: an error number fits, and others are not negative.
    user.faulted(to_result(result.min(0) as i32));
}
