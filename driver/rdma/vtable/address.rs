// SPDX-License-Identifier: GPL-2.0
//! Trampolines of address handles and multicast groups.

use super::*;
use crate::rdma::{
    ah::{Ah, AhAttr},
    gid::Gid,
    qp::Qp,
    udata::User,
};

impl<T: Operations> VTable<T> {
    /// Fills in this file's operations.
    pub(super) fn fill_address(ops: &mut bindings::ib_device_ops) {
        ops.size_ib_ah = Ah::<T>::SIZE;
        ops.create_ah = Some(Self::create_ah);
        ops.create_user_ah = Some(Self::create_ah);
        ops.query_ah = Some(Self::query_ah);
        ops.destroy_ah = Some(Self::destroy_ah);
        ops.attach_mcast = Some(Self::attach_mcast);
        ops.detach_mcast = Some(Self::detach_mcast);
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

    unsafe extern "C" fn query_ah(
        ah: *mut bindings::ib_ah,
        out: *mut bindings::rdma_ah_attr,
    ) -> c_int {
        // SAFETY: set up by `create_ah`; `out` is the caller's.
        let (ah, out) = unsafe { (Ah::<T>::from_raw(ah), &mut *out) };
        T::query_ah(ah).write_to(out);
        0
    }

    unsafe extern "C" fn attach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        _lid: u16,
    ) -> c_int {
        // SAFETY: the core's pointers; the queue pair has been created.
        unsafe { Self::with_group(qp, gid, T::attach_mcast) }
    }

    unsafe extern "C" fn detach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        _lid: u16,
    ) -> c_int {
        // SAFETY: the core's pointers; the queue pair has been created.
        unsafe { Self::with_group(qp, gid, T::detach_mcast) }
    }

    /// Runs `f` with a queue pair and the address of a multicast group.
    ///
    /// # Safety
    ///
    /// To be called from an operation, with its arguments.
    unsafe fn with_group(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        f: fn(&T::Data<'_>, &Qp<T>, Gid) -> Result,
    ) -> c_int {
        from_result(|| {
            // SAFETY: a queue pair that was created, and a GID, whose views are all bytes.
            let (this, gid) = unsafe { (Qp::<T>::from_raw(qp), *(*gid).raw) };
            // SAFETY: called by the core for this device.
            unsafe { Self::with((*qp).device, |_, data| f(data, this, gid)) }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn destroy_ah(ah: *mut bindings::ib_ah, _flags: u32) -> c_int {
        // SAFETY: set up by `create_ah`; nobody uses it any more.
        unsafe { Ah::<T>::destroy(ah) };
        0
    }
}
