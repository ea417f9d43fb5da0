// SPDX-License-Identifier: GPL-2.0
//! Completion queues of kernel clients.

use core::mem::offset_of;

use abi::{
    Qpn, SlotIndex,
    cq::{Cqe, Flags, Opcode, STAMP_OFFSET, Status},
    doorbell::ArmRequest,
    uar::{ARM_NEXT, ARM_SOLICITED, CqState},
};
use kernel::{
    new_mutex, new_spinlock_irq,
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
    sync::{
        Mutex, SpinLockIrq,
        barrier::{Read, dma_mb},
    },
};

use zerocopy::IntoBytes;

use super::{
    Ctx,
    consumer::{Consumer, Entries, NO_QPN},
    qp::kernel::Feeder,
};
use crate::direct::work;
use crate::hw::ring::Ring;
use crate::pairing::PORT;
use crate::rdma::{
    event::QpLink,
    queues::cq::Notify,
    requests::wc::{Completions, OwnWc, Wc, WcOpcode, WcOrigin, WcStatus},
};

/// A completion queue that a kernel client polls.
#[pin_data]
pub(super) struct KernelCq {
    /// True if the adapter may hold entries back.
    holding: bool,
    #[pin]
    state: SpinLockIrq<State>,
    /// Held while the queue moves to another ring.
    #[pin]
    moving: Mutex<()>,
}

struct State {
    ring: Ring,
    /// Doorbell slot, once the adapter has the queue.
    doorbell: SlotIndex,
    consumer: Consumer,
    /// The last arm request.
    armed: ArmRequest,
    /// The queue pairs, by number.
    feeders: RBTree<u32, Feeder>,
}

impl KernelCq {
    /// Creates a queue in `ring`.
    pub(super) fn new(ring: Ring, holding: bool) -> impl PinInit<Self> {
        let (consumer, feeders) = (Consumer::new(), RBTree::new());
        let (doorbell, armed) = (SlotIndex::default(), ArmRequest::default());
        let state = State { ring, doorbell, consumer, armed, feeders };
        pin_init!(Self {
            holding,
            state <- new_spinlock_irq!(state, "vrnic::KernelCq"),
            moving <- new_mutex!((), "vrnic::KernelCq::moving"),
        })
    }

    /// Continues in another ring. `switch` lets the adapter do so, and returns the index of the
    /// first entry there. Completions may be taken meanwhile.
    ///
    /// # Errors
    ///
    /// Returns the errors of `switch`, after which nothing has changed, and `EIO` if the adapter
    /// has died. Returns false if the index cannot be right, after which the queue gets no more
    /// completions.
    pub(super) fn move_to(
        &self,
        ctx: &Ctx<'_>,
        ring: Ring,
        switch: impl FnOnce() -> Result<u32>,
    ) -> Result<bool> {
        let _moving = self.moving.lock();
        let before = self.state.lock().consumer.index.wrapping_sub(1);
        // No entry of the first lap has this stamp.
        let stamp = abi::stamp(before);
        (0..ring.size()).try_for_each(|place| ring.set_word(place, STAMP_OFFSET, stamp))?;
        let first = switch()?;
        let mut state = self.state.lock();
        // The requests may have been flushed already, whose completions the new ring has, too.
        if ctx.adapter.is_quiet() {
            return Err(EIO);
        }
        let State { ring: old, consumer, .. } = &mut *state;
        let moved = consumer.move_to(old, &ring, first)?;
        let old = core::mem::replace(old, ring);
        drop(state);
        // Its memory is freed without the lock.
        drop(old);
        Ok(moved)
    }

    /// Sets its doorbell slot, which the adapter has chosen.
    pub(super) fn set_doorbell(&self, doorbell: SlotIndex) {
        self.state.lock().doorbell = doorbell;
    }

    /// Records a queue pair. It replaces an earlier one of the same number.
    pub(super) fn add(&self, qpn: Qpn, feeder: Feeder) -> Result {
        let qpn = qpn.get();
        let node = RBTreeNode::new(qpn, feeder, GFP_KERNEL)?;
        // Completions in a ring that is about to be used are found only after that.
        let _moving = self.moving.lock();
        let mut state = self.state.lock();
        // The earlier one may have left completions.
        state.forget(qpn)?;
        let old = state.feeders.insert(node);
        // It is freed after the lock was released.
        drop(state);
        drop(old);
        Ok(())
    }

    /// Drops the completions of a queue pair that was reset; the adapter writes no more of them.
    pub(super) fn purge(&self, qpn: Qpn) -> Result {
        let _moving = self.moving.lock();
        self.state.lock().forget(qpn.get())
    }

    /// Forgets a queue pair, unless another has got its number since; its completions still in the
    /// ring are dropped.
    pub(super) fn remove(&self, qpn: Qpn, link: &QpLink) {
        let qpn = qpn.get();
        let mut state = self.state.lock();
        if state.feeders.get(&qpn).is_none_or(|feeder| feeder.link != *link) {
            return;
        }
        let old = state.feeders.remove_node(&qpn);
        drop(state);
        drop(old);
    }

    /// Takes completions.
    pub(super) fn poll(&self, ctx: &Ctx<'_>, out: &mut Completions<'_>) -> Result {
        // This is checked before the ring is read: if the adapter is quiet, it no longer writes to
        // the ring.
        let is_quiet = ctx.adapter.is_quiet();
        let mut state = self.state.lock();
        let first = state.consumer.index;
        let result = state.take(out);
        if state.consumer.index != first && !is_quiet {
            let (doorbells, index) = (ctx.adapter.doorbells(), state.consumer.index);
            if self.holding {
                doorbells.free_held_cq(state.doorbell, index);
            } else {
                doorbells.set_cq_ci(state.doorbell, index);
            }
        }
        if is_quiet {
            state.feeders.values().for_each(|feeder| feeder.flush(out));
        }
        result
    }

