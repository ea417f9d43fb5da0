// SPDX-License-Identifier: GPL-2.0
//! Queue pairs: what those of processes and of kernel clients have in common.

use abi::{
    admin::{CreateQp, NO_QUEUE, Opcode, QpFlags},
    qp::Type,
    rq, sq,
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

use super::{
    Hca,
    context::Pd,
    hca::Object,
    ops::Verbs,
    qp_kernel::{self, KernelQp},
    qp_user::{self, UserQp},
    xrc,
};
use crate::rdma::{
    Device,
    qp::{NewQp, QpInit},
    qp_attr::{QpCap, QpState, QpType},
    udata::User,
};

/// The adapter's part of a queue pair.
pub(crate) struct Qp {
    /// Its number.
    pub(super) qpn: u32,
    /// The state that it was last put into; also serialises changes.
    pub(super) state: Pin<KBox<Mutex<QpState>>>,
    /// The sizes that it got.
    pub(super) cap: QpCap,
    /// True if all send work requests are signaled.
    pub(super) sq_sig_all: bool,
    /// True if it takes receives from a shared receive queue.
    pub(super) shares: bool,
    /// The queues, by owner.
    pub(super) queues: Queues,
}

/// The queues, by owner.
pub(super) enum Queues {
    /// A process posts, without us.
    User {
        /// Its memory.
        memory: UserQp,
    },
    /// A kernel client posts, through us.
    Kernel(Arc<KernelQp>),
    /// An XRC target has none.
    Target,
}

impl Qp {
    /// The queues as kernel clients use them.
    ///
    /// # Errors
    ///
    /// `EINVAL` for those that belong to a process.
    pub(super) fn kernel(&self) -> Result<&KernelQp> {
        match &self.queues {
            Queues::Kernel(queues) => Ok(queues),
            Queues::User { .. } | Queues::Target => Err(EINVAL),
        }
    }
}

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

pub(super) fn create(
    hca: &Hca<'_>,
    device: &Device<Verbs>,
    pd: Option<&Pd>,
    init: &mut QpInit<'_, Verbs>,
    user: Option<&User<'_, Verbs>>,
) -> Result<NewQp<Qp>> {
    if init.flags() != 0 {
        return Err(EOPNOTSUPP);
    }
    let caps = hca.adapter.caps();
    let cap = own_cap(init);
    if cap.max_send_wr > caps.max_wr.get()
        || cap.max_recv_wr > caps.max_wr.get()
        || cap.max_send_sge > caps.max_sge.get()
        || cap.max_recv_sge > caps.max_sge.get()
        || cap.max_inline_data > caps.max_inline.get()
    {
        return Err(EINVAL);
    }
    let state = KBox::pin_init(new_mutex!(QpState::Reset, "vrnic::Qp"), GFP_KERNEL)?;
    let (cap, queues, qpn) = match (pd, user) {
        _ if init.kind() == QpType::XRC_TGT => xrc::create_target(hca, init)?,
        (Some(pd), Some(user)) => qp_user::create(hca, device, pd, init, user)?,
        (Some(pd), None) => qp_kernel::create(hca, pd, init)?,
        (None, _) => return Err(EINVAL),
    };
    let sq_sig_all = init.sq_sig_all();
    let queues = hca.complete(object(qpn), queues, |queues| {
        hca.adapter.add_qp(qpn, init.link.clone()).inspect_err(|_| match queues {
            Queues::Kernel(_) => qp_kernel::forget(init.cqs(), qpn, init.link),
            Queues::User { memory } => memory.unmap(user),
            Queues::Target => {}
        })
    })?;
    init.set_cap(&cap);
    let shares = init.srq().is_some();
    Ok(NewQp { number: qpn, driver: Qp { qpn, state, cap, sq_sig_all, shares, queues } })
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

/// The queue pair of that number, as the adapter knows it.
pub(super) fn object(qpn: u32) -> Object {
    Object { destroy: Opcode::DestroyQp, id: qpn }
}

pub(super) fn destroy(
    hca: &Hca<'_>,
    qp: &crate::rdma::qp::Qp<Verbs>,
    user: Option<&User<'_, Verbs>>,
) -> Result {
    hca.destroy(Opcode::DestroyQp, qp.qpn)?;
    hca.adapter.remove_qp(qp.qpn, qp.link());
    match &qp.queues {
        Queues::Kernel(_) => {
            qp_kernel::forget([qp.send_cq(), qp.recv_cq()], qp.qpn, qp.link());
        }
        Queues::Target => {}
        Queues::User { memory } => memory.unmap(user),
    }
    Ok(())
}
