// SPDX-License-Identifier: GPL-2.0
//! Creation of queue pairs of kernel clients: the rings are the driver's.

use abi::{Qpn, admin::command, rq};
use kernel::{prelude::*, sync::Arc};

use super::{
    Ctx, Verbs,
    context::Pd,
    ctx::KERNEL_UAR,
    kernel_qp::KernelQp,
    pages::PageTable,
    poll::Feeder,
    qp_params::{self, CreatedQp, own_cap, send_stride, set_rq, set_sq},
};
use crate::{
    hw::ring::{Ring, RingShape},
    rdma::{
        self,
        event::QpLink,
        qp::QpInit,
        qp_attr::{QpCap, QpType},
    },
};

/// Returns a ring for `entries` of `stride` bytes; none for no entries.
fn ring(ctx: &Ctx<'_>, entries: u32, stride: u32) -> Result<Option<Ring>> {
    if entries == 0 {
        return Ok(None);
    }
    Ring::in_pieces(ctx.dma(), RingShape::with_room(entries, stride)).map(Some)
}

pub(super) fn create(
    ctx: &Ctx<'_>,
    pd: &Pd,
    init: &QpInit<'_, Verbs>,
) -> Result<CreatedQp<Arc<KernelQp>>> {
    if init.kind() == QpType::XRC_INI {
        // The kernel's clients have no way to name the shared receive queue.
        return Err(EOPNOTSUPP);
    }
    let cap = own_cap(init);
    let srq = init.srq().map(|srq| srq.kernel().cloned()).transpose()?;
    let sq = ring(ctx, cap.max_send_wr, send_stride(init.kind(), &cap)?)?;
    let rq = ring(ctx, cap.max_recv_wr, rq::stride(cap.max_recv_sge).ok_or(EINVAL)?)?;
    let granted = QpCap {
        max_send_wr: sq.as_ref().map_or(0, Ring::size),
        max_recv_wr: rq.as_ref().map_or(0, Ring::size),
        ..cap
    };
    let mut params = qp_params::params(pd, init, KERNEL_UAR)?;
    // The adapter reads the tables while it executes the command.
    let describe = |ring| PageTable::of_kernel_ring(ctx.dma(), ring);
    let sq_table = sq.as_ref().map(describe).transpose()?;
    let rq_table = rq.as_ref().map(describe).transpose()?;
    if let (Some(ring), Some(table)) = (&sq, &sq_table) {
        set_sq(&mut params, ring.shape(), table.pages());
    }
    if let (Some(ring), Some(table)) = (&rq, &rq_table) {
        set_rq(&mut params, ring.shape(), table.pages());
    }
    let queues = KernelQp::new(sq, rq, srq, &cap)?;
    let result = ctx.execute::<command::CreateQp>(&params)?;
    let qpn = result.qpn;
    queues.set_doorbell(result.slot);
    let queues = ctx.complete::<command::DestroyQp, _>(qpn, queues, |queues| {
        feed(init, qpn, queues).inspect_err(|_| forget(init.cqs(), qpn, init.link))
    })?;
    Ok(CreatedQp { qpn, cap: granted, queues })
}

/// Tells the completion queues whose completions come.
fn feed(init: &QpInit<'_, Verbs>, qpn: Qpn, queues: &Arc<KernelQp>) -> Result {
    let (send_cq, recv_cq) = (init.send_cq()?, init.recv_cq()?);
    let feeder =
        |send, recv| Feeder { link: init.link.clone(), queues: queues.clone(), send, recv };
    if send_cq.cqn == recv_cq.cqn {
        return send_cq.kernel()?.add(qpn, feeder(true, true));
    }
    send_cq.kernel()?.add(qpn, feeder(true, false))?;
    recv_cq.kernel()?.add(qpn, feeder(false, true))
}

/// The inverse of [`feed`].
pub(super) fn forget(cqs: [Option<&rdma::cq::Cq<Verbs>>; 2], qpn: Qpn, link: &QpLink) {
    for cq in cqs.into_iter().flatten() {
        if let Ok(queue) = cq.kernel() {
            queue.remove(qpn, link);
        }
    }
}
