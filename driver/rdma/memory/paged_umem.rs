// SPDX-License-Identifier: GPL-2.0
//! Memory of a process that the device uses without pinning it (on-demand paging).

use core::{ffi::c_void, ptr::NonNull};

use kernel::{
    current, device,
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::{Arc, aref::ARef},
};

use crate::bindings;
use crate::rdma::{device::Device, driver::Driver};

/// What takes pages away from the device.
pub(crate) trait Unmap: Send + Sync {
    /// Makes pages absent. On return the device does not use them any more. Sleeps, but allocates
    /// no memory, because the kernel may call this to free memory.
    fn unmap(&self, first: u64, count: u64);
}

/// Memory whose pages come and go with those of the process, or the anchor of such memories.
///
/// C: `struct ib_umem_odp`.
///
/// # Invariants
///
/// The pointer refers to a memory of the helpers, which this type owns. Its callback gets a pointer
/// to the contents of `_user`, or it has no callback.
pub(crate) struct PagedUmem<U: Unmap> {
    raw: NonNull<bindings::rdma_paged>,
    _user: Option<Arc<U>>,
    /// The RDMA device, of which the memory's release reads fields.
    device: ARef<device::Device>,
}

// SAFETY: any thread may call the functions of the helpers, which lock the memory.
unsafe impl<U: Unmap> Send for PagedUmem<U> {}

// SAFETY: several threads may call the functions of the helpers, which lock the memory.
unsafe impl<U: Unmap> Sync for PagedUmem<U> {}

/// Returns whether the kernel has on-demand paging.
pub(crate) fn is_available() -> bool {
    // SAFETY: the function has no requirements.
    unsafe { bindings::rdma_helper_has_paging() }
}

/// Returns whether the calling thread frees memory that others, or it, wait for.
pub(crate) fn frees_memory() -> bool {
    // SAFETY: the function has no requirements.
    unsafe { bindings::rdma_helper_frees_memory() }
}

impl<U: Unmap> PagedUmem<U> {
    /// Returns the memory of `length` bytes at `start` of the calling process, for a region with
    /// these access rights (`enum ib_access_flags`). `user` takes its pages away.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an empty range, and if the caller is a kernel thread. `ENOMEM` if the lists of
    /// its pages exceed the process' limit of locked memory.
    pub(crate) fn new<T: Driver>(
        device: &Device<T>,
        start: u64,
        length: u64,
        access: u32,
        user: Arc<U>,
    ) -> Result<Self> {
        if current!().mm().is_none() {
            return Err(EINVAL);
        }
        // SAFETY: the device is registered, as its operations run, and the calling task has memory.
        // The callback gets a pointer to `user`, which is kept as long as the memory.
        let raw = unsafe {
            bindings::rdma_helper_paged_get(
                device.as_raw(),
                start.try_into()?,
                length.try_into()?,
                access.try_into()?,
                Some(unmap::<U>),
                Arc::as_ptr(&user).cast(),
            )
        };
        Self::wrap(raw, Some(user), device.reference())
    }

    /// Returns the anchor of memories anywhere in the calling process. It counts as a page of
    /// locked memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the caller is a kernel thread. `ENOMEM` if the page exceeds the process' limit.
    /// `EINTR` if the process is killed.
    pub(crate) fn anchor<T: Driver>(device: &Device<T>, access: u32) -> Result<Self> {
        if current!().mm().is_none() {
            return Err(EINVAL);
        }
        // SAFETY: the device is registered, as its operations run, and the calling task has memory.
        let raw =
            unsafe { bindings::rdma_helper_paged_anchor(device.as_raw(), access.try_into()?) };
        Self::wrap(raw, None, device.reference())
    }

    /// Returns the memory of `length` bytes at `start` of the process of this anchor.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the process has ended. `ENOMEM` if the lists of its pages exceed the limit of
    /// locked memory that the process had when the anchor was made.
    pub(crate) fn part(&self, start: u64, length: u64, user: Arc<U>) -> Result<Self> {
        // SAFETY: the anchor is alive by the type's invariants. The callback gets a pointer to
        // `user`, which is kept as long as the memory.
        let raw = unsafe {
            bindings::rdma_helper_paged_part(
                self.raw.as_ptr(),
                start.try_into()?,
                length.try_into()?,
                Some(unmap::<U>),
                Arc::as_ptr(&user).cast(),
            )
        };
        Self::wrap(raw, Some(user), self.device.clone())
    }

    fn wrap(
        raw: *mut bindings::rdma_paged,
        user: Option<Arc<U>>,
        device: ARef<device::Device>,
    ) -> Result<Self> {
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // INVARIANT: the helpers have made it just now, for the caller.
        Ok(Self { raw, _user: user, device })
    }

    /// Returns the memory as the helpers know it.
    pub(in crate::rdma) fn as_raw(&self) -> *const bindings::rdma_paged {
        self.raw.as_ptr()
    }

    /// Returns whether the device may write to it.
    pub(crate) fn is_writable(&self) -> bool {
        // SAFETY: the memory is alive by the type's invariants.
        unsafe { bindings::rdma_helper_paged_writable(self.raw.as_ptr()) }
    }

    /// Locks the memory, and finds out which of these pages are present in the process. No page is
    /// taken away until the result is dropped.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the process changes its mappings, `EINVAL` if it has ended.
    pub(crate) fn lock(&self, first: u64, count: u64) -> Result<Locked<'_, U>> {
        // SAFETY: the memory is alive by the type's invariants; the callee checks the range.
        to_result(unsafe { bindings::rdma_helper_paged_lock(self.raw.as_ptr(), first, count) })?;
        // INVARIANT: it has been locked, and the range is in it.
        Ok(Locked { memory: self, end: first + count })
    }
}

impl<U: Unmap> Drop for PagedUmem<U> {
    fn drop(&mut self) {
        // SAFETY: the type owns the memory by its invariants, and releases it once.
        unsafe { bindings::rdma_helper_paged_release(self.raw.as_ptr()) };
    }
}

/// A memory that is locked.
///
/// # Invariants
///
/// This owns the lock of the memory, which has pages up to `end`.
pub(crate) struct Locked<'a, U: Unmap> {
    memory: &'a PagedUmem<U>,
    end: u64,
}

impl<U: Unmap> Locked<'_, U> {
    /// Returns the DMA address of a page.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if it is absent, or lacks rights that the device needs; another error if the device
    /// cannot use it.
    pub(crate) fn page(&self, page: u64) -> Result<u64> {
        if page >= self.end {
            return Err(EFAULT);
        }
        let (memory, mut address) = (self.memory.raw.as_ptr(), 0);
        // SAFETY: the memory is locked, and has the page, by the type's invariants.
        to_result(unsafe { bindings::rdma_helper_paged_page(memory, page, &mut address) })?;
        Ok(address)
    }
}

impl<U: Unmap> Drop for Locked<'_, U> {
    fn drop(&mut self) {
        // SAFETY: this owns the lock by the type's invariants.
        unsafe { bindings::rdma_helper_paged_unlock(self.memory.raw.as_ptr()) };
    }
}

/// The callback of the helpers.
///
/// # Safety
///
/// `user` must point to a live `U`.
unsafe extern "C" fn unmap<U: Unmap>(user: *const c_void, first: u64, count: u64) {
    // SAFETY: the helpers pass the pointer that they were given with the memory, which keeps its
    // user.
    let user = unsafe { &*user.cast::<U>() };
    user.unmap(first, count);
}
