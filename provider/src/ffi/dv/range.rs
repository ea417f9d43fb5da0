// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Direct verbs of address ranges (`vrnicdv.h`, docs/vrnicdv.md).

use std::ffi::c_int;

use rustix::io::Errno;
use vrnic_abi::Key;
use vrnic_abi::direct::{Direction, MAPPED_LEN_MAX, Notice, PacketMemory, RANGE_LEN};
use vrnic_abi::sq::Opcode;
use vrnic_abi::uverbs::{Features, RangeOp, RangeReq, RangeResp, range_mmap};
use vrnic_queues::mapping::Mapping;
use vrnic_queues::request::{Data, Payload, SendHeader};

use crate::ffi::bindings as c;
use crate::ffi::context::Context;
use crate::ffi::object::Object;
use crate::ffi::{ioctl, pointer, qp, requests::request, status};

type Range = Object<c::vrnicdv_range, Mapping>;

/// The header has the same limits as the adapter.
const _: () = assert!(RANGE_LEN == 4096 && MAPPED_LEN_MAX == 16 << 20);
/// The header has the key of ranges.
const _: () = assert!(Key::WINDOW.get() == c::VRNICDV_RANGE_LKEY);

/// Implements `vrnicdv_alloc_range`.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_alloc_range(
    qp: *mut c::ibv_qp,
) -> *mut c::vrnicdv_range {
    // SAFETY: the caller passes a live queue pair of libibverbs.
    pointer(unsafe { alloc(qp) })
}

/// # Safety
/// The requirements of [`vrnicdv_alloc_range`] apply.
unsafe fn alloc(qp: *mut c::ibv_qp) -> Result<*mut c::vrnicdv_range, Errno> {
    // SAFETY: the caller passes a live queue pair, whose context is live too.
    unsafe { crate::ffi::dv::check_context((*qp).context) }?;
    // SAFETY: the caller passes a live queue pair, whose context is live, and one of this plugin.
    let context = unsafe { Context::of((*qp).context) }?;
    context.needs(Features::RANGES)?;
    let range = Range::begin()?;
    // SAFETY: the caller passes a live queue pair of libibverbs.
    let number = unsafe { ask(qp, None, RangeOp::Get, RangeReq::default()) }?.range;
    let mapping = range_mmap(number).ok_or(Errno::IO).and_then(|at| context.map(at, RANGE_LEN));
    // A child would keep the range from others.
    let mapping = mapping.and_then(|mapping| mapping.keep_from_children().map(|()| mapping));
    let mapping = mapping.inspect_err(|_| {
        let request = RangeReq { range: number, ..RangeReq::default() };
        // SAFETY: the caller passes a live queue pair. The range is free when that goes, at the
        // latest.
        let _free = unsafe { ask(qp, None, RangeOp::Put, request) };
    })?;
    // SAFETY: ours, and the program does not know it yet.
    let public = unsafe { &mut *range.base() };
    public.qp = qp;
    public.number = number.get();
    public.window = mapping.bytes(0, mapping.len()).ok_or(Errno::IO)?.cast();
    Ok(range.complete(mapping))
}

/// Implements `vrnicdv_free_range`.
///
/// # Safety
/// `range` must come from [`vrnicdv_alloc_range`] and never be used again if this succeeds; its
/// queue pair must be live.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_free_range(range: *mut c::vrnicdv_range) -> c_int {
    // SAFETY: the caller passes a live range, whose queue pair is live.
    let put = unsafe { run(range, RangeOp::Put) };
    if put.is_ok() {
        // SAFETY: the caller passes a range that `vrnicdv_alloc_range` has made, and does not use
        // it again after success.
        unsafe { Range::free(range) };
    }
    status(put.map(drop))
}

/// Implements `vrnicdv_arm_range`.
///
/// # Safety
/// `range`, its queue pair and the device memory must be live.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_arm_range(
    range: *mut c::vrnicdv_range,
    transfer: *const c::vrnicdv_transfer,
) -> c_int {
    // SAFETY: the caller passes a live range, whose queue pair is live, and a valid transfer with
    // live device memory.
    status(unsafe { arm(&*range, &*transfer) })
}

