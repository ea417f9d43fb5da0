// SPDX-License-Identifier: GPL-2.0
//! Completion queues of kernel clients.

use abi::{
    cq::{Cqe, Flags, Opcode, STAMP_OFFSET, Status},
    uar::{ARM_COUNT_SHIFT, ARM_NEXT, ARM_SOLICITED},
};
use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc, SpinLockIrq,
        barrier::{Read, dma_mb},
    },
};

use super::{Hca, qp_kernel::KernelQp};
use crate::rdma::{
    cq::Notify,
    event::QpLink,
    wc::{Completions, Wc, WcOpcode, WcOrigin, WcStatus},
};
use crate::ring::Ring;

/// A queue pair whose completions come here.
pub(super) struct Feeder {
    qpn: u32,
    link: QpLink,
    queues: Arc<KernelQp>,
    /// Whether those of its send queue do.
    send: bool,
    /// Whether those of its receive queue do.
    recv: bool,
    /// Entries before this index are of a life of the queue pair that a reset has ended.
    since: u32,
}

impl Feeder {
    /// A queue pair with nothing in the ring yet.
    pub(super) fn new(
        qpn: u32,
        link: QpLink,
        queues: Arc<KernelQp>,
        send: bool,
        recv: bool,
    ) -> Self {
        Self { qpn, link, queues, send, recv, since: 0 }
    }

    /// Whether the entry at `index` is of this queue pair.
    fn feeds(&self, qpn: u32, index: u32) -> bool {
        self.qpn == qpn && !is_before(index, self.since)
    }

    /// Whether there is something for [`Self::flush`].
    fn has_undone(&self) -> bool {
        self.send && self.queues.send.has_undone() || self.recv && self.queues.recv.has_undone()
    }

    /// Completes with an error what an adapter that does nothing any more has left undone.
    fn flush(&self, out: &mut Completions<'_>) {
        let queues = [
            (self.send, &self.queues.send, WcOpcode::Send),
            (self.recv, &self.queues.recv, WcOpcode::Recv),
        ];
        for (_, queue, opcode) in queues.into_iter().filter(|(here, ..)| *here) {
            while !out.is_full() {
                let Some(wr_id) = queue.take_back() else { break };
                out.push(&self.link, &Wc::flushed(wr_id, opcode));
            }
        }
    }
}

/// A completion queue that a kernel client polls.
#[pin_data]
pub(super) struct KernelCq {
    ring: Ring,
    #[pin]
    state: SpinLockIrq<State>,
}

struct State {
    /// Doorbell slot, once the adapter has the queue.
    doorbell: u32,
    /// Consumer index.
    ci: u32,
    /// Arm requests so far.
    arms: u32,
    feeders: KVec<Feeder>,
}

impl KernelCq {
    /// A queue in `ring`.
    pub(super) fn new(ring: Ring) -> impl PinInit<Self> {
        let state = State { doorbell: 0, ci: 0, arms: 0, feeders: KVec::new() };
        pin_init!(Self { ring, state <- new_spinlock_irq!(state, "vrnic::KernelCq") })
    }

    /// The adapter has given it this doorbell slot.
    pub(super) fn set_doorbell(&self, doorbell: u32) {
        self.state.lock().doorbell = doorbell;
    }

    /// Takes note of a queue pair.
    pub(super) fn add(&self, mut feeder: Feeder) -> Result {
        let mut state = self.state.lock();
        // A predecessor of the same number may have left completions.
        feeder.since = self.end(state.ci)?;
        Ok(state.feeders.push(feeder, GFP_ATOMIC)?)
    }

    /// Drops the completions of a queue pair that was reset; the adapter writes no more of them.
    pub(super) fn purge(&self, link: &QpLink) -> Result {
        let mut state = self.state.lock();
        let end = self.end(state.ci)?;
        for feeder in state.feeders.iter_mut().filter(|feeder| feeder.link == *link) {
            feeder.since = end;
        }
        Ok(())
    }

    /// Forgets a queue pair; its completions still in the ring are dropped.
    pub(super) fn remove(&self, link: &QpLink) {
        let mut state = self.state.lock();
        state.feeders.retain(|feeder| feeder.link != *link);
    }

    /// Takes completions.
    pub(super) fn poll(&self, hca: &Hca<'_>, out: &mut Completions<'_>) -> Result {
        // Before the ring is looked at, which the adapter writes to no more if it is.
        let is_quiet = hca.nic.is_quiet();
        let mut state = self.state.lock();
        let first = state.ci;
        let result = self.take(&mut state, out);
        if state.ci != first && !is_quiet {
            hca.nic.doorbells().set_cq_ci(state.doorbell, state.ci);
        }
        if is_quiet {
            state.feeders.iter().for_each(|feeder| feeder.flush(out));
        }
        result
    }

    /// Takes completions from the ring.
    fn take(&self, state: &mut State, out: &mut Completions<'_>) -> Result {
        while !out.is_full() && self.is_ready(state.ci)? {
            let index = state.ci;
            let cqe: Cqe = self.ring.read(index)?;
            state.ci = index.wrapping_add(1);
            let qpn = cqe.qpn.get();
            // The latest, if a number was given again before its last holder was removed here.
            let feeder = state.feeders.iter().rev().find(|feeder| feeder.feeds(qpn, index));
            if let Some(feeder) = feeder {
                feeder.queues.free(cqe.opcode & RECV != 0, cqe.wqe_index.get());
                out.push(&feeder.link, &completion(&cqe));
            }
        }
        Ok(())
    }

