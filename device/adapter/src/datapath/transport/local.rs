//! The local path: executes a work request, or a part of a long one, on a peer of this daemon by
//! one copy.

use std::cell::Cell;
use std::ops::Range;

use parking_lot::MutexGuard;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::Type;
use vrnic_abi::sq::{Class, Flags};
use vrnic_abi::{Key, Srqn};

use crate::datapath::disorder::{BLOCK_LEN, Disorder};
use crate::datapath::inbound::{Inbound, Operation, Remote};
use crate::datapath::local_wr::key_place;
use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::responder;
use crate::datapath::responder::outcome;
use crate::datapath::runs::Runs;
use crate::datapath::sgl::{SgList, Side, copy};
use crate::datapath::turn::TurnContext;
use crate::host::{CopyFault, Host};
use crate::memory::tpt::Denied;
use crate::objects::completion::WrError;
use crate::objects::qp::{Ended, Keys, Qp, Responder};
use crate::requests::wqe::SendWqe;

/// Number of bytes for which the host has to wait that are moved at once.
const WAITING_PIECE: u64 = 128 << 10;

/// A work request in progress between a requester and the responder of its peer.
pub(crate) struct Exchange<'e, 'a, H: Host> {
    /// The requester's adapter.
    pub here: &'e TurnContext<'a, H>,
    /// The requester's QP.
    pub qp: &'e Qp<H>,
    /// The work request.
    pub send: &'e SendWqe,
    /// The WQE of the work request.
    pub raw: &'e [u8],
    /// The responder.
    pub there: &'e PeerContext<'a, H>,
    /// Number of bytes of the message that have been moved.
    pub from: u64,
    /// The end of the bytes to move now. Afterwards, the end of the bytes that were moved.
    pub to: Cell<u64>,
    /// The number of the message, which identifies it to keys that are valid for one message.
    pub message: u64,
    /// Maximum number of READs and atomics that the requester may have outstanding.
    pub max_rd_atomic: u8,
    /// The key operations of the work request so far.
    pub keys: Keys,
    /// The order in which the bytes become visible, if that is not the usual one.
    pub disorder: Option<Disorder>,
}

/// The reason for which a work request could not be executed.
pub(crate) enum Stop {
    /// An error of the requester itself.
    Local(WrError),
    /// The responder refuses.
    Remote(Refusal),
    /// Pages of either side are absent, and have been requested.
    Absent,
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Absent => Self::Absent,
            refusal => Self::Remote(refusal),
        }
    }
}

impl Stop {
    fn denied(denied: Denied) -> Self {
        match denied {
            Denied::Absent => Self::Absent,
            denied => Self::Local(denied.into()),
        }
    }

    /// Returns whether the work request fails. Otherwise it is tried again later.
    pub(crate) fn is_failure(&self) -> bool {
        !matches!(self, Self::Absent | Self::Remote(Refusal::NotReady | Refusal::Unexpected))
    }
}

impl<'e, 'a, H: Host> Exchange<'e, 'a, H> {
    /// Moves the bytes, and completes the peer's receive with the last ones. If the message has
    /// invalidated a key of the peer, the receive stays open, and [`Self::arrive`] must be called
    /// when the key's last use has ended.
    ///
    /// # Errors
    /// Returns the side that refuses, and the reason.
    #[inline]
    pub(crate) fn run(
        &self,
        responder: &mut MutexGuard<'_, Responder>,
    ) -> Result<Option<Ended>, Stop> {
        let info = self.send.opcode.info();
        match info.class {
            Class::Send if info.invalidate => {
                self.push(responder, Operation::SendInvalidate(self.send.rkey))
            }
            Class::Send => self.push(responder, Operation::Send),
            Class::Write => self.push(responder, Operation::Write(self.remote())),
            Class::Read => self.read(responder),
            Class::Atomic => self.atomic(responder),
            Class::AtomicWrite => self.atomic_write(responder),
            Class::Flush => self.flush(responder),
            // Such work requests involve no peer.
            Class::Local => Err(Stop::Local(Status::LocQpOpErr.into())),
        }
    }

