// SPDX-License-Identifier: GPL-2.0
//! Queue pairs: what those of processes and of kernel clients have in common.

use abi::{Qpn, admin::command};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

use super::{
    Ctx, Verbs,
    context::Pd,
    creator::Creator,
    kernel_qp::KernelQp,
    modify_command, qp_kernel,
    qp_params::{CreatedQp, own_cap},
    qp_user::{self, UserQp},
    range_end, xrc,
};
use crate::rdma::{
    Device,
    attr::Protocol,
    qp::{NewQp, QpInit},
    qp_attr::{QpCap, QpState, QpType},
    udata::User,
};

/// The adapter's part of a queue pair.
pub(crate) struct Qp {
    /// Its number.
    pub(super) qpn: Qpn,
    /// The state that it was last put into; also serialises changes.
    pub(super) state: Pin<KBox<Mutex<QpState>>>,
    /// The sizes that it got.
    pub(super) cap: QpCap,
    /// True if all send work requests are signaled.
    pub(super) sq_sig_all: bool,
    /// The process that has created it; `None` for the queue pair of a kernel client.
    pub(super) creator: Option<Creator>,
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
    /// Returns the queues as kernel clients use them.
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

pub(super) fn create(
    ctx: &Ctx<'_>,
    device: &Device<Verbs>,
    pd: Option<&Pd>,
    init: &mut QpInit<'_, Verbs>,
    user: Option<&User<'_, Verbs>>,
) -> Result<NewQp<Qp>> {
    if init.flags() != 0 {
        return Err(EOPNOTSUPP);
    }
    let iwarp = ctx.adapter.protocol() == Protocol::Iwarp;
    if iwarp && init.kind() != QpType::RC {
        return Err(EOPNOTSUPP);
    }
    let caps = ctx.adapter.caps();
    let cap = own_cap(init);
    if cap.max_send_wr > caps.max_wr.get()
        || cap.max_recv_wr > caps.max_wr.get()
        || cap.max_send_sge > caps.max_sge.get()
        || cap.max_recv_sge > caps.max_sge.get()
        || cap.max_inline_data > caps.max_inline.get()
    {
        return Err(EINVAL);
    }
    let first = if iwarp { QpState::Init } else { QpState::Reset };
    let state = KBox::pin_init(new_mutex!(first, "vrnic::Qp"), GFP_KERNEL)?;
    let CreatedQp { qpn, cap, queues } = match (pd, user) {
        _ if init.kind() == QpType::XRC_TGT => {
            let qpn = xrc::create_target(ctx, init)?;
            CreatedQp { qpn, cap: QpCap::default(), queues: Queues::Target }
        }
        (Some(pd), Some(user)) => {
            qp_user::create(ctx, device, pd, init, user)?.map(|memory| Queues::User { memory })
        }
        (Some(pd), None) => qp_kernel::create(ctx, pd, init)?.map(Queues::Kernel),
        (None, _) => return Err(EINVAL),
    };
    let sq_sig_all = init.sq_sig_all();
    let queues = ctx.complete::<command::DestroyQp, _>(qpn, queues, |queues| {
        let initialized = if iwarp { modify_command::initialize(ctx, qpn) } else { Ok(()) };
        let added = initialized.and_then(|()| ctx.adapter.add_qp(qpn, init.link.clone()));
        added.inspect_err(|_| match queues {
            Queues::Kernel(_) => qp_kernel::forget(init.cqs(), qpn, init.link),
            Queues::User { memory } => memory.unmap(user),
            Queues::Target => {}
        })
    })?;
    init.set_cap(&cap);
    let shares = init.srq().is_some();
    let creator = user.map(|_| Creator::current());
    let driver = Qp { qpn, state, cap, sq_sig_all, creator, shares, queues };
    Ok(NewQp { number: qpn.get(), driver })
}

pub(super) fn destroy(
    ctx: &Ctx<'_>,
    qp: &crate::rdma::qp::Qp<Verbs>,
    user: Option<&User<'_, Verbs>>,
) -> Result {
    let connection = ctx.connections().map(|connections| {
        // The connection manager gives its reference back when it has got the last event.
        qp.end_references(|| connections.close(qp.qpn));
        connections.detach(qp.qpn)
    });
    let ranges = ctx.adapter.ranges().hold(qp.qpn);
    // When this has succeeded another queue pair may have the number.
    ctx.destroy::<command::DestroyQp>(&qp.qpn).inspect_err(|_| {
        ctx.adapter.ranges().resume(&ranges, qp.qpn);
        if ctx.connections().is_some() {
            qp.resume_references();
        }
    })?;
    drop(connection);
    ctx.adapter.remove_qp(qp.qpn, qp.link());
    match &qp.queues {
        Queues::Kernel(_) => {
            ctx.adapter.ranges().free(&ranges);
            qp_kernel::forget([qp.send_cq(), qp.recv_cq()], qp.qpn, qp.link());
        }
        Queues::Target => {}
        Queues::User { memory } => {
            range_end::release(ctx, &ranges, user);
            memory.unmap(user);
        }
    }
    Ok(())
}
