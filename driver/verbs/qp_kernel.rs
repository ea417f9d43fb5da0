// SPDX-License-Identifier: GPL-2.0
//! Queue pairs of kernel clients: the rings are ours.

use abi::{rq, sq};
use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{Arc, SpinLockIrq},
};

use super::{
    Hca,
    context::Pd,
    hca::{Created, KERNEL_UAR},
    ops::Verbs,
    pages::PageTable,
    poll::Feeder,
    post::{self, Credits, Producer},
    qp::{self, Queues},
};
use crate::rdma::{
    qp::QpInit,
    qp_attr::QpCap,
    wr::{RecvWrs, SendWrs},
};
use crate::ring::Ring;

/// The queues of a kernel client.
#[pin_data]
pub(super) struct KernelQp {
    doorbell: u32,
    credits: Arc<Credits>,
    #[pin]
    send: SpinLockIrq<Producer>,
    #[pin]
    recv: SpinLockIrq<Producer>,
}

impl KernelQp {
    /// Posts send work requests.
    pub(super) fn post_send(&self, hca: &Hca<'_>, wrs: &mut SendWrs<'_>) -> Result {
        post::send(hca, self.doorbell, &mut self.send.lock(), &self.credits, wrs)
    }

    /// Posts receive work requests.
    pub(super) fn post_recv(&self, hca: &Hca<'_>, wrs: &mut RecvWrs<'_>) -> Result {
        post::recv(hca, self.doorbell, &mut self.recv.lock(), &self.credits, wrs)
    }

    /// The queues start anew, as the adapter's have (state RESET).
    pub(super) fn reset(&self, hca: &Hca<'_>) {
        let mut send = self.send.lock();
        let mut recv = self.recv.lock();
        send.reset();
        recv.reset();
        self.credits.reset();
        hca.nic.doorbells().reset_qp(self.doorbell);
    }
}

/// A ring for `entries` of `stride` bytes; none for no entries.
fn ring(hca: &Hca<'_>, entries: u32, stride: Option<u32>) -> Result<Option<Ring>> {
    let stride = stride.ok_or(EINVAL)?;
    if entries == 0 {
        return Ok(None);
    }
    // CAST: logs of 32-bit numbers.
    let log_size = entries.next_power_of_two().trailing_zeros() as u8;
    let log_stride = stride.trailing_zeros() as u8;
    Ring::new(hca.dma(), log_size, log_stride).map(Some)
}

pub(super) fn create<'h, 'a>(
    hca: &'h Hca<'a>,
    pd: &Pd,
    init: &QpInit<'_, Verbs>,
) -> Result<(Created<'h, 'a>, QpCap, Queues)> {
    let cap = init.cap();
    let sq = ring(hca, cap.max_send_wr, sq::stride(cap.max_send_sge, cap.max_inline_data))?;
    let rq = ring(hca, cap.max_recv_wr, rq::stride(cap.max_recv_sge))?;
    let granted = QpCap {
        max_send_wr: sq.as_ref().map_or(0, Ring::size),
        max_recv_wr: rq.as_ref().map_or(0, Ring::size),
        ..cap
    };
    let mut params = qp::params(pd, init, KERNEL_UAR)?;
    if let Some(ring) = &sq {
        let pages = PageTable::contiguous(ring.dma_address()).pages();
        params.sq_table = pages.table;
        params.sq_page_shift = pages.page_shift;
        params.sq_log_size = ring.log_size();
        params.sq_log_stride = ring.log_stride();
    }
    if let Some(ring) = &rq {
        let pages = PageTable::contiguous(ring.dma_address()).pages();
        params.rq_table = pages.table;
        params.rq_page_shift = pages.page_shift;
        params.rq_log_size = ring.log_size();
        params.rq_log_stride = ring.log_stride();
    }
    let credits = Arc::new(Credits::new(), GFP_KERNEL)?;
    let (send_cq, recv_cq) = (init.send_cq()?, init.recv_cq()?);
    let (send_queue, recv_queue) = (send_cq.kernel()?, recv_cq.kernel()?);

    let (result, created) = qp::execute(hca, &params)?;
    let qpn = created.id();
    let feeder = || Feeder::new(qpn, init.link.clone(), credits.clone());
    let (send_feeder, recv_feeder) = (feeder(), feeder());
    let queues = KBox::pin_init(
        pin_init!(KernelQp {
            doorbell: result.slot.get(),
            credits,
            send <- new_spinlock_irq!(Producer::new(sq, cap.max_send_sge), "vrnic::send"),
            recv <- new_spinlock_irq!(Producer::new(rq, cap.max_recv_sge), "vrnic::recv"),
        }),
        GFP_KERNEL,
    )?;
    send_queue.add(send_feeder)?;
    if send_cq.cqn != recv_cq.cqn {
        if let Err(error) = recv_queue.add(recv_feeder) {
            send_queue.remove(qpn);
            return Err(error);
        }
    }
    Ok((created, granted, Queues::Kernel(queues)))
}
