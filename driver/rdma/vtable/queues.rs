// SPDX-License-Identifier: GPL-2.0
//! Trampolines of completion queues and queue pairs.

use core::mem::MaybeUninit;

use kernel::sync::barrier::{Write, smp_mb};

use super::*;
use crate::rdma::{
    event::{CqLink, QpLink},
    qp_attr::{QpAttr, QpAttrMask, QpType},
    queues::cq::{Cq, CqInit, Moderation, Notify},
    queues::qp::{Qp, QpInit},
    requests::recv_wr::RecvWrs,
    requests::wc::Completions,
    requests::wr::SendWrs,
    user::ucontext::User,
};

impl<T: Operations> VTable<T> {
    /// The operations of this file.
    pub(super) const QUEUES: bindings::ib_device_ops = bindings::ib_device_ops {
        size_ib_cq: Cq::<T>::SIZE,
        create_cq: Some(Self::create_cq),
        modify_cq: optional!(HAS_MODIFY_CQ => modify_cq),
        resize_user_cq: optional!(HAS_RESIZE_USER_CQ => resize_user_cq),
        destroy_cq: Some(Self::destroy_cq),
        poll_cq: Some(Self::poll_cq),
        req_notify_cq: Some(Self::req_notify_cq),
        size_ib_qp: Qp::<T>::SIZE,
        create_qp: Some(Self::create_qp),
        modify_qp: Some(Self::modify_qp),
        query_qp: optional!(HAS_QUERY_QP => query_qp),
        destroy_qp: Some(Self::destroy_qp),
        post_send: Some(Self::post_send),
        post_recv: Some(Self::post_recv),
        ..EMPTY
    };

    unsafe extern "C" fn create_cq(
        cq: *mut bindings::ib_cq,
        attr: *const bindings::ib_cq_init_attr,
        bundle: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        from_result(|| {
            let raw = NonNull::new(cq).ok_or(EINVAL)?;
            let udata = if bundle.is_null() {
                core::ptr::null_mut()
            } else {
                // SAFETY: the core passes a valid pointer, of which only a field's address is made.
                unsafe { bindings::rdma_helper_bundle_udata(bundle) }
            };
            // SAFETY: the core passes the payload of a command of an open context, or null.
            let user = unsafe { User::from_raw(udata) };
            // SAFETY: the link is revoked here on failure, else by `destroy_cq`: before the queue
            // goes.
            let link = unsafe { CqLink::new(raw) }?;
            // SAFETY: the core passes attributes of its own.
            let attr = unsafe { &*attr };
            let mut init = CqInit {
                entries: attr.cqe,
                comp_vector: attr.comp_vector,
                flags: attr.flags,
                link: &link,
                granted: attr.cqe,
            };
            // SAFETY: the core calls this as an operation of the queue's device.
            let created = unsafe {
                Self::with_device_of(cq, |device, data| {
                    T::create_cq(data, device, &mut init, user.as_ref())
                })
            };
            let granted = c_int::try_from(init.granted).unwrap_or(c_int::MAX);
            let driver = created.inspect_err(|_| link.revoke())?;
            // SAFETY: the queue is valid, and only this call knows it.
            unsafe { (*cq).cqe = granted };
            // SAFETY: the core has allocated the queue with the size in the table, and only this
            // call knows it. The link is one to this queue.
            unsafe { Cq::<T>::init(cq, link, driver) };
            Ok(0)
        })
    }

