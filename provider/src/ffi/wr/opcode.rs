// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The calls that begin a request, one for each operation.

use rustix::io::Errno;
use vrnic_abi::sq::{AtomicSeg, BindMwSeg, MemFlags, Opcode};
use vrnic_queues::request::{Data, Payload, SendHeader};

use super::super::bindings as c;
use super::super::mw;
use super::super::request::{check_flags, errno, send_flags};
use super::state;

/// Returns the header of a request, with the fields that the program has stored in the queue pair.
///
/// # Safety
/// The requirements of [`state`] apply.
#[inline]
unsafe fn header(qp: *mut c::ibv_qp_ex, opcode: Opcode) -> SendHeader {
    // SAFETY: live, and these fields are of the thread that builds.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    if let Err(error) = check_flags(flags)
        // SAFETY: by the caller's promise.
        && let Some(state) = unsafe { state(qp) }
    {
        state.fail(errno(error));
    }
    SendHeader { wr_id, opcode, flags: send_flags(flags), imm: [0; 4], raddr: 0, rkey: 0 }
}

/// Begins a request that needs data.
///
/// # Safety
/// The requirements of [`state`] apply.
#[inline]
unsafe fn begin(qp: *mut c::ibv_qp_ex, header: SendHeader, operands: Option<AtomicSeg>) {
    // SAFETY: by the caller's promise.
    if let Some(state) = unsafe { state(qp) } {
        state.begin(header, operands);
    }
}

pub(super) unsafe extern "C" fn send(qp: *mut c::ibv_qp_ex) {
    // SAFETY: `wr_start` comes first, here and in what follows.
    unsafe { begin(qp, header(qp, Opcode::Send), None) }
}

pub(super) unsafe extern "C" fn send_imm(qp: *mut c::ibv_qp_ex, imm: u32) {
    // SAFETY: as for `send`. In network order, which we keep.
    unsafe { begin(qp, SendHeader { imm: imm.to_ne_bytes(), ..header(qp, Opcode::SendImm) }, None) }
}

pub(super) unsafe extern "C" fn send_inv(qp: *mut c::ibv_qp_ex, rkey: u32) {
    // SAFETY: as for `send`.
    unsafe { begin(qp, SendHeader { rkey, ..header(qp, Opcode::SendInv) }, None) }
}

pub(super) unsafe extern "C" fn write(qp: *mut c::ibv_qp_ex, rkey: u32, raddr: u64) {
    // SAFETY: as for `send`.
    unsafe { begin(qp, SendHeader { raddr, rkey, ..header(qp, Opcode::Write) }, None) }
}

pub(super) unsafe extern "C" fn write_imm(qp: *mut c::ibv_qp_ex, rkey: u32, raddr: u64, imm: u32) {
    let imm = imm.to_ne_bytes();
    // SAFETY: as for `send`.
    unsafe { begin(qp, SendHeader { imm, raddr, rkey, ..header(qp, Opcode::WriteImm) }, None) }
}

pub(super) unsafe extern "C" fn read(qp: *mut c::ibv_qp_ex, rkey: u32, raddr: u64) {
    // SAFETY: as for `send`.
    unsafe { begin(qp, SendHeader { raddr, rkey, ..header(qp, Opcode::Read) }, None) }
}

pub(super) unsafe extern "C" fn cmp_swp(
    qp: *mut c::ibv_qp_ex,
    rkey: u32,
    raddr: u64,
    compare: u64,
    swap: u64,
) {
    let operands = AtomicSeg { swap_add: swap.into(), compare: compare.into() };
    // SAFETY: as for `send`.
    unsafe { begin(qp, SendHeader { raddr, rkey, ..header(qp, Opcode::CmpSwp) }, Some(operands)) }
}

pub(super) unsafe extern "C" fn fetch_add(qp: *mut c::ibv_qp_ex, rkey: u32, raddr: u64, add: u64) {
    let operands = AtomicSeg { swap_add: add.into(), compare: 0.into() };
    // SAFETY: as for `send`.
    unsafe { begin(qp, SendHeader { raddr, rkey, ..header(qp, Opcode::FetchAdd) }, Some(operands)) }
}

pub(super) unsafe extern "C" fn local_inv(qp: *mut c::ibv_qp_ex, rkey: u32) {
    // SAFETY: as for `send`.
    let header = SendHeader { rkey, ..unsafe { header(qp, Opcode::LocalInv) } };
    // SAFETY: as for `send`.
    if let Some(state) = unsafe { state(qp) } {
        state.finish();
        state.push(header, Payload::Plain(Data::Segments(&[])));
    }
}

pub(super) unsafe extern "C" fn bind_mw(
    qp: *mut c::ibv_qp_ex,
    _window: *mut c::ibv_mw,
    rkey: u32,
    info: *const c::ibv_mw_bind_info,
) {
    // SAFETY: as for `send`.
    let SendHeader { wr_id, flags, .. } = unsafe { header(qp, Opcode::BindMw) };
    // SAFETY: as for `send`.
    let Some(state) = (unsafe { state(qp) }) else { return };
    // SAFETY: valid by libibverbs' promise, with a live region.
    let bound: Result<(SendHeader, BindMwSeg), Errno> =
        unsafe { mw::binding(wr_id, flags, rkey, &*info, MemFlags::empty()) };
    state.finish();
    match bound {
        Ok((header, segment)) => state.push(header, Payload::Bind(segment)),
        Err(error) => state.fail(error),
    }
}
