// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The operations, and the calls that begin a request, one for each.

use std::ffi::c_void;

use rustix::io::Errno;
use vrnic_abi::qp::Type;
use vrnic_abi::sq::{AtomicSeg, BindMwSeg, FlushFlags, MemFlags, Opcode};
use vrnic_abi::uverbs::Features;
use vrnic_layouts::Layout;
use vrnic_queues::layout::WqeHeader;
use vrnic_queues::request::{Data, Payload, SendHeader};

use super::super::bindings as c;
use super::super::memory::mw;
use super::super::requests::raw;
use super::super::requests::request::{check_flags, check_raw_flags, errno, send_flags};
use super::{State, state};

/// Lists the operations: the opcode, the bit by which programs ask for it, its numbers in work
/// requests and in completions, the field of its function, the function.
macro_rules! operations {
    ($each:ident) => {
        $each! {
            Send: IBV_QP_EX_WITH_SEND,
                IBV_WR_SEND, IBV_WC_SEND, wr_send = send;
            SendImm: IBV_QP_EX_WITH_SEND_WITH_IMM,
                IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, wr_send_imm = send_imm;
            SendInv: IBV_QP_EX_WITH_SEND_WITH_INV,
                IBV_WR_SEND_WITH_INV, IBV_WC_SEND, wr_send_inv = send_inv;
            Write: IBV_QP_EX_WITH_RDMA_WRITE,
                IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, wr_rdma_write = write;
            WriteImm: IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
                IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, wr_rdma_write_imm = write_imm;
            Read: IBV_QP_EX_WITH_RDMA_READ,
                IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, wr_rdma_read = read;
            CmpSwp: IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
                IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, wr_atomic_cmp_swp = cmp_swp;
            FetchAdd: IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
                IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, wr_atomic_fetch_add = fetch_add;
            LocalInv: IBV_QP_EX_WITH_LOCAL_INV,
                IBV_WR_LOCAL_INV, IBV_WC_LOCAL_INV, wr_local_inv = local_inv;
            BindMw: IBV_QP_EX_WITH_BIND_MW,
                IBV_WR_BIND_MW, IBV_WC_BIND_MW, wr_bind_mw = bind_mw;
            Segment: IBV_QP_EX_WITH_TSO,
                IBV_WR_TSO, IBV_WC_TSO, wr_send_tso = send_tso;
            AtomicWrite: IBV_QP_EX_WITH_ATOMIC_WRITE,
                IBV_WR_ATOMIC_WRITE, IBV_WC_ATOMIC_WRITE, wr_atomic_write = atomic_write;
            Flush: IBV_QP_EX_WITH_FLUSH,
                IBV_WR_FLUSH, IBV_WC_FLUSH, wr_flush = flush;
        }
    };
}

/// Checks that the adapter's table has the numbers of libibverbs.
macro_rules! check_numbers {
    ($($opcode:ident: $bit:ident, $wr:ident, $wc:ident, $field:ident = $function:ident;)*) => {
        $(const _: () = {
            let info = Opcode::$opcode.info();
            assert!(matches!(info.wr_opcode, Some(c::$wr)));
            assert!(matches!(info.completion.wc_opcode(), Some(c::$wc)));
        };)*
    };
}
operations!(check_numbers);

/// Returns the operations that not every device and not every layout of `ibv_qp_ex` has, and that
/// are absent here.
pub(super) fn absent(layout: &Layout, features: Features) -> u32 {
    let device = features.contains(Features::FLUSH);
    let absent = |has: bool, bit| if device && has { 0 } else { bit };
    absent(layout.has_atomic_write(), c::IBV_QP_EX_WITH_ATOMIC_WRITE)
        | absent(layout.has_flush(), c::IBV_QP_EX_WITH_FLUSH)
}

