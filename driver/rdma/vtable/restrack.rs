// SPDX-License-Identifier: GPL-2.0
//! Trampolines of what `rdma resource show` asks drivers for. The core keeps an object while its
//! entry is filled, and nothing else fills the message meanwhile.

use super::*;
use crate::rdma::{
    memory::mr::Mr,
    queues::cq::Cq,
    queues::qp::Qp,
    queues::srq::Srq,
    restrack::{RawResEntry, ResEntry, ResOperations},
};

/// The entry of an operation that drivers may lack for an object.
macro_rules! entry {
    ($object:ty, $has:ident => $operation:ident) => {
        if <T as ResOperations<$object>>::$has { Some(Self::$operation::<$object>) } else { None }
    };
}

impl<T: Operations> VTable<T> {
    /// The operations of this file.
    pub(super) const RESTRACK: bindings::ib_device_ops = bindings::ib_device_ops {
        fill_res_cq_entry: entry!(Cq<T>, HAS_FILL_RES_ENTRY => fill_res_entry),
        fill_res_cq_entry_raw: entry!(Cq<T>, HAS_FILL_RES_ENTRY_RAW => fill_res_entry_raw),
        fill_res_mr_entry: entry!(Mr<T::Mr>, HAS_FILL_RES_ENTRY => fill_res_entry),
        fill_res_mr_entry_raw: entry!(Mr<T::Mr>, HAS_FILL_RES_ENTRY_RAW => fill_res_entry_raw),
        fill_res_qp_entry: entry!(Qp<T>, HAS_FILL_RES_ENTRY => fill_res_entry),
        fill_res_qp_entry_raw: entry!(Qp<T>, HAS_FILL_RES_ENTRY_RAW => fill_res_entry_raw),
        fill_res_srq_entry: entry!(Srq<T>, HAS_FILL_RES_ENTRY => fill_res_entry),
        fill_res_srq_entry_raw: entry!(Srq<T>, HAS_FILL_RES_ENTRY_RAW => fill_res_entry_raw),
        ..EMPTY
    };

    unsafe extern "C" fn fill_res_entry<O: Wrapper<Core: CoreObject>>(
        message: *mut bindings::sk_buff,
        object: *mut O::Core,
    ) -> c_int
    where
        T: ResOperations<O>,
    {
        let fill = |message, data: &T::Data<'_>, object: &O| {
            // SAFETY: the core fills the message, and only here during the call.
            unsafe { ResEntry::fill(message, |entry| T::fill_res_entry(data, object, entry)) }
        };
        // SAFETY: the core passes an object that this driver has set up.
        unsafe { Self::fill(message, object, fill) }
    }

    unsafe extern "C" fn fill_res_entry_raw<O: Wrapper<Core: CoreObject>>(
        message: *mut bindings::sk_buff,
        object: *mut O::Core,
    ) -> c_int
    where
        T: ResOperations<O>,
    {
        let fill = |message, data: &T::Data<'_>, object: &O| {
            // SAFETY: the core fills the message, and only here during the call.
            T::fill_res_entry_raw(data, object, unsafe { RawResEntry::new(message) })
        };
        // SAFETY: the core passes an object that this driver has set up.
        unsafe { Self::fill(message, object, fill) }
    }

    /// Lets `fill` add to a message about an object.
    ///
    /// # Safety
    ///
    /// As for [`Self::on`].
    unsafe fn fill<O: Wrapper<Core: CoreObject>>(
        message: *mut bindings::sk_buff,
        object: *mut O::Core,
        fill: impl FnOnce(NonNull<bindings::sk_buff>, &T::Data<'_>, &O) -> Result,
    ) -> c_int {
        from_result(|| {
            let message = NonNull::new(message).ok_or(EINVAL)?;
            // SAFETY: the caller promises what the callee asks for.
            unsafe { Self::on(object, |data, _, object| fill(message, data, object)) }?;
            Ok(0)
        })
    }
}
