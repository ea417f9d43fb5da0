// SPDX-License-Identifier: GPL-2.0
//! The devices that are tested.
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

use crate::{bindings, kclient::pd::Device};

/// Told when nobody uses a device any more.
#[pin_data]
pub(crate) struct Gone {
    #[pin]
    pub(crate) completion: Completion,
}

/// A device of the driver.
pub(crate) struct Attached {
    raw: NonNull<bindings::ib_device>,
    gone: Arc<Gone>,
}

// SAFETY: devices may be used by any thread.
unsafe impl Send for Attached {}
// SAFETY: devices may be used by any thread; what changes is atomic.
unsafe impl Sync for Attached {}

// SAFETY: `add` and `remove`, during which the device is registered and between which it stays so,
// wait for all users.
unsafe impl Device for Attached {
    fn as_raw(&self) -> NonNull<bindings::ib_device> {
        self.raw
    }

    fn owner(&self) -> &'static CStr {
        crate::NAME
    }
}

impl Attached {
    /// Returns a device, and the completion that tells when nobody uses it any more.
    ///
    /// # Safety
    ///
    /// The device must be registered until the completion of what is returned beside it.
    pub(crate) unsafe fn new(raw: NonNull<bindings::ib_device>) -> Result<(Arc<Self>, Arc<Gone>)> {
        let gone = Arc::pin_init(pin_init!(Gone { completion <- Completion::new() }), GFP_KERNEL)?;
        let this = Arc::new(Self { raw, gone: gone.clone() }, GFP_KERNEL)?;
        Ok((this, gone))
    }

    /// The device's name.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: registered; only the field's address is made.
        let device = unsafe { &raw mut (*self.raw.as_ptr()).__bindgen_anon_1.dev };
        // SAFETY: registered; both views of the union begin with the device.
        unsafe { <device::Device>::from_raw(device.cast()) }.name()
    }

    /// Entries of a completion queue, at most.
    pub(crate) fn max_cqe(&self) -> Result<u32> {
        // SAFETY: registered; constant.
        Ok(unsafe { (*self.raw.as_ptr()).attrs.max_cqe }.try_into()?)
    }

    /// Its capabilities (`enum ib_device_cap_flags`).
    pub(crate) fn capabilities(&self) -> u64 {
        // SAFETY: registered; constant.
        unsafe { (*self.raw.as_ptr()).attrs.device_cap_flags }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.gone.completion.complete_all();
    }
}
