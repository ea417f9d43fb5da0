// SPDX-License-Identifier: GPL-2.0
//! Queue pairs of kernel clients: the rings are the driver's.

use abi::{
    Qpn,
    SlotIndex,
    admin::{CreateQp, DeviceFeatures, QpFlags, command},
    rq,
    sq::MemFlags, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
};

use super::params::{self, CreatedQp, kernel_send_stride, own_cap, set_rq, set_sq};
use crate::{
    hw::ring::{Ring, RingShape},
    pairing::PORT,
    rdma::{
        event::QpLink,
        qp_attr::{QpCap, QpType},
        queues::cq::Cq,
        queues::qp::QpInit,
        requests::recv_wr::RecvWrs,
        requests::wc::{Completions, Wc, WcOpcode},
        requests::wr::SendWrs,
    },
    verbs::{
        Ctx, Verbs,
        context::Pd,
        ctx::KERNEL_UAR,
        memory::pages::PageTable,
        post::{Command, WorkQueue},
        srq::KernelSrq,
    },
};

/// The queues of a kernel client.
#[pin_data]
pub(in crate::verbs) struct KernelQp {
    /// The doorbell slot, once the adapter has the queue pair.
    doorbell: Atomic<u32>,
    /// The send queue of the QP.
    #[pin]
    pub(super) send: WorkQueue,
    /// The receive queue; one that does not exist if there is a shared one.
    #[pin]
    pub(super) recv: WorkQueue,
    /// The shared queue that receives are taken from.
    srq: Option<Arc<KernelSrq>>,
    /// True if it carries a stream, whose window depends on the receives.
    is_stream: bool,
}

/// What the queues' entries may have.
#[derive(Clone, Copy)]
pub(super) struct SendLimits<'a> {
    /// The sizes.
    cap: &'a QpCap,
    /// The options of registrations.
    mem_flags: MemFlags,
    /// The type of the queue pair.
    kind: QpType,
}

/// Returns the options that registrations of this adapter may have.
fn mem_flags(ctx: &Ctx<'_>) -> MemFlags {
    match ctx.adapter.caps().has(DeviceFeatures::KEY_OPTIONS) {
        true => MemFlags::all(),
        false => MemFlags::ONE_TOUCH,
    }
}

impl KernelQp {
    /// Makes queues of these rings.
    pub(super) fn new(
        sq: Option<Ring>,
        rq: Option<Ring>,
        srq: Option<Arc<KernelSrq>>,
        limits: SendLimits<'_>,
    ) -> Result<Arc<Self>> {
        let SendLimits { cap, mem_flags, kind } = limits;
        Arc::pin_init(
            pin_init!(Self {
                doorbell: Atomic::new(0),
                send <- WorkQueue::new(sq, cap.max_send_sge, mem_flags),
                recv <- WorkQueue::new(rq, cap.max_recv_sge, MemFlags::empty()),
                srq,
                is_stream: kind == QpType::DRIVER,
            }),
            GFP_KERNEL,
        )
    }

    /// Sets its doorbell slot, which the adapter has chosen.
    pub(super) fn set_doorbell(&self, doorbell: SlotIndex) {
        self.doorbell.store(doorbell.get(), Relaxed);
    }

    /// Returns its doorbell slot.
    pub(in crate::verbs) fn doorbell(&self) -> SlotIndex {
        self.doorbell.load(Relaxed).into()
    }

    /// Records that the entries up to and including `index` are free, because a completion has
    /// reported it. `recv` selects the receives.
    pub(in crate::verbs) fn free(&self, recv: bool, index: u32) {
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
        let result = self.recv.recv(wrs, |pi| match self.is_stream && !ctx.adapter.is_dead() {
            true => bells.ring_rq(self.doorbell(), pi),
            false => bells.set_rq_pi(self.doorbell(), pi),
        });
        flush_soon(ctx);
        result
    }

    /// Posts a SCSI command. Returns its Command ID.
    pub(in crate::verbs) fn post_command(&self, ctx: &Ctx<'_>, command: &Command) -> Result<u32> {
        let bells = ctx.adapter.doorbells();
        let result = self.send.command(command, |pi| match ctx.adapter.is_dead() {
            true => {}
            false => bells.ring_sq(self.doorbell(), pi),
        });
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

/// A queue pair, for a completion queue that its completions go to.
pub(in crate::verbs) struct Feeder {
    pub(in crate::verbs) link: QpLink,
    pub(in crate::verbs) queues: Arc<KernelQp>,
    /// True if completions of its send queue go to the completion queue.
    pub(super) send: bool,
    /// True if completions of its receive queue go to the completion queue.
    pub(super) recv: bool,
}

impl Feeder {
    /// Returns whether there is something for [`Self::flush`].
    pub(in crate::verbs) fn has_undone(&self) -> bool {
        self.send && self.queues.send.has_undone() || self.recv && self.queues.recv.has_undone()
    }

    /// Completes the requests that a dead adapter has not executed, with an error.
    pub(in crate::verbs) fn flush(&self, out: &mut Completions<'_>) {
        let queues = [
            (self.send, &self.queues.send, WcOpcode::SEND),
            (self.recv, &self.queues.recv, WcOpcode::RECV),
        ];
        for (_, queue, opcode) in queues.into_iter().filter(|(here, ..)| *here) {
            while !out.is_full() {
                let Some(wr_id) = queue.take_back() else { break };
                out.push(&self.link, &Wc::flushed(wr_id, opcode, PORT));
            }
        }
    }
}

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
    flags: QpFlags,
) -> Result<CreatedQp<Arc<KernelQp>>> {
    if init.kind() == QpType::XRC_INI {
        // The kernel's clients have no way to name the shared receive queue.
        return Err(EOPNOTSUPP);
    }
    let cap = own_cap(init);
    let srq = init.srq().map(|srq| srq.kernel().cloned()).transpose()?;
    let sq = ring(ctx, cap.max_send_wr, kernel_send_stride(init.kind(), &cap)?)?;
    let rq = ring(ctx, cap.max_recv_wr, rq::stride(cap.max_recv_sge).ok_or(EINVAL)?)?;
    let granted = QpCap {
        max_send_wr: sq.as_ref().map_or(0, Ring::size),
        max_recv_wr: rq.as_ref().map_or(0, Ring::size),
        ..cap
    };
    let mut params = CreateQp { uar: KERNEL_UAR, ..params::params(pd, init)? };
    params.flags |= flags.bits();
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
    let limits = SendLimits { cap: &cap, mem_flags: mem_flags(ctx), kind: init.kind() };
    let queues = KernelQp::new(sq, rq, srq, limits)?;
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

/// Removes a queue pair from its completion queues: the inverse of [`feed`].
pub(super) fn forget(cqs: [Option<&Cq<Verbs>>; 2], qpn: Qpn, link: &QpLink) {
    for cq in cqs.into_iter().flatten() {
        if let Ok(queue) = cq.kernel() {
            queue.remove(qpn, link);
        }
    }
}
