// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Direct verbs of the states of TCP connections, and their ends (`vrnicdv.h`, docs/streams.md).

use std::ffi::c_int;

use rustix::io::Errno;
use vrnic_abi::connection::{Closed, Stage};
use vrnic_abi::qp::State;
use vrnic_abi::uverbs::{ConnectionOp, ConnectionReq, ConnectionResp, Features, NO_FD};

use crate::ffi::bindings as c;
use crate::ffi::context::Context;
use crate::ffi::dv::check_context;
use crate::ffi::{ioctl, qp, status};

/// Implements `vrnicdv_query_connection`.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs, and `connection` writable.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_query_connection(
    qp: *mut c::ibv_qp,
    connection: *mut c::vrnicdv_connection,
) -> c_int {
    // SAFETY: the caller passes a live queue pair.
    let found = unsafe { run(qp, request(ConnectionOp::Query)) };
    status(found.map(|now| {
        let gone = now.stage == Stage::Gone as u8;
        let released = if gone { c::VRNICDV_CONNECTION_RELEASED } else { 0 };
        let found = c::vrnicdv_connection {
            status: now.state.into(),
            events: u32::from(now.events.get()) | released,
            ird: now.ird.get().into(),
            ord: now.ord.get().into(),
        };
        // SAFETY: the caller passes a writable struct.
        unsafe { connection.write(found) };
    }))
}

/// Implements `vrnicdv_watch_connection`.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_watch_connection(
    qp: *mut c::ibv_qp,
    eventfd: c_int,
) -> c_int {
    let fd = u32::try_from(eventfd).unwrap_or(NO_FD);
    let request = ConnectionReq { fd: fd.into(), ..request(ConnectionOp::Watch) };
    // SAFETY: the caller passes a live queue pair.
    status(unsafe { run(qp, request) }.map(|_| ()))
}

/// Implements `vrnicdv_disconnect`.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_disconnect(
    qp: *mut c::ibv_qp,
    abort: bool,
    time_limit_ms: u32,
) -> c_int {
    // SAFETY: the caller passes a live queue pair.
    status(unsafe { disconnect(qp, abort, time_limit_ms) })
}

/// Implements `vrnicdv_terminate_offload`.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_terminate_offload(qp: *mut c::ibv_qp) -> c_int {
    // SAFETY: the caller passes a live queue pair.
    let released = unsafe { run(qp, request(ConnectionOp::Release)) };
    status(released.and_then(|answer| match Closed::from_raw(answer.closed) {
        Some(Closed::Done) => Ok(()),
        _ => Err(Errno::INPROGRESS),
    }))
}

/// Implements `vrnicdv_make_idle`.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_make_idle(
    qp: *mut c::ibv_qp,
    give_up: bool,
) -> c_int {
    // SAFETY: the caller passes a live queue pair.
    status(unsafe { make_idle(qp, give_up) })
}

/// # Safety
/// The requirements of [`vrnicdv_disconnect`] apply.
unsafe fn disconnect(qp: *mut c::ibv_qp, abort: bool, limit: u32) -> Result<(), Errno> {
    let op = if abort { ConnectionOp::Abort } else { ConnectionOp::Close };
    let time_limit_ms = if abort { 0 } else { limit }.into();
    // SAFETY: the caller passes a live queue pair.
    unsafe { run(qp, ConnectionReq { time_limit_ms, ..request(op) }) }?;
    // SAFETY: the caller passes a live queue pair, and `run` has checked that it is one of this
    // plugin.
    if let Some(queues) = unsafe { qp::own(qp) }.filter(|_| abort) {
        queues.entered(State::Err);
    }
    Ok(())
}

/// # Safety
/// The requirements of [`vrnicdv_make_idle`] apply.
unsafe fn make_idle(qp: *mut c::ibv_qp, give_up: bool) -> Result<(), Errno> {
    let op = if give_up { ConnectionOp::IdleNow } else { ConnectionOp::Idle };
    // SAFETY: the caller passes a live queue pair.
    let answer = unsafe { run(qp, request(op)) }?;
    match Closed::from_raw(answer.closed) {
        Some(Closed::Done) => {}
        Some(Closed::Aborted) => return Err(Errno::CANCELED),
        Some(Closed::Pending) | None => return Err(Errno::AGAIN),
    }
    // SAFETY: the caller passes a live queue pair, and `run` has checked that it is one of this
    // plugin.
    if let Some(queues) = unsafe { qp::own(qp) } {
        queues.entered(State::Reset);
        queues.entered(State::Init);
    }
    Ok(())
}

fn request(op: ConnectionOp) -> ConnectionReq {
    ConnectionReq { op: op as u8, ..ConnectionReq::default() }
}

/// Carries out a request about the connection of a queue pair.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs.
unsafe fn run(qp: *mut c::ibv_qp, request: ConnectionReq) -> Result<ConnectionResp, Errno> {
    // SAFETY: the caller passes a live queue pair, whose context is live too.
    unsafe { check_context((*qp).context) }?;
    // SAFETY: the caller passes a live queue pair, whose context is live, and one of this plugin.
    unsafe { Context::of((*qp).context) }?.needs(Features::CONNECTION)?;
    // SAFETY: the caller passes a live queue pair.
    unsafe { ioctl::connection(qp, &request) }
}
