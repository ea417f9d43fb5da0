// SPDX-License-Identifier: GPL-2.0
//! The devices of the driver, as a client of the core gets them.
//!
//! Each user of a device keeps its [`Attached`]. Neither callback of the client returns before the
//! last of them has gone, so the core knows when the client is done with the device.

use core::ptr::NonNull;

use kernel::{
    device,
    prelude::*,
    str::CStr,
    sync::{Arc, Completion},
};

use super::pd::Device;
use crate::bindings;

/// The completion of the last use of a device.
#[pin_data]
pub(super) struct Gone {
    #[pin]
    pub(super) completion: Completion,
}

/// A device of the driver.
///
/// # Invariants
///
/// `raw` is a device that stays registered until `gone` is complete.
pub struct Attached {
    raw: NonNull<bindings::ib_device>,
    owner: &'static CStr,
    gone: Arc<Gone>,
}

// SAFETY: the core allows its devices to be used by any thread.
unsafe impl Send for Attached {}
// SAFETY: the core allows its devices to be used by several threads at a time.
unsafe impl Sync for Attached {}

// SAFETY: by the type's invariants the device is registered until `gone` is complete, which the
// drop of this does.
unsafe impl Device for Attached {
    fn as_raw(&self) -> NonNull<bindings::ib_device> {
        self.raw
    }

    fn owner(&self) -> &'static CStr {
        self.owner
    }
}

impl Attached {
    /// Returns a device whose objects have this owner, and the completion of its last use.
    ///
    /// # Safety
    ///
    /// The device must be registered until the completion of what is returned with it.
    pub(super) unsafe fn new(
        raw: NonNull<bindings::ib_device>,
        owner: &'static CStr,
    ) -> Result<(Arc<Self>, Arc<Gone>)> {
        let gone = Arc::pin_init(pin_init!(Gone { completion <- Completion::new() }), GFP_KERNEL)?;
        // INVARIANT: the caller promises so.
        let this = Arc::new(Self { raw, owner, gone: gone.clone() }, GFP_KERNEL)?;
        Ok((this, gone))
    }

    /// Returns the device's name.
    pub fn name(&self) -> &CStr {
        // SAFETY: by the type's invariants the device is registered; only the field's address is
        // made.
        let device = unsafe { &raw mut (*self.raw.as_ptr()).__bindgen_anon_1.dev };
        // SAFETY: by the type's invariants the device is registered; both views of the union begin
        // with its `struct device`.
        unsafe { <device::Device>::from_raw(device.cast()) }.name()
    }

    /// Entries of a completion queue, at most.
    pub fn max_cqe(&self) -> Result<u32> {
        // SAFETY: by the type's invariants the device is registered; its attributes do not change.
        Ok(unsafe { (*self.raw.as_ptr()).attrs.max_cqe }.try_into()?)
    }

    /// Returns its capabilities (`enum ib_device_cap_flags`).
    pub fn capabilities(&self) -> u64 {
        // SAFETY: by the type's invariants the device is registered; its attributes do not change.
        unsafe { (*self.raw.as_ptr()).attrs.device_cap_flags }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.gone.completion.complete_all();
    }
}
