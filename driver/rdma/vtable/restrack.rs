// SPDX-License-Identifier: GPL-2.0
//! Trampolines of what `rdma resource show` asks drivers for. The core keeps an object while its
//! entry is filled, and fills the message alone.

use super::*;
use crate::rdma::{
    cq::Cq,
    mr::Mr,
    qp::Qp,
    restrack::{RawResEntry, ResEntry},
    srq::Srq,
};

/// Both operations of an object: its entry in words, and its bytes.
macro_rules! entries {
    ($($words:ident, $bytes:ident: $object:ident as $driver:path;)*) => {$(
        unsafe extern "C" fn $words(
            message: *mut bindings::sk_buff,
            object: *mut bindings::$object,
        ) -> c_int {
            // SAFETY: the core passes an object that this driver has set up.
            let this = unsafe { $driver(object) };
            let fill = |data: &T::Data<'_>, message| {
                // SAFETY: the core fills the message, here alone.
                unsafe { ResEntry::fill(message, |entry| T::$words(data, this, entry)) }
            };
            // SAFETY: the core calls this as an operation of the object's device.
            unsafe { Self::fill(message, object, fill) }
        }

        unsafe extern "C" fn $bytes(
            message: *mut bindings::sk_buff,
            object: *mut bindings::$object,
        ) -> c_int {
            // SAFETY: the core passes an object that this driver has set up.
            let this = unsafe { $driver(object) };
            // SAFETY: the core fills the message, here alone.
            let fill = |data: &T::Data<'_>, message| {
                T::$bytes(data, this, unsafe { RawResEntry::new(message) })
            };
            // SAFETY: the core calls this as an operation of the object's device.
            unsafe { Self::fill(message, object, fill) }
        }
    )*};
}

impl<T: Operations> VTable<T> {
    /// The operations of this file.
    pub(super) const RESTRACK: bindings::ib_device_ops = bindings::ib_device_ops {
        fill_res_cq_entry: optional!(HAS_FILL_RES_CQ_ENTRY => fill_res_cq_entry),
        fill_res_cq_entry_raw: optional!(HAS_FILL_RES_CQ_ENTRY_RAW => fill_res_cq_entry_raw),
        fill_res_mr_entry: optional!(HAS_FILL_RES_MR_ENTRY => fill_res_mr_entry),
        fill_res_mr_entry_raw: optional!(HAS_FILL_RES_MR_ENTRY_RAW => fill_res_mr_entry_raw),
        fill_res_qp_entry: optional!(HAS_FILL_RES_QP_ENTRY => fill_res_qp_entry),
        fill_res_qp_entry_raw: optional!(HAS_FILL_RES_QP_ENTRY_RAW => fill_res_qp_entry_raw),
        fill_res_srq_entry: optional!(HAS_FILL_RES_SRQ_ENTRY => fill_res_srq_entry),
        fill_res_srq_entry_raw: optional!(HAS_FILL_RES_SRQ_ENTRY_RAW => fill_res_srq_entry_raw),
        ..EMPTY
    };

    /// Lets `fill` add to a message about an object.
    ///
    /// # Safety
    ///
    /// To be called from an operation, with an object that the core has passed to it.
    unsafe fn fill<C: CoreObject>(
        message: *mut bindings::sk_buff,
        object: *mut C,
        fill: impl FnOnce(&T::Data<'_>, NonNull<bindings::sk_buff>) -> Result,
    ) -> c_int {
        from_result(|| {
            let message = NonNull::new(message).ok_or(EINVAL)?;
            // SAFETY: the caller promises that this is an operation, with its object.
            unsafe { Self::with_device_of(object, |_, data| fill(data, message)) }?;
            Ok(0)
        })
    }

    entries! {
        fill_res_cq_entry, fill_res_cq_entry_raw: ib_cq as Cq::<T>::from_raw;
        fill_res_mr_entry, fill_res_mr_entry_raw: ib_mr as Mr::<T::Mr>::driver;
        fill_res_qp_entry, fill_res_qp_entry_raw: ib_qp as Qp::<T>::from_raw;
        fill_res_srq_entry, fill_res_srq_entry_raw: ib_srq as Srq::<T>::from_raw;
    }
}
