// SPDX-License-Identifier: GPL-2.0
//! Trampolines of address handles.

use super::*;
use crate::rdma::{
    ah::{Ah, AhAttr},
    udata::User,
};

impl<T: Operations> VTable<T> {
    /// Fills in this file's operations.
    pub(super) fn fill_address(ops: &mut bindings::ib_device_ops) {
        ops.size_ib_ah = Ah::<T>::SIZE;
        ops.create_ah = Some(Self::create_ah);
        ops.create_user_ah = Some(Self::create_ah);
        ops.destroy_ah = Some(Self::destroy_ah);
    }

    unsafe extern "C" fn create_ah(
        ah: *mut bindings::ib_ah,
        attr: *mut bindings::rdma_ah_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: a command of an open context, or null.
            let user = unsafe { User::from_raw(udata) };
            // SAFETY: the core's pointers; the address vector is constant during the call.
            let (device, attr) = unsafe { ((*ah).device, AhAttr::from_raw((*attr).ah_attr)) };
            // SAFETY: called by the core for this device.
            let driver =
                unsafe { Self::with(device, |_, data| T::create_ah(data, attr, user.as_ref())) }?;
            // SAFETY: allocated by the core with the size in the table, and still private.
            unsafe { Object::init(ah, driver) };
            Ok(0)
        })
    }

    unsafe extern "C" fn destroy_ah(ah: *mut bindings::ib_ah, _flags: u32) -> c_int {
        // SAFETY: set up by `create_ah`; nobody uses it any more.
        unsafe { Ah::<T>::destroy(ah) };
        0
    }
}