/// Returns the operations that queue pairs of this type have.
pub(super) fn offered(kind: Type) -> u32 {
    macro_rules! bits {
        ($($opcode:ident: $bit:ident, $wr:ident, $wc:ident, $field:ident = $function:ident;)*) => {
            [$((c::$bit, Opcode::$opcode),)*]
        };
    }
    let offered =
        operations!(bits).into_iter().filter(|(_, opcode)| opcode.info().is_offered(kind));
    offered.fold(0, |bits, (bit, _)| bits | bit)
}

/// Sets the functions of these operations.
pub(super) fn set(qp: &mut c::ibv_qp_ex, operations: u32) {
    macro_rules! set {
        ($($opcode:ident: $bit:ident, $wr:ident, $wc:ident, $field:ident = $function:ident;)*) => {
            $(if operations & c::$bit != 0 {
                qp.$field = Some($function);
            })*
        };
    }
    operations!(set);
}

/// Begins a request: returns its header, with the fields that the program has stored in the queue
/// pair, and the state. Returns `None` if the queue pair is not of this plugin.
///
/// # Safety
/// The requirements of [`state`] apply.
#[inline]
unsafe fn begin<'a>(qp: *mut c::ibv_qp_ex, opcode: Opcode) -> Option<(SendHeader, &'a mut State)> {
    // SAFETY: the caller passes a live queue pair, whose send queue this thread has locked by
    // `wr_start`.
    let state = unsafe { state(qp) }?;
    // SAFETY: live, and these fields are of the thread that builds.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    let known = match state.wqe_header() {
        Some(WqeHeader::Raw) => check_raw_flags(flags),
        _ => check_flags(flags),
    };
    if let Err(error) = known {
        state.fail(errno(error));
    }
    let flags = send_flags(flags);
    Some((SendHeader { wr_id, opcode, flags, imm: [0; 4], raddr: 0, rkey: 0 }, state))
}

/// Defines the functions of requests that need data: the arguments, the opcode, the fields of the
/// header that the arguments set, and the operands of an atomic.
macro_rules! functions {
    ($(
        $function:ident($($argument:ident: $type:ty),*):
            $opcode:ident { $($field:ident $(: $value:expr)?),* } $operands:expr;
    )*) => {
        $(unsafe extern "C" fn $function(qp: *mut c::ibv_qp_ex, $($argument: $type),*) {
            // SAFETY: programs call this after `wr_start`, by which this thread has the lock of the
            // queue pair.
            if let Some((header, state)) = unsafe { begin(qp, Opcode::$opcode) } {
                state.begin(SendHeader { $($field $(: $value)?,)* ..header }, $operands);
            }
        })*
    };
}

// Immediate data is in network order, and stays so.
functions! {
    send(): Send {} None;
    send_imm(imm: u32): SendImm { imm: imm.to_ne_bytes() } None;
    send_inv(rkey: u32): SendInv { rkey } None;
    write(rkey: u32, raddr: u64): Write { raddr, rkey } None;
    write_imm(rkey: u32, raddr: u64, imm: u32):
        WriteImm { imm: imm.to_ne_bytes(), raddr, rkey } None;
    read(rkey: u32, raddr: u64): Read { raddr, rkey } None;
    cmp_swp(rkey: u32, raddr: u64, compare: u64, swap: u64):
        CmpSwp { raddr, rkey }
        Some(AtomicSeg { swap_add: swap.into(), compare: compare.into() });
    fetch_add(rkey: u32, raddr: u64, add: u64):
        FetchAdd { raddr, rkey }
        Some(AtomicSeg { swap_add: add.into(), compare: 0.into() });
}

unsafe extern "C" fn atomic_write(
    qp: *mut c::ibv_qp_ex,
    rkey: u32,
    raddr: u64,
    word: *const c_void,
) {
    // SAFETY: programs call this after `wr_start`, by which this thread has the lock of the queue
    // pair.
    if let Some((header, state)) = unsafe { begin(qp, Opcode::AtomicWrite) } {
        // SAFETY: 8 readable bytes of the caller, by libibverbs' promise; they may be unaligned.
        let bytes: [u8; 8] = unsafe { word.cast::<[u8; 8]>().read_unaligned() };
        state.begin(SendHeader { raddr, rkey, ..header }, None);
        state.set_inline(&[&bytes]);
    }
}

