// SPDX-License-Identifier: GPL-2.0
//! Queue pairs: what the queue pairs of processes and of kernel clients have in common.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`kernel`], [`user`] | queue pairs of kernel clients and of processes: their queues and creation |
//! | [`params`] | parameters of creation that do not depend on the owner |
//! | [`modify`], [`modify_command`] | attributes |
//! | [`rnic`] | states of queue pairs of iWARP |

use ::kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};
use abi::{
    Qpn,
    admin::{DeviceFeatures, Mcast, command},
    qp::Service,
};

pub(super) mod kernel;
mod modify;
pub(super) mod modify_command;
pub(super) mod params;
pub(super) mod rnic;
pub(super) mod user;

use self::{
    kernel::KernelQp,
    params::{CreatedQp, own_cap},
    user::UserQp,
};
use super::{Ctx, Verbs, creator::Creator, range_end, xrc};
use crate::pairing::PORT;
use crate::rdma::{
    self, Device,
    port::attr::Protocol,
    port::gid::Gid,
    qp_attr::{QpAttr, QpAttrMask, QpCap, QpQuery, QpState, QpType},
    queues::qp::{NewQp, QpInit, QpOperations},
    requests::recv_wr::RecvWrs,
    requests::wr::SendWrs,
    user::ucontext::User,
};

/// The adapter's part of a queue pair.
pub(crate) struct Qp {
    /// The number of the queue pair.
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
        /// The memory of the queues.
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

/// Returns whether OPEN_CONNECTION connects queue pairs of this type, and then decides about their
/// states: those of the connection manager of iWARP, and those of TCP streams.
fn is_rnic(ctx: &Ctx<'_>, kind: QpType) -> bool {
    ctx.adapter.protocol() == Protocol::Iwarp && kind != QpType::RAW_PACKET
}

/// Checks that the adapter has queue pairs of this type for such a creator.
///
/// # Errors
///
/// `EOPNOTSUPP`.
fn check_type(ctx: &Ctx<'_>, kind: QpType, is_user: bool) -> Result {
    let info = params::kind(kind)?.info();
    let offered = match ctx.adapter.protocol() {
        Protocol::Roce => info.roce,
        Protocol::Iwarp => info.iwarp,
    };
    // The core has checked that a process may have a queue pair of raw packets. Kernel clients
    // have no use for one.
    let usable = info.service != Service::RawPacket
        || is_user && ctx.adapter.caps().has(DeviceFeatures::RAW_PACKET);
    if offered && usable { Ok(()) } else { Err(EOPNOTSUPP) }
}

/// Checks that the adapter has queues of these sizes.
///
/// # Errors
///
/// `EINVAL`.
fn check_sizes(ctx: &Ctx<'_>, cap: &QpCap) -> Result {
    let caps = ctx.adapter.caps();
    if cap.max_send_wr > caps.max_wr.get()
        || cap.max_recv_wr > caps.max_wr.get()
        || cap.max_send_sge > caps.max_sge.get()
        || cap.max_recv_sge > caps.max_sge.get()
        || cap.max_inline_data > caps.max_inline.get()
    {
        return Err(EINVAL);
    }
    Ok(())
}

#[vtable]
impl QpOperations for Verbs {
    fn create_qp(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        pd: Option<&rdma::pd::Pd<Self>>,
        init: &mut QpInit<'_, Self>,
        user: Option<&User<'_, Self>>,
    ) -> Result<NewQp<Qp>> {
        let flags = params::created_flags(ctx, init, user.is_some())?;
        let kind = init.kind();
        check_type(ctx, kind, user.is_some())?;
        check_sizes(ctx, &own_cap(init))?;
        let rnic = is_rnic(ctx, kind);
        let first = if rnic { QpState::Init } else { QpState::Reset };
        let state = KBox::pin_init(new_mutex!(first, "vrnic::Qp"), GFP_KERNEL)?;
        let CreatedQp { qpn, cap, queues } = match (pd, user) {
            _ if kind == QpType::XRC_TGT => {
                let qpn = xrc::create_target(ctx, init)?;
                CreatedQp { qpn, cap: QpCap::default(), queues: Queues::Target }
            }
            (Some(pd), Some(user)) => {
                let created = match init.wq_table() {
                    Some(table) => user::create_spreading(ctx, pd, init, &table, user)?,
                    None => user::create(ctx, device, pd, init, user)?,
                };
                created.map(|memory| Queues::User { memory })
            }
            (Some(pd), None) => kernel::create(ctx, pd, init, flags)?.map(Queues::Kernel),
            (None, _) => return Err(EINVAL),
        };
        let sq_sig_all = init.sq_sig_all();
        let queues = ctx.complete::<command::DestroyQp, _>(qpn, queues, |queues| {
            let initialized = if rnic { modify_command::initialize(ctx, qpn) } else { Ok(()) };
            let added = initialized.and_then(|()| ctx.adapter.add_qp(qpn, init.link.clone()));
            added.inspect_err(|_| match queues {
                Queues::Kernel(_) => kernel::forget(init.cqs(), qpn, init.link),
                Queues::User { memory } => memory.unmap(user),
                Queues::Target => {}
            })
        })?;
        init.set_cap(&cap);
        let shares = init.srq().is_some();
        let creator = user.map(|_| Creator::current());
        let driver = Qp { qpn, state, cap, sq_sig_all, creator, shares, queues };
        // Others get it with the state INIT, which a queue pair of a stream has from the beginning.
        let port = (kind == QpType::DRIVER).then_some(PORT);
        Ok(NewQp { number: qpn.get(), port, driver })
    }

