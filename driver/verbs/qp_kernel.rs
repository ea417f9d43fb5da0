// SPDX-License-Identifier: GPL-2.0
//! Creation of queue pairs of kernel clients: the rings are the driver's.

use abi::{admin::command, rq};
use kernel::{
    prelude::*,
    sync::{Arc, atomic::Relaxed},
};

use super::{
    Ctx, Verbs,
    context::Pd,
    ctx::KERNEL_UAR,
    kernel_qp::KernelQp,
    pages::PageTable,
    poll::Feeder,
    qp_params::{self, own_cap, send_stride},
};
use crate::{
    hw::ring::Ring,
    rdma::{
        self,
        event::QpLink,
        qp::QpInit,
        qp_attr::{QpCap, QpType},
    },
};

/// A ring for `entries` of `stride` bytes; none for no entries.
fn ring(ctx: &Ctx<'_>, entries: u32, stride: u32) -> Result<Option<Ring>> {
    if entries == 0 {
        return Ok(None);
    }
    // CAST: logs of 32-bit numbers.
    let log_size = entries.next_power_of_two().trailing_zeros() as u8;
    let log_stride = stride.trailing_zeros() as u8;
    Ring::in_pieces(ctx.dma(), log_size, log_stride).map(Some)
}

pub(super) fn create(
    ctx: &Ctx<'_>,
    pd: &Pd,
    init: &QpInit<'_, Verbs>,
) -> Result<(QpCap, Arc<KernelQp>, u32)> {
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
        let pages = table.pages();
        params.sq_table = pages.table;
        params.sq_page_shift = pages.page_shift;
        params.sq_levels = pages.levels;
        params.sq_log_size = ring.log_size();
        params.sq_log_stride = ring.log_stride();
    }
    if let (Some(ring), Some(table)) = (&rq, &rq_table) {
        let pages = table.pages();
        params.rq_table = pages.table;
        params.rq_page_shift = pages.page_shift;
        params.rq_levels = pages.levels;
        params.rq_log_size = ring.log_size();
        params.rq_log_stride = ring.log_stride();
    }
    let queues = KernelQp::new(sq, rq, srq, &cap)?;
    let result = ctx.execute::<command::CreateQp>(&params)?;
    let qpn = result.qpn.get();
    queues.doorbell.store(result.slot.get(), Relaxed);
    let queues = ctx.complete::<command::DestroyQp, _>(result.qpn, queues, |queues| {
        feed(init, qpn, queues).inspect_err(|_| forget(init.cqs(), qpn, init.link))
    })?;
    Ok((granted, queues, qpn))
}

/// Tells the completion queues whose completions come.
fn feed(init: &QpInit<'_, Verbs>, qpn: u32, queues: &Arc<KernelQp>) -> Result {
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
pub(super) fn forget(cqs: [Option<&rdma::cq::Cq<Verbs>>; 2], qpn: u32, link: &QpLink) {
    for cq in cqs.into_iter().flatten() {
        if let Ok(queue) = cq.kernel() {
            queue.remove(qpn, link);
        }
    }
}
