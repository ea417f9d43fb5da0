// SPDX-License-Identifier: GPL-2.0
//! Trampolines of what `rdma resource show` asks drivers for. The core keeps an object while its entry is filled, and
//! fills the message alone.

use super::*;
use crate::rdma::{
    cq::Cq,
    details::{Details, Raw},
    mr::Mr,
    qp::Qp,
    srq::Srq,
};

/// Both operations of an object: its entry in words, and its bytes.
macro_rules! entries {
    ($($words:ident, $bytes:ident: $object:ident as $driver:path => $describe:ident, $raw:ident;)*) => {$(
        unsafe extern "C" fn $words(
            message: *mut bindings::sk_buff,
            object: *mut bindings::$object,
        ) -> c_int {
            // SAFETY: a live object of this driver, and the core's message; see the module.
            unsafe {
                let this = $driver(object);
                Self::fill(message, (*object).device, |data, message| {
                    Details::fill(message, |details| T::$describe(data, this, details))
                })
            }
        }

        unsafe extern "C" fn $bytes(
            message: *mut bindings::sk_buff,
            object: *mut bindings::$object,
        ) -> c_int {
            // SAFETY: a live object of this driver, and the core's message; see the module.
            unsafe {
                let this = $driver(object);
                Self::fill(message, (*object).device, |data, message| T::$raw(data, this, Raw::new(message)))
            }
        }
    )*};
}

impl<T: Operations> VTable<T> {
    /// Fills in this file's operations.
    pub(super) fn fill_details(ops: &mut bindings::ib_device_ops) {
        ops.fill_res_cq_entry = Some(Self::fill_res_cq_entry);
        ops.fill_res_cq_entry_raw = Some(Self::fill_res_cq_entry_raw);
        ops.fill_res_mr_entry = Some(Self::fill_res_mr_entry);
        ops.fill_res_mr_entry_raw = Some(Self::fill_res_mr_entry_raw);
        ops.fill_res_qp_entry = Some(Self::fill_res_qp_entry);
        ops.fill_res_qp_entry_raw = Some(Self::fill_res_qp_entry_raw);
        ops.fill_res_srq_entry = Some(Self::fill_res_srq_entry);
        ops.fill_res_srq_entry_raw = Some(Self::fill_res_srq_entry_raw);
    }

    /// Lets `fill` add to a message of the core's about an object of `device`.
    ///
    /// # Safety
    ///
    /// As for [`VTable::with`].
    unsafe fn fill(
        message: *mut bindings::sk_buff,
        device: *mut bindings::ib_device,
        fill: impl FnOnce(&T::Data<'_>, NonNull<bindings::sk_buff>) -> Result,
    ) -> c_int {
        from_result(|| {
            let message = NonNull::new(message).ok_or(EINVAL)?;
            // SAFETY: by the caller's promise.
            unsafe { Self::with(device, |_, data| fill(data, message)) }?;
            Ok(0)
        })
    }

    entries! {
        fill_res_cq_entry, fill_res_cq_entry_raw: ib_cq as Cq::<T>::from_raw => describe_cq, raw_cq;
        fill_res_mr_entry, fill_res_mr_entry_raw: ib_mr as Mr::<T::Mr>::driver => describe_mr, raw_mr;
        fill_res_qp_entry, fill_res_qp_entry_raw: ib_qp as Qp::<T>::from_raw => describe_qp, raw_qp;
        fill_res_srq_entry, fill_res_srq_entry_raw: ib_srq as Srq::<T>::from_raw => describe_srq, raw_srq;
    }
}
