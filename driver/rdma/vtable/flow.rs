// SPDX-License-Identifier: GPL-2.0
//! Trampolines of flows.

use super::*;
use crate::rdma::{
    queues::flow::{Flow, FlowAttr},
    queues::qp::Qp,
};

impl<T: Operations> VTable<T> {
    /// The operations of this file.
    pub(super) const FLOWS: bindings::ib_device_ops = bindings::ib_device_ops {
        create_flow: optional!(HAS_CREATE_FLOW => create_flow),
        destroy_flow: optional!(HAS_CREATE_FLOW => destroy_flow),
        ..EMPTY
    };

    unsafe extern "C" fn create_flow(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_flow_attr,
        udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_flow {
        let create = || {
            // SAFETY: the core passes the payload of the command.
            unsafe { Udata::expect_none(udata) }?;
            let attr = NonNull::new(attr).ok_or(EINVAL)?;
            // SAFETY: the core passes attributes of its own with as many bytes as their size says,
            // which it has zeroed before it filled them in (`ib_uverbs_ex_create_flow`).
            let attr = unsafe { FlowAttr::from_raw(attr) }?;
            // SAFETY: the core passes a datagram or raw queue pair that `create_qp` has set up.
            unsafe {
                Self::on(qp, |data, _, qp: &Qp<T>| {
                    Flow::<T>::allocate(|| T::create_flow(data, qp, &attr))
                })
            }
        };
        create().unwrap_or_else(|error: Error| error.to_ptr())
    }

    unsafe extern "C" fn destroy_flow(flow: *mut bindings::ib_flow) -> c_int {
        // SAFETY: the core passes what `create_flow` has made, whose device it has set.
        let result =
            unsafe { Self::destroy(flow, |data, flow: &Flow<T>| T::destroy_flow(data, flow)) };
        if result == 0 {
            // SAFETY: `create_flow` has made it by `allocate`, the driver's part was dropped above,
            // and the core does not use it any more.
            unsafe { Flow::<T>::free(flow) };
        }
        result
    }
}
