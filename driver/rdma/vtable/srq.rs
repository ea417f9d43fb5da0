// SPDX-License-Identifier: GPL-2.0
//! Trampolines of shared receive queues.

use super::*;
use crate::rdma::{
    event::SrqLink,
    queues::srq::{Srq, SrqChange, SrqInit},
    user::ucontext::User,
};

impl<T: Operations> VTable<T> {
    /// The operations of this file.
    pub(super) const SRQ: bindings::ib_device_ops = bindings::ib_device_ops {
        size_ib_srq: Srq::<T>::SIZE,
        create_srq: optional!(HAS_CREATE_SRQ => create_srq),
        modify_srq: optional!(HAS_MODIFY_SRQ => modify_srq),
        query_srq: optional!(HAS_QUERY_SRQ => query_srq),
        destroy_srq: optional!(HAS_CREATE_SRQ => destroy_srq),
        post_srq_recv: optional!(HAS_CREATE_SRQ => post_srq_recv),
        ..EMPTY
    };

    unsafe extern "C" fn create_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            let raw = NonNull::new(srq).ok_or(EINVAL)?;
            // SAFETY: the core passes the payload of a command of an open context, or null.
            let user = unsafe { User::from_raw(udata) };
            // SAFETY: the link is revoked here on failure, else by `destroy_srq`: before the queue
            // goes.
            let link = unsafe { SrqLink::new(raw) }?;
            let attr = NonNull::new(attr).ok_or(EINVAL)?;
            // SAFETY: the core passes attributes from its caller, of which it has used type, sizes
            // and what else belongs to the type; completion queue and XRC domain are this device's.
            let mut init = unsafe { SrqInit::new(attr, &link) };
            // SAFETY: the core passes a queue whose domain it has set.
            let pd = unsafe { (*srq).pd };
            // SAFETY: the core names a domain that `alloc_pd` has set up.
            let pd = unsafe { Pd::<T>::from_raw(pd) };
            // SAFETY: the core calls this as an operation of the queue's device.
            let created = unsafe {
                Self::with_device_of(srq, |device, data| {
                    T::create_srq(data, device, pd, &mut init, user.as_ref())
                })
            };
            let new = created.inspect_err(|_| link.revoke())?;
            // SAFETY: the core passes a queue whose type it has set.
            if unsafe { (*srq).srq_type } == bindings::ib_srq_type_IB_SRQT_XRC {
                // SAFETY: the queue is valid, and only this call knows it.
                let ext = unsafe { &mut (*srq).ext };
                // SAFETY: the type says that this view of the union is valid.
                unsafe { (*ext.__bindgen_anon_1.xrc).srq_num = new.number };
            }
            // SAFETY: the core has allocated the queue with the size in the table, and only this
            // call knows it. The link is one to this queue.
            unsafe { Srq::<T>::init(srq, link, new.driver) };
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
            // SAFETY: the core passes the payload of a command of an open context, or null.
            let user = unsafe { User::from_raw(udata) };
            // SAFETY: the core passes attributes that are constant during the call, and whose
            // fields that the mask names its caller has set.
            let change = unsafe { SrqChange::from_raw(attr, mask) };
            // SAFETY: the core passes a queue that `create_srq` has set up.
            unsafe {
                Self::on(srq, |data, device, srq| {
                    T::modify_srq(data, device, srq, change, user.as_ref())
                })
            }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn query_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes a queue that `create_srq` has set up.
            let query = unsafe { Self::on(srq, |data, _, srq| T::query_srq(data, srq)) }?;
            // SAFETY: the core passes a place of its caller's, which may be uninitialised.
            unsafe { attr.write(query.to_raw()) };
            Ok(0)
        })
    }

    unsafe extern "C" fn destroy_srq(
        srq: *mut bindings::ib_srq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: this destroys a queue that `create_srq` has set up. Its link is revoked.
        unsafe {
            Self::destroy(srq, |data, srq: &Srq<T>| {
                T::destroy_srq(data, srq).map(|()| srq.link().revoke())
            })
        }
    }

    unsafe extern "C" fn post_srq_recv(
        srq: *mut bindings::ib_srq,
        first: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: the core passes a queue that `create_srq` has set up; the rest is the client's.
        unsafe { Self::receive(srq, first, bad, T::post_srq_recv) }
    }
}
