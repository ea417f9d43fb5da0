// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Direct verbs of marks (`vrnicdv.h`, docs/vrnicdv.md).

use std::ffi::c_int;

use rustix::io::Errno;
use vrnic_abi::direct::{Await, MARK_FAILED, MARKS};
use vrnic_abi::sq::Opcode;
use vrnic_abi::uverbs::Features;
use vrnic_queues::qp::QueuePair;
use vrnic_queues::request::{Data, Payload, SendHeader};

use crate::ffi::bindings as c;
use crate::ffi::context::Context;
use crate::ffi::{qp, requests::request, status};

/// The header has the same number of marks as the adapter.
const _: () = assert!(MARKS == 14);

/// Implements `vrnicdv_post_await`.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs, `wanted` valid.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_post_await(
    qp: *mut c::ibv_qp,
    wanted: *const c::vrnicdv_await,
) -> c_int {
    // SAFETY: the caller passes a live queue pair and a valid description.
    status(unsafe { post(qp, &*wanted) })
}

/// # Safety
/// The requirements of [`vrnicdv_post_await`] apply.
unsafe fn post(qp: *mut c::ibv_qp, wanted: &c::vrnicdv_await) -> Result<(), Errno> {
    let &c::vrnicdv_await { wr_id, send_flags, word, mark, time_limit_ms } = wanted;
    // SAFETY: the caller passes a live queue pair of libibverbs.
    let queues = unsafe { queues(qp) }?;
    let (raddr, rkey) = Await { word, mark, time_limit_ms }.fields();
    let known = send_flags & !(c::IBV_SEND_SIGNALED | c::IBV_SEND_FENCE) == 0;
    if !known || Await::from_fields(raddr, rkey).is_none() {
        return Err(Errno::INVAL);
    }
    let flags = request::send_flags(send_flags);
    let header = SendHeader { wr_id, opcode: Opcode::Await, flags, imm: [0; 4], raddr, rkey };
    let payload = Payload::Plain(Data::Segments(&[]));
    queues.sends().and_then(|mut batch| batch.push(header, payload)).map_err(request::errno)
}

/// Implements `vrnicdv_mark`.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_mark(
    qp: *mut c::ibv_qp,
    word: u32,
    mark: u32,
    failed: bool,
) -> c_int {
    // SAFETY: the caller passes a live queue pair of libibverbs.
    status(unsafe { queues(qp) }.and_then(|queues| {
        if mark == 0 || mark >= MARK_FAILED {
            return Err(Errno::INVAL);
        }
        let failed = if failed { MARK_FAILED } else { 0 };
        queues.mark(word, mark | failed).ok_or(Errno::INVAL)
    }))
}

/// Returns the queues of a queue pair whose adapter has AWAIT.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs.
unsafe fn queues<'a>(qp: *mut c::ibv_qp) -> Result<&'a QueuePair, Errno> {
    // SAFETY: the caller passes a live queue pair, whose context is live too.
    unsafe { crate::ffi::dv::check_context((*qp).context) }?;
    // SAFETY: the caller passes a live queue pair, whose context is live, and one of this plugin.
    unsafe { Context::of((*qp).context) }?.needs(Features::AWAIT)?;
    // SAFETY: the caller passes a live queue pair, which is one of this plugin.
    unsafe { qp::own(qp) }.ok_or(Errno::INVAL)
}
