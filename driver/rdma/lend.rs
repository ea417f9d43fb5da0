// SPDX-License-Identifier: GPL-2.0
//! Queue pairs that other modules of the kernel name.

use kernel::{module::this_module, prelude::*};

use super::{bindings, device::Device, ops::Operations, qp::Qp};

impl<T: Operations> Qp<T> {
    /// Runs `run` with a queue pair that another module of the kernel names.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not one of this driver.
    ///
    /// # Safety
    ///
    /// `raw` must be a queue pair that is alive during the call.
    pub(crate) unsafe fn lend<R>(
        raw: *mut bindings::ib_qp,
        run: impl FnOnce(&T::Data<'_>, &Self) -> Result<R>,
    ) -> Result<R> {
        // SAFETY: the caller passes a live queue pair, whose device is registered.
        let device = unsafe { (*raw).device };
        // SAFETY: the device is registered, and its operations do not change.
        if unsafe { (*device).ops.owner } != this_module::<T::OwnerModule>().as_ptr() {
            return Err(EINVAL);
        }
        // SAFETY: the device is one of this module, whose devices are all `Device<T>`.
        let device = unsafe { Device::<T>::from_raw(device) };
        // SAFETY: `create_qp` has set up the queue pair.
        let qp = unsafe { Self::from_raw(raw) };
        // SAFETY: a device with a queue pair is registered.
        unsafe { device.with_data(|_, data| run(data, qp)) }
    }
}
