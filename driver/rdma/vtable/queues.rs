// SPDX-License-Identifier: GPL-2.0
//! Trampolines of completion queues and queue pairs.

use core::mem::MaybeUninit;

use super::*;
use crate::rdma::{
    cq::{self, Cq, CqInit, Moderation, Notify},
    event::{CqLink, QpLink},
    qp::{self, Qp, QpInit},
    qp_attr::{QpAttr, QpAttrMask},
    udata::User,
    wc::Completions,
    wr::{RecvWrs, SendWrs},
};

impl<T: Operations> VTable<T> {
    /// Fills in this file's operations.
    pub(super) fn fill_queues(ops: &mut bindings::ib_device_ops) {
        ops.size_ib_cq = Cq::<T>::SIZE;
        ops.create_cq = Some(Self::create_cq);
        ops.modify_cq = Some(Self::modify_cq);
        ops.resize_user_cq = Some(Self::resize_user_cq);
        ops.destroy_cq = Some(Self::destroy_cq);
        ops.poll_cq = Some(Self::poll_cq);
        ops.req_notify_cq = Some(Self::req_notify_cq);

        ops.size_ib_qp = Qp::<T>::SIZE;
        ops.create_qp = Some(Self::create_qp);
        ops.modify_qp = Some(Self::modify_qp);
        ops.query_qp = Some(Self::query_qp);
        ops.destroy_qp = Some(Self::destroy_qp);
        ops.post_send = Some(Self::post_send);
        ops.post_recv = Some(Self::post_recv);
    }

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
                // SAFETY: the core's pointer, of which only a field's address is made.
                unsafe { bindings::rdma_helper_bundle_udata(bundle) }
            };
            // SAFETY: a command of an open context.
            let user = unsafe { User::from_raw(udata) };
            // SAFETY: revoked here on failure, else by `destroy_cq`.
            let link = unsafe { CqLink::new(raw) }?;
            // SAFETY: the core's pointers.
            let (attr, device) = unsafe { (&*attr, (*cq).device) };
            let mut init = CqInit {
                entries: attr.cqe,
                comp_vector: attr.comp_vector,
                flags: attr.flags,
                link: &link,
                granted: attr.cqe,
            };
            // SAFETY: called by the core for this device.
            let created = unsafe {
                Self::with(device, |device, data| {
                    T::create_cq(data, device, &mut init, user.as_ref())
                })
            };
            let granted = c_int::try_from(init.granted).unwrap_or(c_int::MAX);
            let driver = created.inspect_err(|_| link.revoke())?;
            // SAFETY: allocated by the core with the size in the table, and still private.
            unsafe {
                (*cq).cqe = granted;
                Object::init(cq, cq::Parts::<T> { link, driver });
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn modify_cq(cq: *mut bindings::ib_cq, count: u16, period: u16) -> c_int {
        from_result(|| {
            // SAFETY: a live completion queue of this driver, set up by `create_cq`.
            unsafe {
                let this = Cq::<T>::from_raw(cq);
                let moderation = Moderation { count, period };
                Self::with((*cq).device, |_, data| T::modify_cq(data, this, moderation))?;
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn resize_user_cq(
        cq: *mut bindings::ib_cq,
        entries: c_uint,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: a command of an open context.
            let user = unsafe { User::from_raw(udata) }.ok_or(EINVAL)?;
            // SAFETY: a live completion queue of this driver, set up by `create_cq`.
            let granted = unsafe {
                let this = Cq::<T>::from_raw(cq);
                Self::with((*cq).device, |device, data| {
                    T::resize_cq(data, device, this, entries, &user)
                })
            }?;
            let granted = c_int::try_from(granted)?;
            // SAFETY: live. A number for people, which other resizes may write meanwhile.
            unsafe { (&raw mut (*cq).cqe).write_volatile(granted) };
            Ok(0)
        })
    }

    unsafe extern "C" fn destroy_cq(
        cq: *mut bindings::ib_cq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: set up by `create_cq`; nobody uses it after success.
            unsafe {
                let this = Cq::<T>::from_raw(cq);
                Self::with((*cq).device, |_, data| T::destroy_cq(data, this))?;
                this.link().revoke();
                Object::<_, cq::Parts<T>>::destroy(cq);
            }
            Ok(0)
        })
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
            // SAFETY: the client gives room for `count` completions.
            let slots = unsafe {
                core::slice::from_raw_parts_mut(out.cast::<MaybeUninit<bindings::ib_wc>>(), count)
            };
            let mut completions = Completions::new(slots);
            // SAFETY: a live completion queue of this driver.
            unsafe {
                Self::with((*cq).device, |_, data| {
                    T::poll_cq(data, Cq::from_raw(cq), &mut completions)
                })
            }?;
            Ok(c_int::try_from(completions.len())?)
        })
    }

    unsafe extern "C" fn req_notify_cq(
        cq: *mut bindings::ib_cq,
        flags: bindings::ib_cq_notify_flags,
    ) -> c_int {
        from_result(|| {
            let notify = Notify::from_raw(flags);
            // SAFETY: a live completion queue of this driver.
            let missed = unsafe {
                let this = Cq::<T>::from_raw(cq);
                // First: the event may come before the call below returns.
                this.link().arm();
                Self::with((*cq).device, |_, data| T::req_notify_cq(data, this, notify))
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
            // SAFETY: a command of an open context, or null.
            let user = unsafe { User::from_raw(udata) };
            // SAFETY: revoked here on failure, else by `destroy_qp`.
            let link = unsafe { QpLink::new(raw) }?;
            // SAFETY: the core's pointers; the completion queues, the shared receive queue and the XRC
            // domain are this device's.
            let created = unsafe {
                let mut init = QpInit::new(&mut *attr, &link);
                Self::with((*qp).device, |device, data| {
                    let pd = (*qp).pd;
                    let pd = (!pd.is_null()).then(|| Pd::<T>::from_raw(pd));
                    T::create_qp(data, device, pd, &mut init, user.as_ref())
                })
            };
            let new = created.inspect_err(|_| link.revoke())?;
            // SAFETY: allocated by the core with the size in the table, and still private.
            unsafe {
                (*qp).qp_num = new.number;
                Object::init(qp, qp::Parts::<T> { link, driver: new.driver });
            }
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
            // SAFETY: the core passes the command's payload, or null.
            if let Some(udata) = unsafe { Udata::from_raw(udata) } {
                udata.none()?;
            }
            let mask = QpAttrMask::from_raw(mask)?;
            // SAFETY: a live queue pair of this driver; the attributes are the core's.
            unsafe {
                Self::with((*qp).device, |_, data| {
                    T::modify_qp(data, Qp::from_raw(qp), QpAttr::from_raw(attr), mask)
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
            // SAFETY: a live queue pair of this driver.
            unsafe {
                let this = Qp::<T>::from_raw(qp);
                let query = Self::with((*qp).device, |_, data| T::query_qp(data, this))?;
                // SAFETY: the outputs are the core's, zeroed.
                query.write_to(&mut *attr, &mut *init);
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn destroy_qp(
        qp: *mut bindings::ib_qp,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the command or the clean-up of an open context, or null.
            let user = unsafe { User::from_raw(udata) };
            // SAFETY: set up by `create_qp`; nobody uses it after success.
            unsafe {
                let this = Qp::<T>::from_raw(qp);
                Self::with((*qp).device, |_, data| T::destroy_qp(data, this, user.as_ref()))?;
                this.link().revoke();
                Object::<_, qp::Parts<T>>::destroy(qp);
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn post_send(
        qp: *mut bindings::ib_qp,
        first: *const bindings::ib_send_wr,
        bad: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the client's list is valid during the call, and meant for this queue pair.
            let mut wrs = unsafe { SendWrs::new(first, (*qp).qp_type) };
            // SAFETY: a live queue pair of this driver; `bad` is the client's.
            unsafe {
                Self::with((*qp).device, |_, data| T::post_send(data, Qp::from_raw(qp), &mut wrs))
                    .inspect_err(|_| *bad = wrs.taken())?;
            }
            Ok(0)
        })
    }

    unsafe extern "C" fn post_recv(
        qp: *mut bindings::ib_qp,
        first: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the client's list is valid during the call.
            let mut wrs = unsafe { RecvWrs::new(first) };
            // SAFETY: a live queue pair of this driver; `bad` is the client's.
            unsafe {
                Self::with((*qp).device, |_, data| T::post_recv(data, Qp::from_raw(qp), &mut wrs))
                    .inspect_err(|_| *bad = wrs.taken())?;
            }
            Ok(0)
        })
    }
}
