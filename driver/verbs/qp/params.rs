// SPDX-License-Identifier: GPL-2.0
//! The parameters of queue pairs and queues that do not depend on whose they are.

use abi::{
    Cqn, Qpn, Srqn,
    admin::{CreateQp, DeviceFeatures, NO_QUEUE, Pages, QpFlags, QpOptions},
    qp::Type,
    sq,
};
use kernel::prelude::*;

use crate::{
    bindings,
    hw::ring::RingShape,
    rdma::{
        qp_attr::{QpCap, QpType},
        queues::qp::QpInit,
    },
    verbs::{Ctx, Verbs, context::Pd},
};

/// A queue pair that the adapter has created.
pub(in crate::verbs) struct CreatedQp<Q> {
    /// The number of the queue pair.
    pub(in crate::verbs) qpn: Qpn,
    /// The sizes that it got.
    pub(in crate::verbs) cap: QpCap,
    /// The queues, as their owner uses them.
    pub(in crate::verbs) queues: Q,
}

impl<Q> CreatedQp<Q> {
    /// Returns the same queue pair with its queues as `f` wraps them.
    pub(super) fn map<R>(self, f: impl FnOnce(Q) -> R) -> CreatedQp<R> {
        CreatedQp { qpn: self.qpn, cap: self.cap, queues: f(self.queues) }
    }
}

/// Returns the shape of a queue that a process asks for; `None` if it asks for no such queue.
pub(super) fn asked_shape(log_size: u8, log_stride: u8) -> Option<RingShape> {
    (log_size != NO_QUEUE).then_some(RingShape { log_size, log_stride })
}

/// Describes the send queue; without pages it is in device memory.
pub(super) fn set_sq(params: &mut CreateQp, shape: RingShape, pages: Pages) {
    params.sq_table = pages.table;
    params.sq_page_shift = pages.page_shift;
    params.sq_levels = pages.levels;
    params.sq_log_size = shape.log_size;
    params.sq_log_stride = shape.log_stride;
}

/// Describes the receive queue.
pub(super) fn set_rq(params: &mut CreateQp, shape: RingShape, pages: Pages) {
    params.rq_table = pages.table;
    params.rq_page_shift = pages.page_shift;
    params.rq_levels = pages.levels;
    params.rq_log_size = shape.log_size;
    params.rq_log_stride = shape.log_stride;
}

/// Returns the sizes asked for, of its own queues: with a shared receive queue it has no other.
pub(super) fn own_cap(init: &QpInit<'_, Verbs>) -> QpCap {
    let cap = init.cap();
    match init.srq() {
        Some(_) => QpCap { max_recv_wr: 0, max_recv_sge: 0, ..cap },
        None => cap,
    }
}

/// Returns the adapter's name for a type.
///
/// # Errors
///
/// `EOPNOTSUPP` for one that it does not have.
pub(super) fn kind(kind: QpType) -> Result<Type> {
    u8::try_from(kind.number()).ok().and_then(Type::from_raw).ok_or(EOPNOTSUPP)
}

/// The number of [`sq::Sge`]s that a command takes besides its message.
const COMMAND_SGES: u32 = 2;

/// Returns the stride in bytes of a send queue of a kernel client's.
///
/// # Errors
///
/// `EINVAL` for more than an entry holds, `EOPNOTSUPP` for a type that the adapter does not have.
pub(super) fn kernel_send_stride(qp_type: QpType, cap: &QpCap) -> Result<u32> {
    let commands = if qp_type == QpType::DRIVER { COMMAND_SGES } else { 0 };
    let sges = cap.max_send_sge.checked_add(commands).ok_or(EINVAL)?;
    let destination = kind(qp_type)?.info().destination;
    sq::stride(destination, sges, cap.max_inline_data).ok_or(EINVAL)
}

/// The creation flags of kernel clients, as `direct.h` has them.
const KERNEL_FLAGS: [(u32, QpFlags); 3] = [
    (bindings::VRNIC_QP_REACTIVE, QpFlags::REACTIVE),
    (bindings::VRNIC_QP_NO_SQ_KEYS, QpFlags::NO_SQ_KEYS),
    (bindings::VRNIC_QP_WINDOWS_ONLY, QpFlags::WINDOWS_ONLY),
];