    /// Returns the reason why the work request stops if the peer refuses it as invalid: the
    /// refusal, or else an error of the requester's own memory, which is checked before.
    pub(crate) fn refused_as_invalid(&self) -> Stop {
        let own = SgList::default().add_own(self.here, self.qp.user(), self.send, self.raw);
        own.map_or_else(Stop::denied, |()| Stop::Remote(Refusal::Invalid))
    }

    /// Completes the peer's receive of a message that has invalidated a key.
    ///
    /// # Errors
    /// Returns an error if the peer's CQ has no room.
    pub(crate) fn arrive(&self, responder: &mut Responder) -> Result<(), Stop> {
        let inbound = self.inbound(Operation::Send);
        let ended = self.keys.ended;
        Ok(self.there.act(|| outcome::received(self.there, responder, &inbound, ended))?)
    }

    /// Returns the message as the responder sees it.
    #[inline(always)]
    fn inbound(&self, operation: Operation) -> Inbound {
        let xrc = self.qp.kind == Type::XrcIni;
        Inbound {
            operation,
            length: self.send.length,
            from: self.from,
            imm: self.send.imm(),
            solicited: self.send.flags.contains(Flags::SOLICITED),
            src_qpn: self.qp.qpn,
            srqn: if xrc { SendWqe::xrc_srqn(self.raw) } else { Srqn::default() },
            number: self.message,
        }
    }

    /// Returns the responder's memory that the work request refers to.
    fn remote(&self) -> Remote {
        Remote { addr: self.send.raddr, key: self.send.rkey }
    }

    /// Returns whether the message ends with the bytes to move now, or with those that were moved.
    pub(crate) fn ends(&self) -> bool {
        self.to.get() == self.send.length
    }

    /// Returns the order in which the bytes become visible, if a rule for faults changes it.
    #[cold]
    pub(crate) fn order(&self, responder: &mut Responder) -> Option<Disorder> {
        let Self { here, qp, send, from, .. } = *self;
        let moves = matches!(send.opcode.info().class, Class::Send | Class::Write | Class::Read);
        if send.length == 0 || !moves {
            return None;
        }
        let relaxed = || if from == 0 { self.is_relaxed(responder) } else { None };
        let seed = here.core.injection.order(here.faults_here(), qp.qpn, send, relaxed)?;
        Some(Disorder::new(send.length, seed))
    }

    /// Returns whether all regions to which the message goes allow any order of writes, or `None`
    /// if it is refused.
    fn is_relaxed(&self, responder: &mut Responder) -> Option<bool> {
        let mut target = SgList::default();
        if self.send.opcode.info().class == Class::Read {
            self.add_sink(&mut target).ok()?;
        } else {
            let inbound = self.inbound(Operation::of(self.send)?);
            let find = || responder::find(self.there, responder, &inbound, &mut target);
            self.there.act(find).ok()?;
        }
        Some(target.is_relaxed())
    }

    /// Executes a SEND or a WRITE, whose bytes go from the requester to the responder.
    #[inline]
    fn push(&self, responder: &mut Responder, operation: Operation) -> Result<Option<Ended>, Stop> {
        let Self { here, there, .. } = *self;
        let inbound = self.inbound(operation);
        let (mut source, mut target) = (SgList::default(), SgList::default());
        source.add_source(here, self.qp.user(), self.send, self.raw).map_err(Stop::denied)?;
        there.act(|| {
            responder::find(there, responder, &inbound, &mut target)?;
            // The receive must exist before any bytes are placed.
            responder::accept(there, responder, &inbound)
        })?;
        let from = Side { list: &source, memory: &here.memory };
        let to = Side { list: &target, memory: &there.turn.memory };
        self.copy(from, to, CopyFault::Source)?;
        if !self.ends() {
            return Ok(None);
        }
        if let Some(key) = self.keys.command {
            self.insert_key(&target, key)?;
        }
        Ok(there.act(|| responder::end(there, responder, &inbound, &target))?)
    }

