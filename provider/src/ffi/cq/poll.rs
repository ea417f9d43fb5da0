// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Polling and arming completion queues.

use std::ffi::c_int;

use rustix::io::Errno;
use vrnic_abi::cq::{Opcode, Status};
use vrnic_queues::completion::{Completion, Extra, Network};
use vrnic_queues::cq::Notify;

use crate::ffi::bindings as c;
use crate::ffi::{cq, status};

/// The adapter's statuses have the numbers of libibverbs, and so have receives.
const _: () = {
    assert!(matches!(Opcode::Recv.wc_opcode(), Some(c::IBV_WC_RECV)));
    assert!(matches!(Opcode::RecvWriteImm.wc_opcode(), Some(c::IBV_WC_RECV_RDMA_WITH_IMM)));
    assert!(Status::Success as u32 == c::IBV_WC_SUCCESS);
    assert!(Status::LocLenErr as u32 == c::IBV_WC_LOC_LEN_ERR);
    assert!(Status::LocQpOpErr as u32 == c::IBV_WC_LOC_QP_OP_ERR);
    assert!(Status::LocProtErr as u32 == c::IBV_WC_LOC_PROT_ERR);
    assert!(Status::WrFlushErr as u32 == c::IBV_WC_WR_FLUSH_ERR);
    assert!(Status::MwBindErr as u32 == c::IBV_WC_MW_BIND_ERR);
    assert!(Status::BadRespErr as u32 == c::IBV_WC_BAD_RESP_ERR);
    assert!(Status::LocAccessErr as u32 == c::IBV_WC_LOC_ACCESS_ERR);
    assert!(Status::RemInvReqErr as u32 == c::IBV_WC_REM_INV_REQ_ERR);
    assert!(Status::RemAccessErr as u32 == c::IBV_WC_REM_ACCESS_ERR);
    assert!(Status::RemOpErr as u32 == c::IBV_WC_REM_OP_ERR);
    assert!(Status::RetryExcErr as u32 == c::IBV_WC_RETRY_EXC_ERR);
    assert!(Status::RnrRetryExcErr as u32 == c::IBV_WC_RNR_RETRY_EXC_ERR);
    assert!(Status::RemAbortErr as u32 == c::IBV_WC_REM_ABORT_ERR);
    assert!(Status::FatalErr as u32 == c::IBV_WC_FATAL_ERR);
    assert!(Status::GeneralErr as u32 == c::IBV_WC_GENERAL_ERR);
};

/// `poll_cq`. Returns the number of completions, or a negative errno.
pub(in crate::ffi) unsafe extern "C" fn poll_cq(
    cq: *mut c::ibv_cq,
    entries: c_int,
    completions: *mut c::ibv_wc,
) -> c_int {
    // SAFETY: live by libibverbs' promise.
    let (Some(queue), Ok(limit)) = (unsafe { cq::own(cq) }, usize::try_from(entries)) else {
        return -Errno::INVAL.raw_os_error();
    };
    let taken = queue.poll(limit, |index, completion| {
        // SAFETY: the caller's array has `entries` elements, and `index` is less.
        unsafe { completions.add(index).write(work_completion(completion)) };
    });
    if taken == 0 && queue.is_handed_over() {
        return -Errno::PERM.raw_os_error();
    }
    // Not more than `entries`.
    c_int::try_from(taken).unwrap_or(entries)
}

/// libibverbs' numbers of operations, by the adapter's number.
static WC_OPCODES: [u32; 256] = {
    let mut table = [0; 256];
    let mut raw = 0u8;
    loop {
        if let Some(opcode) = Opcode::from_raw(raw) {
            table[opcode as usize] = match opcode.wc_opcode() {
                Some(number) => number,
                // Only kernel clients have this; libibverbs knows none.
                None => c::IBV_WC_DRIVER1,
            };
        }
        if raw == u8::MAX {
            break table;
        }
        raw += 1;
    }
};

/// Returns libibverbs' number of the operation.
#[inline]
pub(in crate::ffi) fn opcode(completion: &Completion) -> u32 {
    WC_OPCODES[completion.opcode as usize]
}

/// Returns the word that may be immediate data, in network order, or a key, and the flag for it.
#[inline]
pub(in crate::ffi) fn extra(completion: &Completion) -> (u32, u32) {
    match completion.extra {
        Extra::None => (0, 0),
        Extra::Imm(imm) => (u32::from_ne_bytes(imm), c::IBV_WC_WITH_IMM),
        Extra::Invalidated(key) => (key, c::IBV_WC_WITH_INV),
        Extra::Command(key) => (key, 0),
    }
}

/// Returns libibverbs' flags.
#[inline]
pub(in crate::ffi) fn flags(completion: &Completion) -> u32 {
    let network = if completion.network == Network::None { 0 } else { c::IBV_WC_GRH };
    let checksum = if completion.ip_csum_ok { c::IBV_WC_IP_CSUM_OK } else { 0 };
    extra(completion).1 | network | checksum
}

/// Returns the service level. Ethernet has none; as with mlx5, the field tells which network header
/// came, because UCX (`uct_ud_iface_check_grh`) reads it so on every adapter.
#[inline]
pub(in crate::ffi) fn sl(completion: &Completion) -> u8 {
    // CAST: a small enum.
    completion.network as u8
}

#[inline]
fn work_completion(completion: &Completion) -> c::ibv_wc {
    let (word, _) = extra(completion);
    c::ibv_wc {
        wr_id: completion.wr_id,
        // CAST: the numbers are libibverbs' (see above).
        status: completion.status as u32,
        opcode: opcode(completion),
        vendor_err: completion.vendor_err,
        byte_len: completion.byte_len,
        __bindgen_anon_1: c::ibv_wc__bindgen_ty_1 { invalidated_rkey: word },
        qp_num: completion.qpn,
        src_qp: completion.src_qpn,
        wc_flags: flags(completion),
        pkey_index: 0,
        slid: 0,
        sl: sl(completion),
        dlid_path_bits: 0,
    }
}

/// Implements `req_notify_cq`.
pub(in crate::ffi) unsafe extern "C" fn req_notify_cq(
    cq: *mut c::ibv_cq,
    solicited_only: c_int,
) -> c_int {
    // SAFETY: live by libibverbs' promise.
    let Some(queue) = (unsafe { cq::own(cq) }) else { return status(Err(Errno::INVAL)) };
    if queue.is_handed_over() {
        return status(Err(Errno::PERM));
    }
    queue.arm(if solicited_only != 0 { Notify::Solicited } else { Notify::Any });
    0
}
