// SPDX-License-Identifier: GPL-2.0
//! Trampolines of work queues and of tables of them.

use super::*;
use crate::rdma::{
    queues::wq::{Wq, WqChange, WqInit, WqState},
    user::ucontext::User,
};

impl<T: Operations> VTable<T> {
    /// The operations of this file.
    pub(super) const WORK_QUEUES: bindings::ib_device_ops = bindings::ib_device_ops {
        create_wq: optional!(HAS_CREATE_WQ => create_wq),
        modify_wq: optional!(HAS_CREATE_WQ => modify_wq),
        destroy_wq: optional!(HAS_CREATE_WQ => destroy_wq),
        size_ib_rwq_ind_table: size_of::<bindings::ib_rwq_ind_table>(),
        create_rwq_ind_table: optional!(HAS_CREATE_WQ => create_rwq_ind_table),
        destroy_rwq_ind_table: optional!(HAS_CREATE_WQ => destroy_rwq_ind_table),
        ..EMPTY
    };

    unsafe extern "C" fn create_wq(
        pd: *mut bindings::ib_pd,
        attr: *mut bindings::ib_wq_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_wq {
        let create = || {
            // SAFETY: the core passes the payload of a command of an open context.
            let user = unsafe { User::from_raw(udata) }.ok_or(EINVAL)?;
            // SAFETY: the core passes attributes of its own.
            let attr = unsafe { &mut *attr };
            // SAFETY: the completion queue in the attributes is this device's.
            let mut init = unsafe { WqInit::new(attr) };
            let mut number = 0;
            // SAFETY: the core passes a domain that `alloc_pd` has set up.
            let wq = unsafe {
                Self::on(pd, |data, device, pd: &Pd<T>| {
                    Wq::<T>::allocate(|| {
                        let new = T::create_wq(data, device, pd, &mut init, &user)?;
                        number = new.number;
                        Ok(new.driver)
                    })
                })
            }?;
            // SAFETY: just made, and only this call knows it.
            unsafe { (*wq).wq_num = number };
            Ok(wq)
        };
        create().unwrap_or_else(|error: Error| error.to_ptr())
    }

    unsafe extern "C" fn modify_wq(
        wq: *mut bindings::ib_wq,
        attr: *mut bindings::ib_wq_attr,
        mask: u32,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the payload of the command.
            unsafe { Udata::expect_none(udata) }?;
            // SAFETY: the core passes attributes that are constant during the call.
            let change = WqChange::from_raw(unsafe { &*attr }, mask)?;
            // SAFETY: the work queue is valid; only the field's address is made.
            let state = unsafe { &raw mut (*wq).state };
            let done = |to: WqState| {
                // CAST: the enum's values are those of `enum ib_wq_state`.
                let to = to as bindings::ib_wq_state;
                // SAFETY: the field is part of a valid work queue. The driver calls this for one
                // change at a time, and the core only reads the field.
                unsafe { state.write_volatile(to) };
            };
            // SAFETY: the core passes a work queue that `create_wq` has made.
            unsafe { Self::on(wq, |data, _, wq: &Wq<T>| T::modify_wq(data, wq, change, done)) }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn destroy_wq(
        wq: *mut bindings::ib_wq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: this destroys a work queue that `create_wq` has made.
        let result = unsafe { Self::destroy(wq, |data, wq: &Wq<T>| T::destroy_wq(data, wq)) };
        if result == 0 {
            // SAFETY: `create_wq` has made it by `allocate`, the driver's part was dropped above,
            // and the core does not use it any more.
            unsafe { Wq::<T>::free(wq) };
        }
        result
    }

    unsafe extern "C" fn create_rwq_ind_table(
        table: *mut bindings::ib_rwq_ind_table,
        attr: *mut bindings::ib_rwq_ind_table_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the payload of the command.
            unsafe { Udata::expect_none(udata) }?;
            // SAFETY: the core passes attributes of its own.
            let log_entries = unsafe { (*attr).log_ind_tbl_size };
            // SAFETY: the core passes a table whose device it has set.
            unsafe {
                Self::with_device_of(table, |_, data| T::create_wq_table(data, log_entries))
            }?;
            Ok(0)
        })
    }

    /// Does nothing: the device has no tables of its own, and the core frees its table.
    unsafe extern "C" fn destroy_rwq_ind_table(_table: *mut bindings::ib_rwq_ind_table) -> c_int {
        0
    }
}