    unsafe extern "C" fn modify_cq(cq: *mut bindings::ib_cq, count: u16, period: u16) -> c_int {
        from_result(|| {
            let moderation = Moderation { count, period };
            // SAFETY: the core passes a queue that `create_cq` has set up.
            unsafe { Self::on(cq, |data, _, cq| T::modify_cq(data, cq, moderation)) }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn resize_user_cq(
        cq: *mut bindings::ib_cq,
        entries: c_uint,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the payload of a command of an open context.
            let user = unsafe { User::from_raw(udata) }.ok_or(EINVAL)?;
            // SAFETY: the core passes a queue that `create_cq` has set up.
            let granted = unsafe {
                Self::on(cq, |data, device, cq| T::resize_user_cq(data, device, cq, entries, &user))
            }?;
            let granted = c_int::try_from(granted)?;
            // SAFETY: the queue is valid; only the field's address is made.
            let entries = unsafe { &raw mut (*cq).cqe };
            // SAFETY: the field is part of a valid queue. Its value is only shown to people, and
            // other resizes may write it meanwhile.
            unsafe { entries.write_volatile(granted) };
            Ok(0)
        })
    }

    unsafe extern "C" fn destroy_cq(
        cq: *mut bindings::ib_cq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: this destroys a queue that `create_cq` has set up. Its link is revoked.
        unsafe {
            Self::destroy(cq, |data, cq: &Cq<T>| {
                T::destroy_cq(data, cq).map(|()| cq.link().revoke())
            })
        }
    }

    unsafe extern "C" fn poll_cq(
        cq: *mut bindings::ib_cq,
        count: c_int,
        out: *mut bindings::ib_wc,
    ) -> c_int {
        from_result(|| {
            let count = usize::try_from(count)?;
            if count == 0 {
                return Ok(0);
            }
            let first = out.cast::<MaybeUninit<bindings::ib_wc>>();
            // SAFETY: the client gives room for `count` completions.
            let slots = unsafe { core::slice::from_raw_parts_mut(first, count) };
            let mut completions = Completions::new(slots);
            // SAFETY: the core passes a queue that `create_cq` has set up.
            unsafe { Self::on(cq, |data, _, cq| T::poll_cq(data, cq, &mut completions)) }?;
            Ok(c_int::try_from(completions.len())?)
        })
    }

    unsafe extern "C" fn req_notify_cq(
        cq: *mut bindings::ib_cq,
        flags: bindings::ib_cq_notify_flags,
    ) -> c_int {
        from_result(|| {
            let notify = Notify::from_raw(flags);
            // SAFETY: the core passes a queue that `create_cq` has set up.
            let missed = unsafe {
                Self::on(cq, |data, _, cq: &Cq<T>| {
                    // First: the event may come before the call below returns.
                    cq.link().arm();
                    T::req_notify_cq(data, cq, notify)
                })
            }?;
            Ok(c_int::from(missed))
        })
    }

    unsafe extern "C" fn create_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            let raw = NonNull::new(qp).ok_or(EINVAL)?;
            // SAFETY: the core passes the payload of a command of an open context, or null.
            let user = unsafe { User::from_raw(udata) };
            // SAFETY: the link is revoked here on failure, else by `destroy_qp`: before the queue
            // pair goes.
            let link = unsafe { QpLink::new(raw) }?;
            // SAFETY: the core passes attributes of its own.
            let attr = unsafe { &mut *attr };
            // SAFETY: the queues, the table and the XRC domain in the attributes are this device's.
            let mut init = unsafe { QpInit::new(attr, &link) };
            // SAFETY: the core has set the queue pair's domain.
            let pd = unsafe { (*qp).pd };
            // SAFETY: if the core names a domain, then one that `alloc_pd` has set up.
            let pd = (!pd.is_null()).then(|| unsafe { Pd::<T>::from_raw(pd) });
            // SAFETY: the core calls this as an operation of the queue pair's device.
            let created = unsafe {
                Self::with_device_of(qp, |device, data| {
                    T::create_qp(data, device, pd, &mut init, user.as_ref())
                })
            };
            let new = created.inspect_err(|_| link.revoke())?;
            if let Some(port) = new.port {
                // SAFETY: the core has set the field before, and only this call knows the queue
                // pair.
                unsafe { (*qp).port = port };
            }
            // The core sets the event handler of an XRC target after this.
            if init.kind() != QpType::XRC_TGT {
                link.open();
            }
            // SAFETY: the core has allocated the queue pair with the size in the table, and only
            // this call knows it. The link is one to this queue pair.
            unsafe { Qp::<T>::init(qp, link, new.driver) };
            // Last, as `iw_get_qp` looks for it.
            smp_mb(Write);
            // SAFETY: the queue pair is valid; only the field's address is made.
            let number = unsafe { &raw mut (*qp).qp_num };
            // SAFETY: the field is part of a valid queue pair, to which only this call writes.
            unsafe { number.write_volatile(new.number) };
            Ok(0)
        })
    }

    unsafe extern "C" fn modify_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the payload of the command, or null.
            unsafe { Udata::expect_none(udata) }?;
            let mask = QpAttrMask::from_raw(mask)?;
            let attr = NonNull::new(attr).ok_or(EINVAL)?;
            // SAFETY: the core passes attributes that are constant during the call, and whose
            // fields that the mask names the caller has set.
            let attr = unsafe { QpAttr::new(attr, mask) };
            // SAFETY: the core passes a queue pair that `create_qp` has set up.
            unsafe {
                Self::on(qp, |data, _, qp: &Qp<T>| {
                    qp.link().open();
                    T::modify_qp(data, qp, &attr, mask)
                })
            }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn query_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        _mask: c_int,
        init: *mut bindings::ib_qp_init_attr,
    ) -> c_int {
        from_result(|| {
            // Callers leave both structs uninitialised (`ib_uverbs_query_qp` in `uverbs_cmd.c`),
            // and may pass all of their fields on to processes.
            // SAFETY: the caller passes a struct of its own.
            unsafe { attr.write_bytes(0, 1) };
            // SAFETY: the caller passes a second struct of its own.
            unsafe { init.write_bytes(0, 1) };
            // SAFETY: the struct is the caller's, and was zeroed above, which is valid for it.
            let attr = unsafe { &mut *attr };
            // SAFETY: the struct is the caller's, and was zeroed above, which is valid for it.
            let init = unsafe { &mut *init };
            // SAFETY: the core passes a queue pair that `create_qp` has set up.
            unsafe {
                Self::on(qp, |data, _, qp: &Qp<T>| {
                    T::query_qp(data, qp)?.write_to(attr, init);
                    qp.describe(init);
                    Ok(0)
                })
            }
        })
    }

    unsafe extern "C" fn destroy_qp(
        qp: *mut bindings::ib_qp,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: the core passes the payload of a command or of the clean-up of an open context,
        // or null.
        let user = unsafe { User::from_raw(udata) };
        // SAFETY: this destroys a queue pair that `create_qp` has set up. Its link is revoked; only
        // the connection manager may have references, which the abstraction waits for.
        unsafe {
            Self::destroy(qp, |data, qp: &Qp<T>| {
                T::destroy_qp(data, qp, user.as_ref()).map(|()| qp.link().revoke())
            })
        }
    }

    unsafe extern "C" fn post_send(
        qp: *mut bindings::ib_qp,
        first: *const bindings::ib_send_wr,
        bad: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the client passes its handle of a queue pair of this device, which is alive.
            let this = unsafe { Qp::<T>::from_handle(qp) };
            // SAFETY: the client passes a place of its own.
            let this = this.inspect_err(|_| unsafe { *bad = first })?;
            // SAFETY: the client passes a list for this queue pair that is valid during the call.
            let mut wrs = unsafe { SendWrs::new(first, this.kind()) };
            // SAFETY: the core calls this as an operation of the queue pair's device.
            let result =
                unsafe { Self::with_device_of(qp, |_, data| T::post_send(data, this, &mut wrs)) };
            // SAFETY: the client passes a place of its own.
            result.inspect_err(|_| unsafe { *bad = wrs.taken() })?;
            Ok(0)
        })
    }

    unsafe extern "C" fn post_recv(
        qp: *mut bindings::ib_qp,
        first: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: the client passes its handle of a queue pair of this device, which is alive.
        if let Err(error) = unsafe { Qp::<T>::from_handle(qp) } {
            // SAFETY: the client passes a place of its own.
            unsafe { *bad = first };
            return error.to_errno();
        }
        // SAFETY: the handle refers to a queue pair that `create_qp` has set up, as was checked
        // above. The client passes the other two pointers.
        unsafe { Self::receive(qp, first, bad, T::post_recv) }
    }

    /// Posts receives to a queue by `post`, as a client asks.
    ///
    /// # Safety
    ///
    /// As for [`Self::on`], with a list that is valid during the call, and a place for the first
    /// request that is not taken.
    pub(super) unsafe fn receive<O: Wrapper<Core: CoreObject>>(
        queue: *mut O::Core,
        first: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
        post: impl FnOnce(&T::Data<'_>, &O, &mut RecvWrs<'_>) -> Result,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the caller passes a list that is valid during the call.
            let mut wrs = unsafe { RecvWrs::new(first) };
            // SAFETY: the caller promises what the callee asks for.
            let result = unsafe { Self::on(queue, |data, _, queue| post(data, queue, &mut wrs)) };
            // SAFETY: the caller passes a place for this.
            result.inspect_err(|_| unsafe { *bad = wrs.taken() })?;
            Ok(0)
        })
    }
}
