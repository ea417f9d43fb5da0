// SPDX-License-Identifier: GPL-2.0
//! Trampolines of address handles and multicast groups.

use super::*;
use crate::rdma::{
    ah::{Ah, AhAttr},
    port::gid::Gid,
    queues::qp::Qp,
    user::ucontext::User,
};

impl<T: Operations> VTable<T> {
    /// The operations of this file.
    pub(super) const ADDRESS: bindings::ib_device_ops = bindings::ib_device_ops {
        size_ib_ah: Ah::<T>::SIZE,
        create_ah: optional!(HAS_CREATE_AH => create_ah),
        create_user_ah: optional!(HAS_CREATE_AH => create_ah),
        query_ah: optional!(HAS_QUERY_AH => query_ah),
        destroy_ah: optional!(HAS_CREATE_AH => destroy_ah),
        attach_mcast: optional!(HAS_ATTACH_MCAST => attach_mcast),
        detach_mcast: optional!(HAS_ATTACH_MCAST => detach_mcast),
        ..EMPTY
    };

    unsafe extern "C" fn create_ah(
        ah: *mut bindings::ib_ah,
        attr: *mut bindings::rdma_ah_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the payload of a command of an open context, or null.
            let user = unsafe { User::from_raw(udata) };
            // SAFETY: the core passes valid attributes.
            let attr = unsafe { (*attr).ah_attr };
            // SAFETY: the address vector is valid and constant during the call.
            let attr = unsafe { AhAttr::from_raw(attr) };
            // SAFETY: the core calls this as an operation of the handle's device.
            let driver = unsafe {
                Self::with_device_of(ah, |_, data| T::create_ah(data, attr, user.as_ref()))
            }?;
            // SAFETY: the core has allocated the handle with the size in the table, and only this
            // call knows it.
            unsafe { Object::init(ah, driver) };
            Ok(0)
        })
    }

    unsafe extern "C" fn query_ah(
        ah: *mut bindings::ib_ah,
        out: *mut bindings::rdma_ah_attr,
    ) -> c_int {
        // SAFETY: the core passes a handle that `create_ah` has set up.
        let this = unsafe { Ah::<T>::from_raw(ah) };
        // Callers may leave the struct uninitialised.
        // SAFETY: the core passes a struct of the caller's.
        unsafe { out.write_bytes(0, 1) };
        // SAFETY: the struct is the caller's, and was zeroed above, which is valid for it.
        T::query_ah(this).write_to(unsafe { &mut *out });
        0
    }

    unsafe extern "C" fn attach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        _lid: u16,
    ) -> c_int {
        // SAFETY: this is an operation, with the arguments that the core has passed.
        unsafe { Self::with_group(qp, gid, T::attach_mcast) }
    }

    unsafe extern "C" fn detach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        _lid: u16,
    ) -> c_int {
        // SAFETY: this is an operation, with the arguments that the core has passed.
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
            // SAFETY: the core passes a valid GID, which does not change during the call.
            let gid = unsafe { &*gid };
            // SAFETY: all views of the union are bytes.
            let gid = unsafe { *gid.raw };
            // SAFETY: the caller promises that this is an operation. The core passes a datagram
            // queue pair that `create_qp` has set up; it refuses handles of other types.
            unsafe { Self::on(qp, |data, _, qp| f(data, qp, gid)) }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn destroy_ah(ah: *mut bindings::ib_ah, _flags: u32) -> c_int {
        // SAFETY: the core passes a handle that `create_ah` has set up, and frees it after this.
        unsafe { Ah::<T>::destroy(ah) };
        0
    }
}
