// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The newer interface for posting sends. One call begins a request, and one or two more give its
//! data and destination, in any order. All requests since `wr_start` are posted, or none.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`builder`] | requests that are not posted yet |
//! | [`opcode`] | the calls that begin a request |
//! | [`setters`] | the calls that give it data and destination |

mod builder;
mod opcode;
mod setters;

use std::ffi::c_int;

use rustix::io::Errno;
use vrnic_queues::qp::QueuePair;

pub(super) use self::builder::Builder;
use self::builder::{State, state};
use super::bindings as c;
use super::{qp, status};

/// Operations that datagrams have.
const DATAGRAM: u32 = c::IBV_QP_EX_WITH_SEND | c::IBV_QP_EX_WITH_SEND_WITH_IMM;
/// Operations that unreliable connections have.
const UNRELIABLE: u32 = DATAGRAM
    | c::IBV_QP_EX_WITH_RDMA_WRITE
    | c::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | c::IBV_QP_EX_WITH_LOCAL_INV
    | c::IBV_QP_EX_WITH_BIND_MW;
/// Operations that reliable connections have.
const RELIABLE: u32 = UNRELIABLE
    | c::IBV_QP_EX_WITH_RDMA_READ
    | c::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | c::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | c::IBV_QP_EX_WITH_SEND_WITH_INV;
/// Operations that initiators of XRC have.
const INITIATOR: u32 = DATAGRAM
    | c::IBV_QP_EX_WITH_RDMA_WRITE
    | c::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | c::IBV_QP_EX_WITH_RDMA_READ
    | c::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | c::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

/// Sets up the interface of a queue pair for some operations.
///
/// # Errors
/// `EOPNOTSUPP` when one is not offered.
///
/// # Safety
/// `qp` must be new, and known to nobody else.
pub(super) unsafe fn set_up(
    qp: *mut c::ibv_qp,
    kind: c::ibv_qp_type,
    operations: u64,
) -> Result<(), Errno> {
    let offered = match kind {
        c::IBV_QPT_UD => DATAGRAM,
        c::IBV_QPT_UC => UNRELIABLE,
        c::IBV_QPT_RC => RELIABLE,
        c::IBV_QPT_XRC_SEND => INITIATOR,
        _ => 0,
    };
    let operations = u32::try_from(operations).map_err(|_| Errno::OPNOTSUPP)?;
    if operations & !offered != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let whole: *mut c::verbs_qp = qp.cast();
    // SAFETY: ours alone, by the caller's promise; the union's larger member is the extended queue
    // pair.
    let ex = unsafe {
        (*whole).comp_mask |= c::VERBS_QP_EX;
        &mut (*whole).__bindgen_anon_1.qp_ex
    };
    /// Sets functions for the operations asked for.
    macro_rules! set {
        ($($operation:ident: $field:ident = $function:path,)*) => {
            $(if operations & c::$operation != 0 {
                ex.$field = Some($function);
            })*
        };
    }
    ex.wr_start = Some(start);
    ex.wr_complete = Some(complete);
    ex.wr_abort = Some(abort);
    ex.wr_set_sge = Some(setters::set_sge);
    ex.wr_set_sge_list = Some(setters::set_sge_list);
    ex.wr_set_inline_data = Some(setters::set_inline_data);
    ex.wr_set_inline_data_list = Some(setters::set_inline_data_list);
    match kind {
        c::IBV_QPT_UD => ex.wr_set_ud_addr = Some(setters::set_ud_addr),
        c::IBV_QPT_XRC_SEND => ex.wr_set_xrc_srqn = Some(setters::set_xrc_srqn),
        _ => {}
    }
    set! {
        IBV_QP_EX_WITH_SEND: wr_send = opcode::send,
        IBV_QP_EX_WITH_SEND_WITH_IMM: wr_send_imm = opcode::send_imm,
        IBV_QP_EX_WITH_SEND_WITH_INV: wr_send_inv = opcode::send_inv,
        IBV_QP_EX_WITH_RDMA_WRITE: wr_rdma_write = opcode::write,
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: wr_rdma_write_imm = opcode::write_imm,
        IBV_QP_EX_WITH_RDMA_READ: wr_rdma_read = opcode::read,
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: wr_atomic_cmp_swp = opcode::cmp_swp,
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: wr_atomic_fetch_add = opcode::fetch_add,
        IBV_QP_EX_WITH_LOCAL_INV: wr_local_inv = opcode::local_inv,
        IBV_QP_EX_WITH_BIND_MW: wr_bind_mw = opcode::bind_mw,
    }
    Ok(())
}

unsafe extern "C" fn start(qp: *mut c::ibv_qp_ex) {
    // SAFETY: live by libibverbs' promise.
    let Some(queues) = (unsafe { qp::own(qp.cast()) }) else { return };
    // SAFETY: only the lifetime changes. The queue pair lives, at one place, until it is destroyed,
    // which is not while requests are built.
    let queues: &'static QueuePair = unsafe { &*std::ptr::from_ref(queues) };
    let Some(staged) = queues.stage() else { return };
    // SAFETY: `staged` holds the lock.
    if let Some(state) = unsafe { state(qp) } {
        *state = State::new(staged);
    }
}

unsafe extern "C" fn complete(qp: *mut c::ibv_qp_ex) -> c_int {
    // SAFETY: `wr_start` comes first.
    let Some(state) = (unsafe { state(qp) }) else { return status(Err(Errno::INVAL)) };
    // The place must be empty before the lock is free.
    status(std::mem::take(state).post())
}

unsafe extern "C" fn abort(qp: *mut c::ibv_qp_ex) {
    // SAFETY: `wr_start` comes first.
    if let Some(state) = unsafe { state(qp) } {
        // As in `complete`. What is staged and not posted is dropped.
        drop(std::mem::take(state));
    }
}
