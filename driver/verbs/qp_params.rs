// SPDX-License-Identifier: GPL-2.0
//! The parameters of queue pairs and queues that do not depend on whose they are.

use abi::{
    admin::{CreateQp, NO_QUEUE, QpFlags},
    qp::Type,
    rq, sq,
};
use kernel::prelude::*;

use super::{Verbs, context::Pd};
use crate::rdma::{
    qp::QpInit,
    qp_attr::{QpCap, QpType},
};

/// The shape of a queue: logs of its number of entries and of their stride.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// log2 of the entries, or [`NO_QUEUE`].
    pub(super) log_size: u8,
    /// log2 of the bytes of an entry.
    pub(super) log_stride: u8,
}

impl Shape {
    /// Returns whether there is such a queue.
    pub(super) fn exists(self) -> bool {
        self.log_size != NO_QUEUE
    }

    /// Returns whether its stride is between these.
    pub(super) fn has_stride(self, min: u32, max: u32) -> bool {
        let log = u32::from(self.log_stride);
        (min.trailing_zeros()..=max.trailing_zeros()).contains(&log)
    }

    /// Returns whether a queue of receives may have it.
    pub(super) fn is_recv_queue(self) -> bool {
        u32::from(self.log_size) <= sq::LOG_WQES_MAX
            && self.has_stride(rq::STRIDE_MIN, rq::STRIDE_MAX)
    }

    /// Number of entries.
    pub(super) fn entries(self) -> u32 {
        if self.exists() { 1 << self.log_size } else { 0 }
    }

    /// Bytes of an entry.
    pub(super) fn stride(self) -> u32 {
        1 << self.log_stride
    }

    /// Bytes of the ring.
    pub(super) fn length(self) -> u64 {
        u64::from(self.entries()) * u64::from(self.stride())
    }
}

/// The sizes asked for, of its own queues: with a shared receive queue it has no other.
pub(super) fn own_cap(init: &QpInit<'_, Verbs>) -> QpCap {
    let cap = init.cap();
    match init.srq() {
        Some(_) => QpCap { max_recv_wr: 0, max_recv_sge: 0, ..cap },
        None => cap,
    }
}

/// The adapter's name for a type.
///
/// # Errors
///
/// `EOPNOTSUPP` for one that it does not have.
fn kind(kind: QpType) -> Result<Type> {
    Ok(match kind {
        QpType::RC => Type::Rc,
        QpType::UC => Type::Uc,
        QpType::UD => Type::Ud,
        QpType::GSI => Type::Gsi,
        QpType::XRC_INI => Type::XrcIni,
        _ => return Err(EOPNOTSUPP),
    })
}

/// The stride in bytes of a send queue.
///
/// # Errors
///
/// `EINVAL` for more than an entry holds.
pub(super) fn send_stride(kind: QpType, cap: &QpCap) -> Result<u32> {
    let (sges, inline) = (cap.max_send_sge, cap.max_inline_data);
    let stride = if kind.is_datagram() {
        sq::datagram_stride(sges, inline)
    } else if kind == QpType::XRC_INI {
        sq::xrc_stride(sges, inline)
    } else {
        sq::stride(sges, inline)
    };
    stride.ok_or(EINVAL)
}

/// The parameters that do not depend on where the queues are.
pub(super) fn params(pd: &Pd, init: &QpInit<'_, Verbs>, uar: u32) -> Result<CreateQp> {
    let mut flags = QpFlags::empty();
    flags.set(QpFlags::SIGNAL_ALL, init.sq_sig_all());
    let send_cq = init.send_cq()?;
    // An initiator has no other.
    let recv_cq = if init.kind() == QpType::XRC_INI { send_cq } else { init.recv_cq()? };
    Ok(CreateQp {
        pdn: pd.pdn.into(),
        send_cqn: send_cq.cqn.into(),
        recv_cqn: recv_cq.cqn.into(),
        uar: uar.into(),
        srqn: init.srq().map_or(0, |srq| srq.srqn).into(),
        // CAST: the enum's number.
        qp_type: kind(init.kind())? as u8,
        flags: flags.bits(),
        sq_log_size: NO_QUEUE,
        rq_log_size: NO_QUEUE,
        ..CreateQp::default()
    })
}