    /// Stores the key of a command in the message that has been placed.
    #[cold]
    fn insert_key(&self, target: &SgList<'_>, key: Key) -> Result<(), Stop> {
        let (status, vendor_err) = (Status::LocQpOpErr, Denied::Bounds as u32);
        let at = key_place(self.qp, self.send, self.raw)
            .ok_or(Stop::Local(WrError { status, vendor_err }))?;
        target
            .write::<H>(&self.there.turn.memory, at, &key.get().to_be_bytes())
            .map_err(|_| self.stop(target, false, at..at.saturating_add(4)))
    }

    /// Executes a READ, whose bytes go from the responder to the requester.
    fn read(&self, responder: &mut Responder) -> Result<Option<Ended>, Stop> {
        self.may_read()?;
        let Self { here, there, .. } = *self;
        let inbound = self.inbound(Operation::Read(self.remote()));
        let (mut source, mut target) = (SgList::default(), SgList::default());
        self.add_sink(&mut target)?;
        there.act(|| responder::find(there, responder, &inbound, &mut source))?;
        let from = Side { list: &source, memory: &there.turn.memory };
        let to = Side { list: &target, memory: &here.memory };
        self.copy(from, to, CopyFault::Target)?;
        if !self.ends() {
            return Ok(None);
        }
        Ok(there.act(|| responder::end(there, responder, &inbound, &source))?)
    }

    /// Executes an atomic operation. The old value of the word goes to the requester.
    fn atomic(&self, responder: &mut Responder) -> Result<Option<Ended>, Stop> {
        self.may_read()?;
        let Self { here, there, .. } = *self;
        let operation = Operation::of(self.send).ok_or(Stop::Local(Status::LocQpOpErr.into()))?;
        let inbound = self.inbound(operation);
        // The place of the result is checked first, because a change of the word cannot be undone.
        let mut target = SgList::default();
        self.add_sink(&mut target)?;
        let result = Runs::find(&target, 0..8).ok_or_else(|| self.stop(&target, true, 0..8))?;
        if target.has_ranges() || !target.is_immediate::<H>(&here.memory, 0..8) {
            return Err(Stop::denied(Denied::Memory));
        }
        let old = there.act(|| responder::atomic(there, responder, &inbound))?;
        let written = result.write::<H>(&here.memory, &old.to_le_bytes());
        written.map(|()| None).ok_or_else(|| Stop::denied(Denied::Memory))
    }

    /// Executes an ATOMIC WRITE.
    fn atomic_write(&self, responder: &mut Responder) -> Result<Option<Ended>, Stop> {
        self.may_read()?;
        let Self { here, there, .. } = *self;
        let inbound = self.inbound(Operation::AtomicWrite(self.remote()));
        let mut source = SgList::default();
        source.add_source(here, self.qp.user(), self.send, self.raw).map_err(Stop::denied)?;
        let mut bytes = [0; 8];
        source
            .read::<H>(&here.memory, 0, &mut bytes)
            .map_err(|_| self.stop(&source, true, 0..8))?;
        there.act(|| responder::flush::atomic_write(there, responder, &inbound, bytes))?;
        Ok(None)
    }

    /// Executes a FLUSH.
    fn flush(&self, responder: &mut Responder) -> Result<Option<Ended>, Stop> {
        self.may_read()?;
        let Self { there, .. } = *self;
        let operation = Operation::of(self.send).ok_or(Stop::Local(Status::LocQpOpErr.into()))?;
        let inbound = self.inbound(operation);
        there.act(|| responder::flush::flush(there, responder, &inbound))?;
        Ok(None)
    }

    /// Adds the requester's own memory, to be written.
    fn add_sink(&self, side: &mut SgList<'e>) -> Result<(), Stop> {
        side.add_sink(self.here, self.qp.user(), self.send, self.raw).map_err(Stop::denied)
    }

