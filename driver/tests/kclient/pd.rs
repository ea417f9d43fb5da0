// SPDX-License-Identifier: GPL-2.0
//! Devices and protection domains.

use core::ptr::NonNull;

use kernel::{error::from_err_ptr, prelude::*, str::CStr, sync::Arc};

use crate::bindings;

/// Something that keeps a device.
///
/// # Safety
///
/// The device must be registered as long as the implementor lives.
pub unsafe trait Device: Send + Sync {
    /// Returns the core's struct.
    fn as_raw(&self) -> NonNull<bindings::ib_device>;

    /// Returns the name by which `rdma resource show` shows the owner of objects.
    fn owner(&self) -> &'static CStr;
}

/// Returns whether both keep the same device.
pub(super) fn is_same(one: &Arc<dyn Device>, other: &Arc<dyn Device>) -> bool {
    one.as_raw() == other.as_raw()
}

/// A protection domain.
///
/// # Invariants
///
/// `raw` is a domain of `device` that this type owns. What is made in it keeps this.
pub struct Pd {
    raw: NonNull<bindings::ib_pd>,
    device: Arc<dyn Device>,
}

// SAFETY: the core allows a domain to be used and deallocated by any thread.
unsafe impl Send for Pd {}
// SAFETY: the functions of the core that get a domain do their own locking; its numbers do not
// change.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocates a protection domain.
    pub fn new(device: Arc<dyn Device>) -> Result<Arc<Self>> {
        Self::with_flags(device, 0)
    }

    /// Allocates one with a key by which peers read and write all of the machine's memory; see
    /// [`super::remote::Remote::under_global_key`].
    ///
    /// # Safety
    ///
    /// As long as the domain exists, no peer may be given the key, and no
    /// [`Remote`](super::remote::Remote) be made of its number: the memory that such a request
    /// reaches may belong to anybody, and keys can be guessed.
    pub unsafe fn with_global_key(device: Arc<dyn Device>) -> Result<Arc<Self>> {
        Self::with_flags(device, bindings::ib_pd_flags_IB_PD_UNSAFE_GLOBAL_RKEY)
    }

    fn with_flags(device: Arc<dyn Device>, flags: u32) -> Result<Arc<Self>> {
        let (ib, owner) = (device.as_raw().as_ptr(), device.owner().as_char_ptr());
        // SAFETY: the device is registered, as `device` is alive; the name is static.
        let raw = from_err_ptr(unsafe { bindings::__ib_alloc_pd(ib, flags, owner) })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // INVARIANT: the domain was allocated just now, for this caller.
        Ok(Arc::new(Self { raw, device }, GFP_KERNEL)?)
    }

    /// Returns the reference that keeps its device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Returns the core's struct, valid as long as this.
    pub fn as_raw(&self) -> *mut bindings::ib_pd {
        self.raw.as_ptr()
    }

    /// Returns the key of all memory for a device's own requests.
    pub fn lkey(&self) -> u32 {
        // SAFETY: by the type's invariants the domain is alive; its keys do not change.
        unsafe { (*self.as_raw()).local_dma_lkey }
    }

    /// Returns the key of all memory for peers, if it was allocated with one.
    pub(super) fn global_rkey(&self) -> u32 {
        // SAFETY: by the type's invariants the domain is alive; its keys do not change.
        unsafe { (*self.as_raw()).unsafe_global_rkey }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants the domain is this type's own, and nothing in it is
        // left, as that would keep this.
        let status = unsafe { bindings::ib_dealloc_pd_user(self.as_raw(), core::ptr::null_mut()) };
        if status != 0 {
            pr_err!("a protection domain could not be deallocated: {status}\n");
            // The device must not go before the domain.
            core::mem::forget(self.device.clone());
        }
    }
}
