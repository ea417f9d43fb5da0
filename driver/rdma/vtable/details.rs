// SPDX-License-Identifier: GPL-2.0
//! Trampolines of what `rdma resource show` asks drivers for. The core keeps an object while its entry is filled, and
//! fills the message alone.

use super::*;
use crate::rdma::{cq::Cq, details::Details, mr::Mr, qp::Qp, srq::Srq};

impl<T: Operations> VTable<T> {
    /// Fills in this file's operations.
    pub(super) fn fill_details(ops: &mut bindings::ib_device_ops) {
        ops.fill_res_cq_entry = Some(Self::fill_res_cq_entry);
        ops.fill_res_mr_entry = Some(Self::fill_res_mr_entry);
        ops.fill_res_qp_entry = Some(Self::fill_res_qp_entry);
        ops.fill_res_srq_entry = Some(Self::fill_res_srq_entry);
    }

    /// Lets `describe` add to a message of the core's about an object of `device`.
    ///
    /// # Safety
    ///
    /// As for [`VTable::with`] and [`Details::fill`].
    unsafe fn fill(
        message: *mut bindings::sk_buff,
        device: *mut bindings::ib_device,
        describe: impl FnOnce(&T::Data<'_>, &mut Details<'_>) -> Result,
    ) -> c_int {
        from_result(|| {
            let message = NonNull::new(message).ok_or(EINVAL)?;
            // SAFETY: by the caller's promise.
            unsafe {
                Details::fill(message, |details| {
                    Self::with(device, |_, data| describe(data, details))
                })
            }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn fill_res_cq_entry(
        message: *mut bindings::sk_buff,
        cq: *mut bindings::ib_cq,
    ) -> c_int {
        // SAFETY: a live completion queue of this driver; see the module.
        unsafe {
            let this = Cq::<T>::from_raw(cq);
            Self::fill(message, (*cq).device, |data, details| T::describe_cq(data, this, details))
        }
    }

    unsafe extern "C" fn fill_res_qp_entry(
        message: *mut bindings::sk_buff,
        qp: *mut bindings::ib_qp,
    ) -> c_int {
        // SAFETY: a live queue pair of this driver; see the module.
        unsafe {
            let this = Qp::<T>::from_raw(qp);
            Self::fill(message, (*qp).device, |data, details| T::describe_qp(data, this, details))
        }
    }

    unsafe extern "C" fn fill_res_srq_entry(
        message: *mut bindings::sk_buff,
        srq: *mut bindings::ib_srq,
    ) -> c_int {
        // SAFETY: a live shared receive queue of this driver; see the module.
        unsafe {
            let this = Srq::<T>::from_raw(srq);
            Self::fill(message, (*srq).device, |data, details| T::describe_srq(data, this, details))
        }
    }

    unsafe extern "C" fn fill_res_mr_entry(
        message: *mut bindings::sk_buff,
        mr: *mut bindings::ib_mr,
    ) -> c_int {
        // SAFETY: a live region of this driver; see the module.
        unsafe {
            let this = Mr::<T::Mr>::driver(mr);
            Self::fill(message, (*mr).device, |data, details| T::describe_mr(data, this, details))
        }
    }
}