    /// Checks that the requester has resources for READs and atomics.
    fn may_read(&self) -> Result<(), Stop> {
        if self.max_rd_atomic == 0 { Err(Stop::Local(Status::LocQpOpErr.into())) } else { Ok(()) }
    }

    /// Returns the reason for which the bytes `range` of a side, which is the requester's own or
    /// that of the responder, could not be moved.
    #[cold]
    fn stop(&self, side: &SgList<'_>, own: bool, range: Range<u64>) -> Stop {
        if own {
            Stop::denied(side.fault(self.here, range))
        } else {
            side.refusal(&self.there.turn, range).into()
        }
    }

    /// Returns the reason for which the bytes `range` could not be copied from the first list to
    /// the second. Pages that are absent at either end are requested.
    #[cold]
    fn stop_of_copy(
        &self,
        lists: [&SgList<'_>; 2],
        fault: CopyFault,
        own: CopyFault,
        range: Range<u64>,
    ) -> Stop {
        let [source, target] = lists;
        let (failed, other) =
            if fault == CopyFault::Source { (source, target) } else { (target, source) };
        let stop = self.stop(failed, fault == own, range.clone());
        if matches!(stop, Stop::Absent) && !other.has(range.start, range.end) {
            return self.stop(other, fault != own, range);
        }
        stop
    }

    /// Copies bytes piece by piece, and sets [`Self::to`] to the end of the copied bytes when the
    /// slice is over. `own` is the side whose fault is the requester's.
    #[inline]
    fn copy(
        &self,
        source: Side<'_, H::Held<'_>>,
        target: Side<'_, H::Held<'_>>,
        own: CopyFault,
    ) -> Result<(), Stop> {
        let (mut at, end) = (self.from, self.to.get());
        loop {
            let (next, [from, to]) = match &self.disorder {
                None => {
                    let next = at + self.piece(source, target, at..end);
                    (next, [at, next])
                }
                Some(disorder) => self.next_block(disorder, at),
            };
            if let Err(fault) = copy::<H>(source, target, from, to) {
                let lists = [source.list, target.list];
                let stop = self.stop_of_copy(lists, fault, own, from..to);
                if matches!(stop, Stop::Absent) && at > self.from {
                    // The rest is moved later.
                    self.to.set(at);
                    return Ok(());
                }
                return Err(stop);
            }
            let moved = to - from;
            self.here.slice.charge_copy(moved);
            self.there.turn.moved(moved);
            self.here.moved(moved);
            at = next;
            if at >= end || self.here.slice.is_over() {
                self.to.set(at);
                return Ok(());
            }
        }
    }

    /// Returns how many of the bytes `range` to copy at once. Bytes for which the host has to wait
    /// have long pieces, because each piece waits once. Those of a range are moved by themselves.
    #[inline]
    fn piece(
        &self,
        source: Side<'_, H::Held<'_>>,
        target: Side<'_, H::Held<'_>>,
        range: Range<u64>,
    ) -> u64 {
        let left = range.end - range.start;
        if source.list.has_ranges() || target.list.has_ranges() {
            let len = source.list.part_len(range.start, left.min(WAITING_PIECE));
            return target.list.part_len(range.start, len);
        }
        let long = range.start..range.end.min(range.start.saturating_add(WAITING_PIECE));
        if source.list.is_immediate::<H>(source.memory, long.clone())
            && target.list.is_immediate::<H>(target.memory, long)
        {
            return self.here.slice.piece(left);
        }
        left.min(WAITING_PIECE)
    }

    /// Returns the end of the block that begins at `at` in the usual order, and the bytes of the
    /// block that is moved instead: from and to.
    #[cold]
    fn next_block(&self, disorder: &Disorder, at: u64) -> (u64, [u64; 2]) {
        ((at + BLOCK_LEN).min(self.send.length), disorder.block(at / BLOCK_LEN))
    }
}