    /// Returns its state, as the adapter has stored it.
    ///
    /// # Errors
    ///
    /// `EIO` if the adapter has died.
    pub(super) fn condition(&self, ctx: &Ctx<'_>) -> Result<CqState> {
        let doorbell = self.state.lock().doorbell;
        ctx.adapter.doorbells().cq_state(doorbell).filter(|_| !ctx.adapter.is_dead()).ok_or(EIO)
    }

    /// Arms the queue. Earlier requests since the last event stay. Returns whether completions are
    /// there already, if asked.
    pub(super) fn arm(&self, ctx: &Ctx<'_>, notify: Notify) -> Result<bool> {
        let mut state = self.state.lock();
        let kind = if notify.solicited_only { ARM_SOLICITED } else { ARM_NEXT };
        let (ci, seen) = (state.consumer.index, state.consumer.end(&state.ring)?);
        if ctx.adapter.is_dead() {
            let ready = seen != ci || state.feeders.values().any(Feeder::has_undone);
            return Ok(notify.report_missed && ctx.adapter.is_quiet() && ready);
        }
        let doorbells = ctx.adapter.doorbells();
        let taken = doorbells.taken_arm(state.doorbell).unwrap_or(state.armed.word);
        state.armed = state.armed.then(kind, seen, taken);
        doorbells.arm_cq(state.doorbell, ci, state.armed);
        Ok(notify.report_missed && state.consumer.has_next(&state.ring)?)
    }
}

impl State {
    /// Takes completions from the ring.
    fn take(&mut self, out: &mut Completions<'_>) -> Result {
        let Self { ring, consumer, feeders, .. } = self;
        let mut round = consumer.round(ring);
        while !out.is_full() {
            let Some(index) = round.next()? else { break };
            let cqe: Cqe = ring.read(index)?;
            if let Some(feeder) = feeders.get(&cqe.qpn.get()) {
                feeder.queues.free(cqe.opcode & RECV != 0, cqe.wqe_index.get());
                out.push(&feeder.link, &completion(&cqe));
            }
        }
        Ok(())
    }

    /// Drops the completions of a queue pair that are in the ring.
    fn forget(&self, qpn: u32) -> Result {
        self.consumer.forget(&self.ring, qpn)
    }
}

impl Entries for Ring {
    type Error = Error;

    fn size(&self) -> u32 {
        Ring::size(self)
    }

    fn stamp(&self, index: u32) -> Result<u32> {
        let stamp = self.word(index, STAMP_OFFSET)?;
        dma_mb(Read);
        Ok(stamp)
    }

    fn owner(&self, index: u32) -> Result<u32> {
        self.word(index, QPN_OFFSET)
    }

    fn disown(&self, index: u32) -> Result {
        self.set_word(index, QPN_OFFSET, NO_QPN)
    }

    fn copy(&self, index: u32, to: &Self) -> Result {
        let cqe: Cqe = self.read(index)?;
        to.write(index, cqe.as_bytes())
    }
}

/// Offset of the queue pair's number in an entry.
// CAST: below 64.
const QPN_OFFSET: u32 = offset_of!(Cqe, qpn) as u32;

/// The bit that marks opcodes of receives.
const RECV: u8 = 0x80;

/// Translates an entry. One of a kind that this driver does not know is an error.
fn completion(cqe: &Cqe) -> Wc {
    let flags = Flags::from_bits_truncate(cqe.flags.get());
    let known = Status::from_raw(cqe.status).map(status).zip(Opcode::from_raw(cqe.opcode));
    let (status, opcode) = match known {
        Some((status, kind)) => (status, opcode(kind)),
        None if cqe.opcode & RECV != 0 => (WcStatus::General, WcOpcode::RECV),
        None => (WcStatus::General, WcOpcode::SEND),
    };
    let invalidated = flags.contains(Flags::INVALIDATED) && !flags.contains(Flags::COMMAND);
    Wc {
        wr_id: cqe.wr_id.get(),
        status,
        opcode,
        port: PORT,
        vendor_err: cqe.vendor_err.get(),
        byte_len: cqe.byte_len.get(),
        imm: flags.contains(Flags::IMM).then_some(cqe.imm),
        invalidated: invalidated.then(|| cqe.key.get()),
        own: own(cqe, flags),
        src_qp: cqe.src_qpn.get(),
        origin: flags.contains(Flags::GRH).then(|| WcOrigin {
            ipv4: flags.contains(Flags::IPV4),
            smac: cqe.smac,
            vlan: flags.contains(Flags::VLAN).then(|| cqe.vlan.get()),
        }),
    }
}

/// Returns what `direct.h` has for completions of iSCSI.
fn own(cqe: &Cqe, flags: Flags) -> Option<OwnWc> {
    if flags.contains(Flags::COMMAND) {
        let ended = flags.contains(Flags::INVALIDATED);
        let flags = work::EXECUTED | if ended { work::ENDED } else { 0 };
        return Some(OwnWc { flags, word: u32::from_ne_bytes(cqe.imm) });
    }
    let is_command = cqe.opcode == Opcode::SendCmd as u8;
    is_command.then(|| OwnWc { flags: 0, word: cqe.key.get() })
}

fn opcode(opcode: Opcode) -> WcOpcode {
    match opcode {
        Opcode::RegMr => WcOpcode::REG_MR,
        Opcode::SendCmd => work::COMMAND,
        other => other.wc_opcode().map_or(work::COMPLETION, WcOpcode::new),
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
