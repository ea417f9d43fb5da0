// SPDX-License-Identifier: GPL-2.0
//! Queue pairs: making them, and their states.

use core::{mem, ptr, ptr::NonNull};

use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_int,
    prelude::*,
    sync::Arc,
};

use crate::{
    bindings,
    kclient::{
        cq::Cq,
        pd::Pd,
        qp::{Caps, Origin, Qp, init_attr},
    },
    path::{PORT, Path},
};

/// The rights of a peer.
const ACCESS: u32 = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
    | bindings::ib_access_flags_IB_ACCESS_REMOTE_READ
    | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
    | bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC;

/// READs and atomics outstanding, either way.
const READS: u8 = 4;
/// Code of 0.64 ms (IBTA 9.7.5.2.8), the time after which a receiver that was not ready is asked
/// again.
const RNR_TIMER: u8 = 12;
/// Code of 67 ms: 4.096 µs times 2 to the power of this.
const ACK_TIMEOUT: u8 = 14;
/// The number of retries; for a receiver that was not ready it stands for ever.
const RETRIES: u8 = 7;

/// Queue pairs made only by verbs.
pub(crate) struct Verbs;

// SAFETY: `ib_destroy_qp_user` destroys the queue pair that it is given, or fails.
unsafe impl Origin for Verbs {
    unsafe fn destroy(&mut self, qp: NonNull<bindings::ib_qp>) -> c_int {
        // SAFETY: the caller passes a queue pair that is alive, and does not use it afterwards.
        unsafe { bindings::ib_destroy_qp_user(qp.as_ptr(), ptr::null_mut()) }
    }
}

/// Makes a queue pair.
pub(crate) fn create(pd: &Arc<Pd>, cq: &Arc<Cq>, caps: Caps) -> Result<Qp<Verbs>> {
    let (mut attr, name) = (init_attr(cq, caps), crate::NAME.as_char_ptr());
    // SAFETY: domain and completion queue are alive, and of one device; the attributes are copied;
    // the name is static.
    let raw = unsafe { bindings::ib_create_qp_kernel(pd.as_raw(), &mut attr, name) };
    let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
    // SAFETY: the queue pair was created just now, for this caller, with this queue in this domain.
    Ok(unsafe { Qp::from_raw(raw, cq.clone(), pd.clone(), Verbs) })
}

/// Returns the number by which a peer names it.
pub(crate) fn number(qp: &Qp<Verbs>) -> u32 {
    // SAFETY: `qp` keeps the queue pair alive; its number does not change.
    unsafe { (*qp.as_raw()).qp_num }
}

/// Takes it to the reset state, by which errors end and requests are gone without a completion.
pub(crate) fn reset(qp: &Qp<Verbs>) -> Result {
    modify(qp, &mut attributes(bindings::ib_qp_state_IB_QPS_RESET), 0)
}

/// Lets it send again after an error that has stopped only its send queue.
pub(crate) fn resume(qp: &Qp<Verbs>) -> Result {
    modify(qp, &mut attributes(bindings::ib_qp_state_IB_QPS_RTS), 0)
}

/// Takes it from the reset state to one in which it can send, to the peer of that number.
pub(crate) fn connect(qp: &Qp<Verbs>, peer: u32, path: &Path) -> Result {
    let mut attr = attributes(bindings::ib_qp_state_IB_QPS_INIT);
    attr.port_num = PORT;
    attr.qp_access_flags = c_int::try_from(ACCESS)?;
    modify(
        qp,
        &mut attr,
        bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX
            | bindings::ib_qp_attr_mask_IB_QP_PORT
            | bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS,
    )?;
    let mut attr = attributes(bindings::ib_qp_state_IB_QPS_RTR);
    attr.path_mtu = bindings::ib_mtu_IB_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = READS;
    attr.min_rnr_timer = RNR_TIMER;
    attr.ah_attr = path.to_raw();
    modify(
        qp,
        &mut attr,
        bindings::ib_qp_attr_mask_IB_QP_AV
            | bindings::ib_qp_attr_mask_IB_QP_PATH_MTU
            | bindings::ib_qp_attr_mask_IB_QP_DEST_QPN
            | bindings::ib_qp_attr_mask_IB_QP_RQ_PSN
            | bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC
            | bindings::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER,
    )?;
    let mut attr = attributes(bindings::ib_qp_state_IB_QPS_RTS);
    attr.timeout = ACK_TIMEOUT;
    attr.retry_cnt = RETRIES;
    attr.rnr_retry = RETRIES;
    attr.max_rd_atomic = READS;
    modify(
        qp,
        &mut attr,
        bindings::ib_qp_attr_mask_IB_QP_TIMEOUT
            | bindings::ib_qp_attr_mask_IB_QP_RETRY_CNT
            | bindings::ib_qp_attr_mask_IB_QP_RNR_RETRY
            | bindings::ib_qp_attr_mask_IB_QP_SQ_PSN
            | bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC,
    )
}

fn attributes(state: bindings::ib_qp_state) -> bindings::ib_qp_attr {
    // SAFETY: a plain C struct of numbers and pointers, for which zero is valid.
    let mut attr: bindings::ib_qp_attr = unsafe { mem::zeroed() };
    attr.qp_state = state;
    attr
}

/// Sets the state and the attributes of `mask`.
fn modify(qp: &Qp<Verbs>, attr: &mut bindings::ib_qp_attr, mask: u32) -> Result {
    let mask = c_int::try_from(mask | bindings::ib_qp_attr_mask_IB_QP_STATE)?;
    // SAFETY: `qp` keeps the queue pair alive; the attributes are valid during the call.
    to_result(unsafe { bindings::ib_modify_qp(qp.as_raw(), attr, mask) })
}
