// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Flows, by which queue pairs of raw packets select the frames that they receive. The kernel
//! translates them.

use std::ffi::c_int;
use std::ptr;

use rustix::io::Errno;
use vrnic_abi::uverbs::Features;

use super::bindings as c;
use super::context::Context;
use super::object::Object;
use super::{check, pointer};

type Flow = Object<c::ibv_flow, ()>;

/// Implements `create_flow`.
pub(super) unsafe extern "C" fn create(
    qp: *mut c::ibv_qp,
    attr: *mut c::ibv_flow_attr,
) -> *mut c::ibv_flow {
    // SAFETY: the arguments are libibverbs' own.
    pointer(unsafe { try_create(qp, attr) })
}

/// # Safety
/// `qp` must be live, and `attr` valid.
unsafe fn try_create(
    qp: *mut c::ibv_qp,
    attr: *mut c::ibv_flow_attr,
) -> Result<*mut c::ibv_flow, Errno> {
    // SAFETY: the caller passes a live queue pair of this plugin, whose context is live too.
    unsafe { Context::of((*qp).context) }?.needs(Features::RAW_PACKET)?;
    let flow = Flow::begin()?;
    // SAFETY: the objects are live, and `flow` is ours; there is no payload of the plugin.
    check(unsafe { c::ibv_cmd_create_flow(qp, flow.base(), attr, ptr::null_mut(), 0) })?;
    Ok(flow.complete_bare())
}

/// Implements `destroy_flow`.
pub(super) unsafe extern "C" fn destroy(flow: *mut c::ibv_flow) -> c_int {
    // SAFETY: made by `create`, live, and given up by the caller if this succeeds.
    unsafe { Flow::destroy(flow, c::ibv_cmd_destroy_flow) }
}
