// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The newer interface for posting sends. One call begins a request, and one or two more give its
//! data and destination, in any order. All requests since `wr_start` are posted, or none.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`opcode`] | the operations, and the calls that begin a request |
//! | [`setters`] | the calls that give it data and destination |

mod opcode;
mod setters;

use std::ffi::c_int;

use rustix::io::Errno;
use vrnic_abi::qp::Type;
use vrnic_abi::uverbs::Features;
use vrnic_queues::qp::QueuePair;

use self::opcode::offered;
use super::bindings as c;
use super::libibverbs::functions::layout;
use super::requests::builder::State;
use super::{qp, status};

/// Returns the type of queue pairs that programs create and post to, by its number in verbs, which
/// is that of the adapter.
pub(super) fn qp_type(number: c::ibv_qp_type) -> Option<Type> {
    let kind = u8::try_from(number).ok().and_then(Type::from_raw);
    kind.filter(|kind| kind.info().sends && *kind != Type::Gsi)
}

/// Sets up the interface of a queue pair for some operations.
///
/// # Errors
/// `EOPNOTSUPP` when one is not offered.
///
/// # Safety
/// `qp` must be new, and known to no other code.
pub(super) unsafe fn set_up(
    qp: *mut c::ibv_qp,
    kind: c::ibv_qp_type,
    operations: u64,
    features: Features,
) -> Result<(), Errno> {
    let offered = qp_type(kind).map_or(0, offered) & !opcode::absent(layout(), features);
    let operations = u32::try_from(operations).map_err(|_| Errno::OPNOTSUPP)?;
    if operations & !offered != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let whole: *mut c::verbs_qp = qp.cast();
    let mask: *mut u32 = qp.wrapping_byte_add(layout().qp_comp_mask_offset()).cast();
    // SAFETY: the caller passes a queue pair that no other code uses. The union's larger member is
    // the extended queue pair.
    let ex = unsafe {
        *mask |= c::VERBS_QP_EX;
        &mut (*whole).__bindgen_anon_1.qp_ex
    };
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
    opcode::set(ex, operations);
    Ok(())
}

/// Returns the state of a queue pair; `None` if that is not of this plugin.
///
/// # Safety
/// `qp` must be live, and this thread must have the send queue's lock by `start`, or be in `start`;
/// no code may hold another reference to the state.
#[inline]
unsafe fn state<'a>(qp: *mut c::ibv_qp_ex) -> Option<&'a mut State> {
    // SAFETY: the caller passes a live queue pair.
    let own = unsafe { qp::whole(qp.cast()) }?;
    // SAFETY: the caller's thread has the lock of the send queue, and no other code holds a
    // reference to the state.
    Some(unsafe { own.builder.state() })
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