    /// Arms the queue; returns whether completions are there already, if asked.
    pub(super) fn arm(&self, hca: &Hca<'_>, notify: Notify) -> Result<bool> {
        let mut state = self.state.lock();
        state.arms = state.arms.wrapping_add(1);
        let kind = if notify.solicited_only { ARM_SOLICITED } else { ARM_NEXT };
        let seen = self.end(state.ci)?;
        let arm = state.arms << ARM_COUNT_SHIFT | kind;
        if hca.nic.is_dead() {
            let ready = seen != state.ci || state.feeders.iter().any(Feeder::has_undone);
            return Ok(notify.report_missed && hca.nic.is_quiet() && ready);
        }
        hca.nic.doorbells().arm_cq(state.doorbell, state.ci, seen, arm);
        Ok(notify.report_missed && self.is_ready(state.ci)?)
    }

    /// The first entry from `index` on that has not been written.
    fn end(&self, mut index: u32) -> Result<u32> {
        while self.is_ready(index)? {
            index = index.wrapping_add(1);
        }
        Ok(index)
    }

    /// Whether entry `index` has been written in this lap.
    fn is_ready(&self, index: u32) -> Result<bool> {
        let ready = self.ring.word(index, STAMP_OFFSET)? == abi::stamp(index);
        // The rest of the entry was written before its stamp.
        dma_mb(Read);
        Ok(ready)
    }
}

/// Whether free-running index `a` is older than `b`.
pub(super) fn is_before(a: u32, b: u32) -> bool {
    // CAST: the sign of the distance is what counts.
    (a.wrapping_sub(b) as i32) < 0
}

/// The bit that marks opcodes of receives.
const RECV: u8 = 0x80;

/// Translates an entry. One of a kind that this driver does not know is an error.
fn completion(cqe: &Cqe) -> Wc {
    let flags = Flags::from_bits_truncate(cqe.flags.get());
    let known = Status::from_raw(cqe.status).map(status).zip(Opcode::from_raw(cqe.opcode));
    let (status, opcode) = match known {
        Some((status, kind)) => (status, opcode(kind)),
        None if cqe.opcode & RECV != 0 => (WcStatus::General, WcOpcode::Recv),
        None => (WcStatus::General, WcOpcode::Send),
    };
    Wc {
        wr_id: cqe.wr_id.get(),
        status,
        opcode,
        vendor_err: cqe.vendor_err.get(),
        byte_len: cqe.byte_len.get(),
        imm: flags.contains(Flags::IMM).then_some(cqe.imm),
        invalidated: flags.contains(Flags::INVALIDATED).then(|| cqe.key.get()),
        src_qp: cqe.src_qpn.get(),
        origin: flags.contains(Flags::GRH).then(|| WcOrigin {
            ipv4: flags.contains(Flags::IPV4),
            smac: cqe.smac,
            vlan: flags.contains(Flags::VLAN).then(|| cqe.vlan.get()),
        }),
    }
}

fn opcode(opcode: Opcode) -> WcOpcode {
    match opcode {
        Opcode::Send | Opcode::SendCmd => WcOpcode::Send,
        Opcode::Write => WcOpcode::RdmaWrite,
        Opcode::Read => WcOpcode::RdmaRead,
        Opcode::CmpSwp => WcOpcode::CompareSwap,
        Opcode::FetchAdd => WcOpcode::FetchAdd,
        Opcode::LocalInv => WcOpcode::LocalInv,
        Opcode::RegMr => WcOpcode::RegMr,
        Opcode::BindMw => WcOpcode::BindMw,
        Opcode::Recv => WcOpcode::Recv,
        Opcode::RecvWriteImm => WcOpcode::RecvRdmaWithImm,
    }
}

fn status(status: Status) -> WcStatus {
    match status {
        Status::Success => WcStatus::Success,
        Status::LocLenErr => WcStatus::LocalLength,
        Status::LocQpOpErr => WcStatus::LocalQpOperation,
        Status::LocProtErr => WcStatus::LocalProtection,
        Status::WrFlushErr => WcStatus::Flushed,
        Status::MwBindErr => WcStatus::WindowBind,
        Status::BadRespErr => WcStatus::BadResponse,
        Status::LocAccessErr => WcStatus::LocalAccess,
        Status::RemInvReqErr => WcStatus::RemoteInvalidRequest,
        Status::RemAccessErr => WcStatus::RemoteAccess,
        Status::RemOpErr => WcStatus::RemoteOperation,
        Status::RetryExcErr => WcStatus::RetryExceeded,
        Status::RnrRetryExcErr => WcStatus::RnrRetryExceeded,
        Status::RemAbortErr => WcStatus::RemoteAborted,
        Status::FatalErr => WcStatus::Fatal,
        Status::GeneralErr => WcStatus::General,
    }
}
