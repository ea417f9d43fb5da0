// SPDX-License-Identifier: GPL-2.0
//! The queues of a queue pair of a kernel client.

use abi::SlotIndex;
use kernel::{
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
};

use super::{Ctx, Verbs, post::WorkQueue, srq::KernelSrq};
use crate::{
    hw::ring::Ring,
    rdma::{qp_attr::QpCap, recv_wr::RecvWrs, wr::SendWrs},
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
    /// Makes queues of these rings.
    pub(super) fn new(
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

    /// The adapter has given it this doorbell slot.
    pub(super) fn set_doorbell(&self, doorbell: SlotIndex) {
        self.doorbell.store(doorbell.get(), Relaxed);
    }

    /// Returns its doorbell slot.
    pub(super) fn doorbell(&self) -> SlotIndex {
        self.doorbell.load(Relaxed).into()
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
    pub(super) fn post_send(&self, ctx: &Ctx<'_>, wrs: &mut SendWrs<'_, Verbs>) -> Result {
        let bells = ctx.adapter.doorbells();
        let result = self.send.send(wrs, |pi| match ctx.adapter.is_dead() {
            true => {}
            false => bells.ring_sq(self.doorbell(), pi),
        });
        flush_soon(ctx);
        result
    }

    /// Posts receive work requests.
    pub(super) fn post_recv(&self, ctx: &Ctx<'_>, wrs: &mut RecvWrs<'_>) -> Result {
        let bells = ctx.adapter.doorbells();
        let result = self.recv.recv(wrs, |pi| bells.set_rq_pi(self.doorbell(), pi));
        flush_soon(ctx);
        result
    }

    /// Resets the indices of the queues, as the adapter has done (state RESET).
    pub(super) fn reset(&self, ctx: &Ctx<'_>) {
        self.send.reset();
        self.recv.reset();
        ctx.adapter.doorbells().reset_qp(self.doorbell());
    }
}

/// After the death of the adapter, requests are flushed when their completion queue is polled, so a
/// post must cause such a poll. Until the adapter is quiet, they wait for [`crate::quiesce`].
fn flush_soon(ctx: &Ctx<'_>) {
    if ctx.adapter.is_quiet() {
        ctx.adapter.call_handlers();
    }
}
