// SPDX-License-Identifier: GPL-2.0
//! Queue pairs of kernel clients: the rings are ours.

use abi::{admin::Opcode, rq};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
};

use super::{
    Hca,
    context::Pd,
    hca::KERNEL_UAR,
    ops::Verbs,
    pages::PageTable,
    poll::Feeder,
    post::WorkQueue,
    qp::{self, Queues},
    srq::KernelSrq,
};
use crate::hw::ring::Ring;
use crate::rdma::{
    self,
    event::QpLink,
    qp::QpInit,
    qp_attr::{QpCap, QpType},
    wr::{RecvWrs, SendWrs},
};

/// The queues of a kernel client.
#[pin_data]
pub(super) struct KernelQp {
    /// Its doorbell slot, once the adapter has it.
    doorbell: Atomic<u32>,
    /// The send queue.
    #[pin]
    pub(super) send: WorkQueue,
    /// The receive queue; one that does not exist if there is a shared one.
    #[pin]
    pub(super) recv: WorkQueue,
    /// The shared queue that receives are taken from.
    srq: Option<Arc<KernelSrq>>,
}

impl KernelQp {
    fn new(
        sq: Option<Ring>,
        rq: Option<Ring>,
        srq: Option<Arc<KernelSrq>>,
        cap: &QpCap,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                doorbell: Atomic::new(0),
                send <- WorkQueue::new(sq, cap.max_send_sge),
                recv <- WorkQueue::new(rq, cap.max_recv_sge),
                srq,
            }),
            GFP_KERNEL,
        )
    }

    fn doorbell(&self) -> u32 {
        self.doorbell.load(Relaxed)
    }

    /// A completion tells that the entries up to and including `index` are free, of the receives or
    /// of the sends.
    pub(super) fn free(&self, recv: bool, index: u32) {
        match &self.srq {
            _ if !recv => self.send.free(index),
            Some(srq) => srq.free(index),
            None => self.recv.free(index),
        }
    }

    /// Posts send work requests.
    pub(super) fn post_send(&self, hca: &Hca<'_>, wrs: &mut SendWrs<'_, Verbs>) -> Result {
        let bells = hca.adapter.doorbells();
        let result = self.send.send(wrs, |pi| match hca.adapter.is_dead() {
            true => {}
            false => bells.ring_sq(self.doorbell(), pi),
        });
        flush_soon(hca);
        result
    }

    /// Posts receive work requests.
    pub(super) fn post_recv(&self, hca: &Hca<'_>, wrs: &mut RecvWrs<'_>) -> Result {
        let bells = hca.adapter.doorbells();
        let result = self.recv.recv(wrs, |pi| bells.set_rq_pi(self.doorbell(), pi));
        flush_soon(hca);
        result
    }

    /// The queues start anew, as the adapter's have (state RESET).
    pub(super) fn reset(&self, hca: &Hca<'_>) {
        self.send.reset();
        self.recv.reset();
        hca.adapter.doorbells().reset_qp(self.doorbell());
    }
}

/// After the death of the adapter requests are flushed when their completion queue is polled;
/// what is posted then must lead to that. Before it is quiet they wait for [`crate::quiesce`].
fn flush_soon(hca: &Hca<'_>) {
    if hca.adapter.is_quiet() {
        hca.adapter.call_handlers();
    }
}

/// A ring for `entries` of `stride` bytes; none for no entries.
fn ring(hca: &Hca<'_>, entries: u32, stride: u32) -> Result<Option<Ring>> {
    if entries == 0 {
        return Ok(None);
    }
    // CAST: logs of 32-bit numbers.
    let log_size = entries.next_power_of_two().trailing_zeros() as u8;
    let log_stride = stride.trailing_zeros() as u8;
    Ring::in_pieces(hca.dma(), log_size, log_stride).map(Some)
}

pub(super) fn create(
    hca: &Hca<'_>,
    pd: &Pd,
    init: &QpInit<'_, Verbs>,
) -> Result<(QpCap, Queues, u32)> {
    if init.kind() == QpType::XRC_INI {
        // The kernel's clients have no way to name the shared receive queue.
        return Err(EOPNOTSUPP);
    }
    let cap = qp::own_cap(init);
    let srq = init.srq().map(|srq| srq.kernel().cloned()).transpose()?;
    let sq = ring(hca, cap.max_send_wr, qp::send_stride(init.kind(), &cap)?)?;
    let rq = ring(hca, cap.max_recv_wr, rq::stride(cap.max_recv_sge).ok_or(EINVAL)?)?;
    let granted = QpCap {
        max_send_wr: sq.as_ref().map_or(0, Ring::size),
        max_recv_wr: rq.as_ref().map_or(0, Ring::size),
        ..cap
    };
    let mut params = qp::params(pd, init, KERNEL_UAR)?;
    // The adapter reads the tables while it executes the command.
    let describe = |ring| PageTable::of_kernel_ring(hca.dma(), ring);
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
    let result = hca.execute(Opcode::CreateQp, &params)?;
    let qpn = result.qpn.get();
    queues.doorbell.store(result.slot.get(), Relaxed);
    let queues = hca.complete(qp::object(qpn), queues, |queues| {
        feed(init, qpn, queues).inspect_err(|_| forget(init.cqs(), qpn, init.link))
    })?;
    Ok((granted, Queues::Kernel(queues), qpn))
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
