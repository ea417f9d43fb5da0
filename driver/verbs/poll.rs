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

use super::{Hca, post::Credits};
use crate::rdma::{
    cq::Notify,
    event::QpLink,
    wc::{Completions, Wc, WcOpcode, WcStatus},
};
use crate::ring::Ring;

/// A queue pair whose completions come here.
pub(super) struct Feeder {
    /// Its number.
    pub(super) qpn: u32,
    /// For the completions.
    pub(super) link: QpLink,
    /// What its completions free.
    pub(super) credits: Arc<Credits>,
    /// Entries before this index are of a life of the queue pair that a reset has ended.
    since: u32,
}

impl Feeder {
    /// A queue pair with nothing in the ring yet.
    pub(super) fn new(qpn: u32, link: QpLink, credits: Arc<Credits>) -> Self {
        Self { qpn, link, credits, since: 0 }
    }
}

/// A completion queue that a kernel client polls.
#[pin_data]
pub(super) struct KernelCq {
    ring: Ring,
    doorbell: u32,
    #[pin]
    state: SpinLockIrq<State>,
}

struct State {
    /// Consumer index.
    ci: u32,
    /// Arm requests so far.
    arms: u32,
    feeders: KVec<Feeder>,
}

impl KernelCq {
    /// A queue in `ring` with this doorbell slot.
    pub(super) fn new(ring: Ring, doorbell: u32) -> impl PinInit<Self> {
        let state = State { ci: 0, arms: 0, feeders: KVec::new() };
        pin_init!(Self { ring, doorbell, state <- new_spinlock_irq!(state, "vrnic::KernelCq") })
    }

    /// Takes note of a queue pair.
    pub(super) fn add(&self, mut feeder: Feeder) -> Result {
        let mut state = self.state.lock();
        // A predecessor of the same number may have left completions.
        feeder.since = self.end(state.ci)?;
        Ok(state.feeders.push(feeder, GFP_ATOMIC)?)
    }

    /// Drops the completions of a queue pair that was reset; the adapter writes no more of them.
    pub(super) fn purge(&self, qpn: u32) -> Result {
        let mut state = self.state.lock();
        let end = self.end(state.ci)?;
        for feeder in state.feeders.iter_mut().filter(|feeder| feeder.qpn == qpn) {
            feeder.since = end;
        }
        Ok(())
    }

    /// Forgets a queue pair; its completions still in the ring are dropped.
    pub(super) fn remove(&self, qpn: u32) {
        let mut state = self.state.lock();
        state.feeders.retain(|feeder| feeder.qpn != qpn);
    }

    /// Takes completions.
    pub(super) fn poll(&self, hca: &Hca<'_>, out: &mut Completions<'_>) -> Result {
        let mut state = self.state.lock();
        let first = state.ci;
        while !out.is_full() && self.is_ready(state.ci)? {
            let index = state.ci;
            let cqe: Cqe = self.ring.read(index)?;
            state.ci = index.wrapping_add(1);
            let qpn = cqe.qpn.get();
            let feeder = state.feeders.iter().find(|feeder| feeder.qpn == qpn);
            if let Some(feeder) = feeder.filter(|feeder| !is_before(index, feeder.since)) {
                let wc = completion(&cqe)?;
                feeder.credits.free(cqe.opcode & RECV != 0, cqe.wqe_index.get());
                out.push(&feeder.link, &wc);
            }
        }
        if state.ci != first {
            hca.nic.doorbells().set_cq_ci(self.doorbell, state.ci);
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
        hca.nic.doorbells().arm_cq(self.doorbell, state.ci, seen, arm);
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
fn is_before(a: u32, b: u32) -> bool {
    // CAST: the sign of the distance is what counts.
    (a.wrapping_sub(b) as i32) < 0
}

/// The bit that marks opcodes of receives.
const RECV: u8 = 0x80;

/// Translates an entry.
fn completion(cqe: &Cqe) -> Result<Wc> {
    let flags = Flags::from_bits_truncate(cqe.flags.get());
    Ok(Wc {
        wr_id: cqe.wr_id.get(),
        status: status(Status::from_raw(cqe.status).ok_or(EIO)?),
        opcode: opcode(Opcode::from_raw(cqe.opcode).ok_or(EIO)?),
        vendor_err: cqe.vendor_err.get(),
        byte_len: cqe.byte_len.get(),
        imm: flags.contains(Flags::IMM).then_some(cqe.imm),
        src_qp: cqe.src_qpn.get(),
    })
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
