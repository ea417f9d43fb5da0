// SPDX-License-Identifier: GPL-2.0
//! Trampolines of shared receive queues and XRC domains.

use super::*;
use crate::rdma::{
    event::SrqLink,
    srq::{self, Srq, SrqChange, SrqInit},
    udata::User,
    wr::RecvWrs,
    xrcd::Xrcd,
};

impl<T: Operations> VTable<T> {
    /// Fills in this file's operations.
    pub(super) fn fill_srq(ops: &mut bindings::ib_device_ops) {
        ops.size_ib_xrcd = Xrcd::<T>::SIZE;
        ops.alloc_xrcd = Some(Self::alloc_xrcd);
        ops.dealloc_xrcd = Some(Self::dealloc_xrcd);

        ops.size_ib_srq = Srq::<T>::SIZE;
        ops.create_srq = Some(Self::create_srq);
        ops.modify_srq = Some(Self::modify_srq);
        ops.query_srq = Some(Self::query_srq);
        ops.destroy_srq = Some(Self::destroy_srq);
        ops.post_srq_recv = Some(Self::post_srq_recv);
    }

    unsafe extern "C" fn alloc_xrcd(
        xrcd: *mut bindings::ib_xrcd,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the command's payload, or null.
            if let Some(udata) = unsafe { Udata::from_raw(udata) } {
                udata.none()?;
            }
            // SAFETY: called by the core for this device.
            let driver = unsafe { Self::with((*xrcd).device, |_, data| T::alloc_xrcd(data)) }?;
            // SAFETY: allocated by the core with the size in the table, and still private.
            unsafe { Object::init(xrcd, driver) };
            Ok(0)
        })
    }

    unsafe extern "C" fn dealloc_xrcd(
        xrcd: *mut bindings::ib_xrcd,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: set up by `alloc_xrcd`; nobody uses it after success.
            unsafe {
                let this = Xrcd::<T>::from_raw(xrcd);
                Self::with((*xrcd).device, |_, data| T::dealloc_xrcd(data, this))?;
                Object::<_, T::Xrcd>::destroy(xrcd);
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn create_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            let raw = NonNull::new(srq).ok_or(EINVAL)?;
            // SAFETY: a command of an open context, or null.
            let user = unsafe { User::from_raw(udata) };
            // SAFETY: revoked here on failure, else by `destroy_srq`.
            let link = unsafe { SrqLink::new(raw) }?;
            // SAFETY: the core's pointers; completion queue and XRC domain are this device's.
            let created = unsafe {
                let mut init = SrqInit::new(&mut *attr, &link);
                Self::with((*srq).device, |device, data| {
                    let pd = Pd::<T>::from_raw((*srq).pd);
                    T::create_srq(data, device, pd, &mut init, user.as_ref())
                })
            };
            let new = created.inspect_err(|_| link.revoke())?;
            // SAFETY: allocated by the core with the size in the table, and still private; the type says that the
            // view of the union is valid.
            unsafe {
                if (*srq).srq_type == bindings::ib_srq_type_IB_SRQT_XRC {
                    (*(*srq).ext.__bindgen_anon_1.xrc).srq_num = new.number;
                }
                Object::init(srq, srq::Parts::<T> { link, driver: new.driver });
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn modify_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
        mask: bindings::ib_srq_attr_mask,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the command's payload, or null.
            if let Some(udata) = unsafe { Udata::from_raw(udata) } {
                udata.none()?;
            }
            // SAFETY: a live queue of this driver; the attributes are the core's.
            unsafe {
                let change = SrqChange::from_raw(&*attr, mask);
                Self::with((*srq).device, |_, data| T::modify_srq(data, Srq::from_raw(srq), change))
            }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn query_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: a live queue of this driver; the output is the core's.
            unsafe {
                let this = Srq::<T>::from_raw(srq);
                let query = Self::with((*srq).device, |_, data| T::query_srq(data, this))?;
                query.write_to(&mut *attr);
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn destroy_srq(
        srq: *mut bindings::ib_srq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: set up by `create_srq`; nobody uses it after success.
            unsafe {
                let this = Srq::<T>::from_raw(srq);
                Self::with((*srq).device, |_, data| T::destroy_srq(data, this))?;
                this.link().revoke();
                Object::<_, srq::Parts<T>>::destroy(srq);
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn post_srq_recv(
        srq: *mut bindings::ib_srq,
        first: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the client's list is valid during the call.
            let mut wrs = unsafe { RecvWrs::new(first) };
            // SAFETY: a live queue of this driver; `bad` is the client's.
            unsafe {
                Self::with((*srq).device, |_, data| {
                    T::post_srq_recv(data, Srq::from_raw(srq), &mut wrs)
                })
                .inspect_err(|_| *bad = wrs.taken())?;
            }
            Ok(0)
        })
    }
}
