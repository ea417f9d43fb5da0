// SPDX-License-Identifier: GPL-2.0
//! Objects that other modules of the kernel name, or that the driver's own methods receive.

use kernel::{module::this_module, prelude::*};

use super::{
    device::Device, object::Wrapper, ops::Operations, queues::cq::Cq, queues::qp::Qp,
    user::ucontext::User,
};
use crate::bindings;

/// Returns the device of an object of any driver.
///
/// # Errors
///
/// `EINVAL` if it is not one of this driver.
///
/// # Safety
///
/// `raw` must be a registered device.
unsafe fn own<'a, T: Operations>(raw: *mut bindings::ib_device) -> Result<&'a Device<T>> {
    // SAFETY: the caller passes a registered device, whose operations do not change.
    if unsafe { (*raw).ops.owner } != this_module::<<T as Operations>::OwnerModule>().as_ptr() {
        return Err(EINVAL);
    }
    // SAFETY: the device is one of this module, whose devices are all `Device<T>`.
    Ok(unsafe { Device::<T>::from_raw(raw) })
}

/// Runs `run` with a completion queue that another module of the kernel names.
///
/// # Errors
///
/// `EINVAL` if it is not one of this driver.
///
/// # Safety
///
/// `raw` must be a completion queue that the core has created, of any driver, and that is not
/// destroyed during the call.
pub(crate) unsafe fn cq<T: Operations, R>(
    raw: *mut bindings::ib_cq,
    run: impl FnOnce(&T::Data<'_>, &Cq<T>) -> Result<R>,
) -> Result<R> {
    // SAFETY: the caller passes a live queue, whose device is registered.
    let device = unsafe { own::<T>((*raw).device) }?;
    // SAFETY: the caller passes a live queue, whose device is one of this driver.
    let cq = unsafe { <Cq<T> as Wrapper>::from_raw(raw) };
    // SAFETY: a device with a completion queue is registered.
    unsafe { device.with_data(|_, data| run(data, cq)) }
}

impl<T: Operations> Qp<T> {
    /// Runs `run` with a queue pair that another module of the kernel names.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not one of this driver, or is an XRC target.
    ///
    /// # Safety
    ///
    /// `raw` must be a queue pair that the core has created or opened, of any driver, and that is
    /// not destroyed or closed during the call.
    pub(crate) unsafe fn lend<R>(
        raw: *mut bindings::ib_qp,
        run: impl FnOnce(&T::Data<'_>, &Self) -> Result<R>,
    ) -> Result<R> {
        // SAFETY: the caller passes a live queue pair, whose device is registered.
        let device = unsafe { own::<T>((*raw).device) }?;
        // SAFETY: the caller passes a live queue pair, whose device is one of this driver.
        let qp = unsafe { Self::from_handle(raw) }?;
        // SAFETY: a device with a queue pair is registered.
        unsafe { device.with_data(|_, data| run(data, qp)) }
    }

    /// Runs `run` for a method of the driver's own, with the queue pair of a process and the
    /// payload of the method.
    ///
    /// # Errors
    ///
    /// As [`Self::lend`]; `EINVAL` without a payload.
    ///
    /// # Safety
    ///
    /// `raw` must be as for [`Self::lend`], `udata` the payload of a method that an open context of
    /// this driver carries out.
    pub(crate) unsafe fn lend_to_user(
        raw: *mut bindings::ib_qp,
        udata: *mut bindings::ib_udata,
        run: impl FnOnce(&T::Data<'_>, &Self, &User<'_, T>) -> Result,
    ) -> Result {
        // SAFETY: the caller passes the payload of the method under way.
        let user = unsafe { User::from_raw(udata) }.ok_or(EINVAL)?;
        // SAFETY: the caller passes a queue pair as `lend` demands it.
        unsafe { Self::lend(raw, |data, qp| run(data, qp, &user)) }
    }
}