/// # Safety
/// The requirements of [`vrnicdv_arm_range`] apply.
unsafe fn arm(range: &c::vrnicdv_range, transfer: &c::vrnicdv_transfer) -> Result<(), Errno> {
    const KNOWN: u32 =
        c::VRNICDV_TRANSFER_WRITE | c::VRNICDV_TRANSFER_MAPPED | c::VRNICDV_TRANSFER_BLOCK;
    let by_block = transfer.flags & c::VRNICDV_TRANSFER_BLOCK != 0;
    if transfer.flags & !KNOWN != 0 || transfer.dm.is_null() != by_block {
        return Err(Errno::INVAL);
    }
    if by_block {
        // SAFETY: the caller passes a range whose queue pair is live, as is its context.
        unsafe { Context::of((*range.qp).context) }?.needs(Features::RANGE_BLOCKS)?;
    }
    let write = transfer.flags & c::VRNICDV_TRANSFER_WRITE != 0;
    let mapped = transfer.flags & c::VRNICDV_TRANSFER_MAPPED != 0;
    let request = RangeReq {
        range: range.number.into(),
        // CAST: the numbers of small enums.
        direction: if write { Direction::Write } else { Direction::Read } as u8,
        notice: if mapped { Notice::Mapped } else { Notice::Counted } as u8,
        // CAST: the numbers of a small enum.
        packet_memory: if by_block { PacketMemory::FreeBlock } else { PacketMemory::Address } as u8,
        offset: transfer.offset.into(),
        length: transfer.length.into(),
        time_limit_ms: transfer.time_limit_ms.into(),
        ..RangeReq::default()
    };
    let memory = (!by_block).then_some(transfer.dm);
    // SAFETY: the caller passes a range whose queue pair is live, and live device memory.
    unsafe { ask(range.qp, memory, RangeOp::Arm, request) }.map(drop)
}

/// Implements `vrnicdv_query_range`.
///
/// # Safety
/// `range` and its queue pair must be live, `state` valid.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_query_range(
    range: *mut c::vrnicdv_range,
    state: *mut c::vrnicdv_range_state,
) -> c_int {
    // SAFETY: the caller passes a live range, whose queue pair is live.
    status(unsafe { run(range, RangeOp::Query) }.map(|found| {
        let found = c::vrnicdv_range_state {
            count: found.count.get(),
            pci_valid: found.pci_valid,
            adapter_valid: found.adapter_valid,
            failure: found.failure,
            ..c::vrnicdv_range_state::default()
        };
        // SAFETY: the caller passes room for the state.
        unsafe { state.write(found) };
    }))
}

/// Implements `vrnicdv_range_done`.
///
/// # Safety
/// `range` and its queue pair must be live.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_range_done(range: *mut c::vrnicdv_range) -> c_int {
    // SAFETY: the caller passes a live range, whose queue pair is live.
    status(unsafe { run(range, RangeOp::Done) }.map(drop))
}

/// Implements `vrnicdv_post_transfer`.
///
/// # Safety
/// `range` and its queue pair must be live.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_post_transfer(
    range: *mut c::vrnicdv_range,
    wr_id: u64,
    send_flags: u32,
) -> c_int {
    // SAFETY: the caller passes a live range, whose queue pair is live.
    status(unsafe { post(&*range, wr_id, send_flags) })
}

/// # Safety
/// The requirements of [`vrnicdv_post_transfer`] apply.
unsafe fn post(range: &c::vrnicdv_range, wr_id: u64, send_flags: u32) -> Result<(), Errno> {
    if send_flags & !(c::IBV_SEND_SIGNALED | c::IBV_SEND_FENCE) != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller passes a range whose queue pair is live, and one of this plugin.
    let queues = unsafe { qp::own(range.qp) }.ok_or(Errno::INVAL)?;
    let flags = request::send_flags(send_flags);
    let rkey = range.number;
    let header = SendHeader { wr_id, opcode: Opcode::Transfer, flags, imm: [0; 4], raddr: 0, rkey };
    let payload = Payload::Plain(Data::Segments(&[]));
    queues.sends().and_then(|mut batch| batch.push(header, payload)).map_err(request::errno)
}

/// Carries out an operation that needs no more than the range.
///
/// # Safety
/// `range` and its queue pair must be live.
unsafe fn run(range: *mut c::vrnicdv_range, op: RangeOp) -> Result<RangeResp, Errno> {
    // SAFETY: the caller passes a live range.
    let range = unsafe { &*range };
    let request = RangeReq { range: range.number.into(), ..RangeReq::default() };
    // SAFETY: the caller passes a range whose queue pair is live.
    unsafe { ask(range.qp, None, op, request) }
}

/// # Safety
/// The queue pair must be live, and so must device memory if it is named.
unsafe fn ask(
    qp: *mut c::ibv_qp,
    memory: Option<*mut c::ibv_dm>,
    op: RangeOp,
    request: RangeReq,
) -> Result<RangeResp, Errno> {
    // CAST: the number of a small enum.
    let request = RangeReq { op: op as u8, ..request };
    // SAFETY: the caller passes a live queue pair, and device memory that is live if there is any.
    unsafe { ioctl::range(qp, memory, &request) }
}