unsafe extern "C" fn flush(
    qp: *mut c::ibv_qp_ex,
    rkey: u32,
    raddr: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    // SAFETY: programs call this after `wr_start`, by which this thread has the lock of the queue
    // pair.
    if let Some((header, state)) = unsafe { begin(qp, Opcode::Flush) } {
        let Some(operands) = flush_operands(length, placement, level) else {
            state.finish();
            return state.fail(Errno::INVAL);
        };
        state.begin(SendHeader { raddr, rkey, ..header }, Some(operands));
        state.set_segments(&[]);
    }
}

/// Returns the operands of a FLUSH, or `None` if they are not valid.
fn flush_operands(length: usize, placement: u8, level: u8) -> Option<AtomicSeg> {
    const _: () = {
        assert!(FlushFlags::GLOBAL.bits() == c::IBV_FLUSH_GLOBAL as u64);
        assert!(FlushFlags::PERSISTENT.bits() == c::IBV_FLUSH_PERSISTENT as u64);
    };
    let known = FlushFlags::GLOBAL | FlushFlags::PERSISTENT;
    let placement = FlushFlags::from_bits(placement.into())?;
    if placement.is_empty() || !known.contains(placement) {
        return None;
    }
    let (region, length) = match u32::from(level) {
        c::IBV_FLUSH_RANGE => (FlushFlags::empty(), u32::try_from(length).ok()?),
        // The length has no meaning.
        c::IBV_FLUSH_MR => (FlushFlags::REGION, 0),
        _ => return None,
    };
    let swap_add = (placement | region).bits().into();
    Some(AtomicSeg { swap_add, compare: u64::from(length).into() })
}

unsafe extern "C" fn local_inv(qp: *mut c::ibv_qp_ex, rkey: u32) {
    // SAFETY: programs call this after `wr_start`, by which this thread has the lock of the queue
    // pair.
    if let Some((header, state)) = unsafe { begin(qp, Opcode::LocalInv) } {
        state.finish();
        state.push(SendHeader { rkey, ..header }, Payload::Plain(Data::Segments(&[])));
    }
}

unsafe extern "C" fn bind_mw(
    qp: *mut c::ibv_qp_ex,
    window: *mut c::ibv_mw,
    rkey: u32,
    info: *const c::ibv_mw_bind_info,
) {
    // SAFETY: programs call this after `wr_start`, by which this thread has the lock of the queue
    // pair.
    let Some((header, state)) = (unsafe { begin(qp, Opcode::BindMw) }) else { return };
    let SendHeader { wr_id, flags, .. } = header;
    // SAFETY: the window is live by libibverbs' promise.
    let rkey = unsafe { mw::chosen_key(window, rkey) };
    // SAFETY: valid by libibverbs' promise, with a live region.
    let bound: Result<(SendHeader, BindMwSeg), Errno> =
        unsafe { mw::binding(wr_id, flags, rkey, &*info, MemFlags::empty()) };
    state.finish();
    match bound {
        Ok((header, segment)) => state.push(header, Payload::Bind(segment)),
        Err(error) => state.fail(error),
    }
}

unsafe extern "C" fn send_tso(qp: *mut c::ibv_qp_ex, headers: *mut c_void, length: u16, mss: u16) {
    // SAFETY: programs call this after `wr_start`, by which this thread has the lock of the queue
    // pair.
    if let Some((header, state)) = unsafe { begin(qp, Opcode::Segment) } {
        // SAFETY: readable memory of the caller, by libibverbs' promise.
        let headers = unsafe { raw::headers(headers, length) };
        state.begin_segment(header, mss, headers);
    }
}
