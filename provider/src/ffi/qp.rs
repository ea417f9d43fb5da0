// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Queue pairs: changing and destroying them.

use std::ffi::c_int;

use vrnic_abi::qp::State;
use vrnic_queues::qp::QueuePair;

use super::bindings as c;
use super::object::Object;
use super::requests::builder::Builder;
use super::{check, status};

/// A queue pair. libibverbs' part is the extended struct, which starts with `ibv_qp`.
pub(super) type Qp = Object<c::verbs_qp, Own>;

/// The plugin's part of a queue pair.
pub(super) struct Own {
    /// Requests of the newer interface for posting. It may hold the send queue's lock, so it is
    /// dropped first.
    pub(super) builder: Builder,
    pub(super) queues: QueuePair,
}

/// Returns the plugin's part of a queue pair; `None` for null.
///
/// # Safety
/// `qp` must be null or a queue pair of this plugin, live as long as the result is used.
#[inline]
pub(super) unsafe fn whole<'a>(qp: *mut c::ibv_qp) -> Option<&'a Own> {
    // SAFETY: the caller passes null or a live queue pair of this plugin.
    unsafe { Qp::own(qp.cast()) }
}

/// Returns the queues of a queue pair; `None` for null.
///
/// # Safety
/// The requirements of [`whole`] apply.
#[inline]
pub(super) unsafe fn own<'a>(qp: *mut c::ibv_qp) -> Option<&'a QueuePair> {
    // SAFETY: the caller passes null or a live queue pair of this plugin.
    unsafe { whole(qp) }.map(|own| &own.queues)
}

/// Returns whether the connection manager of iWARP connects a QP, and so decides about its states.
///
/// # Safety
/// `qp` must be live.
unsafe fn is_rnic(qp: *mut c::ibv_qp) -> bool {
    // SAFETY: the caller passes a live queue pair, whose context and device are live too.
    let transport = unsafe { (*(*(*qp).context).device).transport_type };
    // SAFETY: the caller passes a live queue pair, whose type does not change.
    transport == c::IBV_TRANSPORT_IWARP && unsafe { (*qp).qp_type } == c::IBV_QPT_RC
}

/// Implements `modify_qp`.
pub(super) unsafe extern "C" fn modify(
    qp: *mut c::ibv_qp,
    attr: *mut c::ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the arguments are libibverbs' own.
    let result = check(unsafe {
        match mask.cast_unsigned() & c::IBV_QP_RATE_LIMIT {
            0 => {
                let mut command = c::ibv_modify_qp::default();
                c::ibv_cmd_modify_qp(qp, attr, mask, &raw mut command, size_of_val(&command))
            }
            _ => modify_extended(qp, attr, mask),
        }
    });
    if result.is_ok() && mask.cast_unsigned() & c::IBV_QP_STATE != 0 {
        // SAFETY: the arguments are libibverbs' own, which lets them live during the call.
        let (queues, state) = unsafe { (own(qp), (*attr).qp_state) };
        let state = u8::try_from(state).ok().and_then(State::from_raw);
        // SAFETY: the QP is live by libibverbs' promise.
        let connected_by_kernel = unsafe { is_rnic(qp) };
        if let (Some(queues), Some(state)) = (queues, state) {
            queues.entered(match state {
                // The connection takes it to RTS; the plugin gets no notice.
                State::Init | State::Rtr if connected_by_kernel => State::Rts,
                state => state,
            });
        }
    }
    status(result)
}

/// `modify_qp_rate_limit`. The sizes of bursts and packets are hints of hardware that paces
/// packets; this adapter paces messages, so they must not be given.
pub(super) unsafe extern "C" fn modify_rate_limit(
    qp: *mut c::ibv_qp,
    limit: *mut c::ibv_qp_rate_limit_attr,
) -> c_int {
    // SAFETY: the arguments are libibverbs' own, which lets them live during the call.
    let limit = unsafe { &*limit };
    if limit.max_burst_sz != 0 || limit.typical_pkt_sz != 0 || limit.comp_mask != 0 {
        return libc::EINVAL;
    }
    let mut attr = c::ibv_qp_attr { rate_limit: limit.rate_limit, ..c::ibv_qp_attr::default() };
    // SAFETY: the queue pair is libibverbs' own.
    unsafe { modify_extended(qp, &raw mut attr, c::IBV_QP_RATE_LIMIT.cast_signed()) }
}

/// Changes a queue pair by the command that also has rate limits. Returns 0 or an errno.
///
/// # Safety
/// `qp` must be live, and `attr` valid.
unsafe fn modify_extended(qp: *mut c::ibv_qp, attr: *mut c::ibv_qp_attr, mask: c_int) -> c_int {
    let mut command = c::ibv_modify_qp_ex::default();
    let mut response = c::ib_uverbs_ex_modify_qp_resp::default();
    // SAFETY: the caller passes a live queue pair and attributes; the structs have the given
    // lengths.
    unsafe {
        c::ibv_cmd_modify_qp_ex(
            qp,
            attr,
            mask,
            &raw mut command,
            size_of_val(&command),
            &raw mut response,
            size_of_val(&response),
        )
    }
}

/// Implements `query_qp`.
pub(super) unsafe extern "C" fn query(
    qp: *mut c::ibv_qp,
    attr: *mut c::ibv_qp_attr,
    mask: c_int,
    init: *mut c::ibv_qp_init_attr,
) -> c_int {
    let mut command = c::ibv_query_qp::default();
    // SAFETY: the arguments are libibverbs' own; the command has the given length.
    unsafe { c::ibv_cmd_query_qp(qp, attr, mask, init, &raw mut command, size_of_val(&command)) }
}

/// Implements `destroy_qp`.
pub(super) unsafe extern "C" fn destroy(qp: *mut c::ibv_qp) -> c_int {
    // SAFETY: made by `qp_create`, live, and given up by the caller if this succeeds.
    unsafe { Qp::destroy(qp, c::ibv_cmd_destroy_qp) }
}