    fn modify_qp(
        ctx: &Ctx<'_>,
        qp: &rdma::queues::qp::Qp<Self>,
        attr: &QpAttr<'_>,
        mask: QpAttrMask,
    ) -> Result {
        match is_rnic(ctx, qp.kind()) {
            false => modify::modify(ctx, qp, attr, mask),
            true => rnic::modify(ctx, qp, attr, mask),
        }
    }

    fn query_qp(ctx: &Ctx<'_>, qp: &rdma::queues::qp::Qp<Self>) -> Result<QpQuery> {
        modify::query(ctx, qp)
    }

    fn destroy_qp(
        ctx: &Ctx<'_>,
        qp: &rdma::queues::qp::Qp<Self>,
        user: Option<&User<'_, Self>>,
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
                kernel::forget([qp.send_cq(), qp.recv_cq()], qp.qpn, qp.link());
            }
            Queues::Target => {}
            Queues::User { memory } => {
                range_end::release(ctx, &ranges, user);
                memory.unmap(user);
            }
        }
        Ok(())
    }

    fn post_send(
        ctx: &Ctx<'_>,
        qp: &rdma::queues::qp::Qp<Self>,
        wrs: &mut SendWrs<'_, Self>,
    ) -> Result {
        qp.kernel()?.post_send(ctx, wrs)
    }

    fn post_recv(ctx: &Ctx<'_>, qp: &rdma::queues::qp::Qp<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        qp.kernel()?.post_recv(ctx, wrs)
    }

    /// Joins a group. The program has to make the network send the group's frames here (rdma_cm
    /// sends the IGMP reports).
    fn attach_mcast(ctx: &Ctx<'_>, qp: &rdma::queues::qp::Qp<Self>, group: Gid) -> Result {
        ctx.execute::<command::AttachMcast>(&Mcast::new(qp.qpn, group))?;
        Ok(())
    }

    fn detach_mcast(ctx: &Ctx<'_>, qp: &rdma::queues::qp::Qp<Self>, group: Gid) -> Result {
        match ctx.execute::<command::DetachMcast>(&Mcast::new(qp.qpn, group)) {
            Err(error) if !ctx.adapter.is_dead() => Err(error),
            _ => Ok(()),
        }
    }
}