/// Returns the adapter's flags for the creation flags. Those of processes are in their requests.
///
/// # Errors
///
/// `EOPNOTSUPP` for one that the adapter or this driver does not have.
pub(super) fn created_flags(
    ctx: &Ctx<'_>,
    init: &QpInit<'_, Verbs>,
    is_user: bool,
) -> Result<QpFlags> {
    let flags = KERNEL_FLAGS.iter().fold(0, |known, (bit, _)| known | bit);
    let known = flags | bindings::VRNIC_QP_ACKNOWLEDGED;
    // A stream has no memory requests; a refused command is treated as one.
    let possible = match init.kind() {
        QpType::RC => known,
        QpType::DRIVER => bindings::VRNIC_QP_REACTIVE,
        _ => 0,
    };
    if init.flags() & !possible != 0 || init.flags() != 0 && is_user {
        return Err(EOPNOTSUPP);
    }
    let mut flags = QpFlags::empty();
    for (bit, flag) in KERNEL_FLAGS {
        flags.set(flag, init.flags() & bit != 0);
    }
    check_options(ctx, init.kind(), flags, options(init)).map(|()| flags)
}

/// Returns the adapter's options for the creation flags.
fn options(init: &QpInit<'_, Verbs>) -> QpOptions {
    let mut options = QpOptions::empty();
    let acknowledged = init.flags() & bindings::VRNIC_QP_ACKNOWLEDGED != 0;
    options.set(QpOptions::ACKNOWLEDGED, acknowledged);
    options
}

/// Checks that the adapter has what the flags and options ask for.
///
/// # Errors
///
/// `EOPNOTSUPP`.
pub(super) fn check_options(
    ctx: &Ctx<'_>,
    kind: QpType,
    flags: QpFlags,
    options: QpOptions,
) -> Result {
    let keys = QpFlags::NO_SQ_KEYS.union(QpFlags::WINDOWS_ONLY);
    let by_length = flags.contains(QpFlags::QUEUE_LENGTH) && kind == QpType::RC;
    let needs = [
        (flags.intersects(keys), DeviceFeatures::KEY_OPTIONS),
        (options.contains(QpOptions::BLOCK_LOOPBACK), DeviceFeatures::BLOCK_LOOPBACK),
        (options.contains(QpOptions::ACKNOWLEDGED) || by_length, DeviceFeatures::ACKNOWLEDGED),
    ];
    match needs.into_iter().all(|(asked, feature)| !asked || ctx.adapter.caps().has(feature)) {
        true => Ok(()),
        false => Err(EOPNOTSUPP),
    }
}

/// Returns the parameters that do not depend on where the queues are.
pub(super) fn params(pd: &Pd, init: &QpInit<'_, Verbs>) -> Result<CreateQp> {
    let mut flags = QpFlags::empty();
    flags.set(QpFlags::SIGNAL_ALL, init.sq_sig_all());
    let send_cq = init.send_cq()?;
    // An initiator has no other.
    let recv_cq = if init.kind() == QpType::XRC_INI { send_cq } else { init.recv_cq()? };
    Ok(CreateQp {
        recv_cqn: recv_cq.cqn,
        srqn: init.srq().map_or(Srqn::default(), |srq| srq.srqn),
        flags: flags.bits(),
        options: options(init).bits(),
        ..without_queues(pd, init.kind(), send_cq.cqn)?
    })
}

/// Returns the parameters of a queue pair of this type without queues.
pub(in crate::verbs) fn without_queues(pd: &Pd, qp_type: QpType, cqn: Cqn) -> Result<CreateQp> {
    Ok(CreateQp {
        pdn: pd.pdn,
        send_cqn: cqn,
        recv_cqn: cqn,
        // CAST: the enum's number.
        qp_type: kind(qp_type)? as u8,
        sq_log_size: NO_QUEUE,
        rq_log_size: NO_QUEUE,
        ..CreateQp::default()
    })
}
