//! The memory of a QP's guest, for its stream.

use std::ops::Range;
use std::sync::Arc;

use vrnic_abi::sq::Class;
use vrnic_abi::{Key, Srqn};
use vrnic_iwarp::rdmap::memory::{
    Destination, Early, Ended, Inbound, Memory, Operation, ReadSource, Refused,
};
use vrnic_iwarp::tcp::{StreamPos, Undone};
use vrnic_iwarp::wire::ddp::Tagged;
use vrnic_iwarp::wire::rdmap::AtomicOp;

use crate::datapath::inbound::{self, Remote};
use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::responder::receives::receive_ahead;
use crate::datapath::responder::{self, Source, outcome};
use crate::datapath::sgl::SgList;
use crate::datapath::turn::TurnContext;
use crate::host::{Awaited, HeldMemory, Host};
use crate::memory::tpt::{Denied, Message, Position, Stream};
use crate::objects::core::Core;
use crate::objects::qp::outstanding::Outstanding;
use crate::objects::qp::takeover::{Moves, Takeover};
use crate::objects::qp::{Qp, Responder};
use crate::slice::{Slice, cost};
use crate::stats::Counter;

/// The memory of both halves of a QP.
pub(in crate::datapath::transport::tcp) struct Reach<'a, H: Host> {
    pub(in crate::datapath::transport::tcp) core: &'a Arc<Core<H>>,
    pub(in crate::datapath::transport::tcp) qp: &'a Arc<Qp<H>>,
    pub(in crate::datapath::transport::tcp) responder: &'a mut Responder,
    pub(in crate::datapath::transport::tcp) outstanding: &'a Outstanding,
    /// The number of the requester for [`HeldMemory::attend`].
    pub(in crate::datapath::transport::tcp) asker: u64,
    pub(in crate::datapath::transport::tcp) moves: &'a mut Moves,
    pub(in crate::datapath::transport::tcp) slice: &'a Slice<'a, H>,
}

impl<H: Host> Reach<'_, H> {
    /// Converts a message, or a segment of one, for the responder.
    fn inbound(&self, inbound: &Inbound) -> Result<inbound::Inbound, Refusal> {
        let (at, len) = (u64::from(inbound.at), u64::from(inbound.len));
        // A tagged segment names the address of its own bytes.
        let (operation, from) = match inbound.operation {
            Operation::Send(None) => (inbound::Operation::Send, at),
            Operation::Send(Some(stag)) => {
                (inbound::Operation::SendInvalidate(Key::new(stag.0)), at)
            }
            Operation::Write(place) => (inbound::Operation::Write(remote(place)), 0),
            Operation::Read(place) => (inbound::Operation::Read(remote(place)), 0),
            Operation::Atomic(place, op) => {
                let word = remote(place);
                let operation = match op {
                    AtomicOp::FetchAdd { add, mask: 0 } => {
                        inbound::Operation::FetchAdd { word, add }
                    }
                    AtomicOp::CompareSwap {
                        compare,
                        compare_mask: u64::MAX,
                        swap,
                        swap_mask: u64::MAX,
                    } => inbound::Operation::CompareSwap { word, compare, swap },
                    _ => return Err(Refusal::Invalid),
                };
                (operation, 0)
            }
            // The WRITE that it follows has been placed.
            Operation::Immediate(_) => (inbound::Operation::Write(remote(Tagged::default())), 0),
        };
        let imm = match inbound.operation {
            Operation::Immediate([a, b, c, d, ..]) => Some([a, b, c, d]),
            _ => None,
        };
        Ok(inbound::Inbound {
            imm,
            solicited: inbound.solicited,
            number: self.responder.message(inbound.number),
            ..self.message(operation, from, len)
        })
    }

    /// Returns a message with `len` bytes after the first `from` bytes.
    fn message(&self, operation: inbound::Operation, from: u64, len: u64) -> inbound::Inbound {
        inbound::Inbound {
            operation,
            length: from + len,
            from,
            imm: None,
            solicited: false,
            src_qpn: self.responder.source_qpn,
            srqn: Srqn::default(),
            number: 0,
        }
    }

    fn try_place(&mut self, inbound: &Inbound, octets: &[u8]) -> Result<(), Refusal> {
        let message = self.inbound(inbound)?;
        let there = PeerContext::patient(self.core, self.qp, self.responder.asker(), self.slice);
        if message.imm.is_some() {
            there.turn.step(Counter::RxPkts);
            return responder::accept(&there, self.responder, &message);
        }
        let mut side = SgList::default();
        responder::find(&there, self.responder, &message, &mut side)?;
        if matches!(inbound.operation, Operation::Read(_)) {
            there.turn.step(Counter::RxPkts);
            return Ok(());
        }
        let len = octets.len() as u64;
        let range = message.from..message.from.saturating_add(len);
        let is_handed = self.moves.placed.as_ref().is_some_and(|it| it.is_of(inbound.number));
        if is_handed || !side.is_immediate::<H>(&there.turn.memory, range) {
            self.hand_over(&there, inbound, &side, octets)?;
        } else {
            self.touch_last(&there, inbound, &side)?;
            side.write::<H>(&there.turn.memory, message.from, octets)
                .map_err(|_| Refusal::Operational)?;
        }
        there.turn.step(Counter::RxPkts);
        there.turn.add(Counter::RxBytes, len);
        self.slice.charge_copy(len);
        there.turn.moved(len);
        Ok(())
    }

    /// Passes octets to memory that the host writes. The last segment of a message is placed when
    /// all octets of the message have arrived there.
    #[cold]
    fn hand_over(
        &mut self,
        there: &PeerContext<'_, H>,
        inbound: &Inbound,
        side: &SgList<'_>,
        octets: &[u8],
    ) -> Result<(), Refusal> {
        let from = if let Operation::Send(_) = inbound.operation { inbound.at } else { 0 };
        let (from, end) = (u64::from(from), inbound.end.0);
        let placed = self.moves.placed.get_or_insert_default();
        placed.turn_to(inbound.number);
        if !placed.has(end) {
            let to = from.saturating_add(octets.len() as u64);
            side.hand_over::<H>(&there.turn.memory, from, octets, placed.progress())
                .map_err(|_| side.refusal(&there.turn, from..to))?;
            placed.reach(end);
            self.touch_last(there, inbound, side)?;
        }
        match self.moves.placed.as_ref().map_or(Awaited::Failed, |placed| placed.awaited()) {
            Awaited::Failed => Err(Refusal::Operational),
            Awaited::Soon if inbound.last => Err(Refusal::Absent),
            _ => Ok(()),
        }
    }

    /// Returns the position after a segment, for entries of the table.
    fn position(&self, end: StreamPos) -> Position {
        Position { stream: self.stream(), at: end.0 }
    }

    fn stream(&self) -> Stream {
        let (qpn, number) = (self.qp.qpn, self.responder.message(0));
        Message { qpn, number }.stream()
    }

    /// Checks the last segment of a WRITE whose key may be valid for one message.
    fn touch_last(
        &self,
        there: &PeerContext<'_, H>,
        inbound: &Inbound,
        side: &SgList<'_>,
    ) -> Result<(), Refusal> {
        match inbound.operation {
            Operation::Write(place) if side.one_touch() && inbound.last => {
                let (key, last) = (remote(place).key, self.position(inbound.end));
                there.turn.tpt.touch_last(key, last).map_err(Refusal::Access)
            }
            _ => Ok(()),
        }
    }

    /// Ends the WRITE whose last segment was placed by a key for one message before the octets in
    /// front of it had arrived. Returns none if this is another message.
    fn reach(&self, there: &PeerContext<'_, H>, inbound: &Inbound) -> Option<Result<(), Refusal>> {
        let Operation::Write(place) = inbound.operation else { return None };
        let (qpn, number) = (self.qp.qpn, self.responder.message(inbound.number));
        let (key, last) = (remote(place).key, self.position(inbound.end));
        let ended = there.turn.tpt.reach(key, Message { qpn, number }, last)?;
        Some(ended.map_err(Refusal::Access))
    }

    fn try_end(&mut self, inbound: &Inbound) -> Result<(), Refusal> {
        let message = self.inbound(inbound)?;
        // The last segment has waited for the octets before it.
        let placed = self.moves.placed.as_ref().filter(|it| it.is_of(inbound.number));
        if placed.is_some_and(|placed| placed.awaited() != Awaited::Nothing) {
            return Err(Refusal::Operational);
        }
        let ended = {
            let there = PeerContext::new(self.core, self.qp, self.slice);
            if let Some(ended) = self.reach(&there, inbound) {
                there.turn.step(message.operation.executed());
                return ended;
            }
            let mut side = SgList::default();
            // A SEND has had its receive since its first segment. With no bytes after that, this
            // call looks it up and takes none.
            let again = inbound::Inbound { from: message.length, ..message };
            if message.imm.is_none() {
                if again.from > 0 {
                    responder::find(&there, self.responder, &again, &mut side)?;
                    self.touch_last(&there, inbound, &side)?;
                }
                there.turn.step(message.operation.executed());
            }
            responder::end(&there, self.responder, &message, &side)?
        };
        let Some(ended) = ended else { return Ok(()) };
        let Self { core, qp, responder, slice, .. } = self;
        outcome::received_after_readers(core, qp, responder, slice, &message, ended)
    }

    /// Places octets of a WRITE or of a SEND after a gap in the stream. Returns whether it did.
    fn try_ahead(&mut self, early: &Early, octets: &[u8]) -> bool {
        let there = PeerContext::new(self.core, self.qp, self.slice);
        // Octets in front of the last segment may have to wait, and it with them.
        if early.last && there.turn.memory.may_wait() {
            return false;
        }
        let mut side = SgList::default();
        let len = octets.len() as u64;
        let (found, from) = match early.destination {
            Destination::Write(place) => {
                let (place, tpt) = (remote(place), &there.turn.tpt);
                let last = early.last.then(|| self.position(early.end));
                // A last segment without payload has the address of other bytes of its message.
                let len = len.max(1);
                let found = responder::find_ahead(&there, self.responder, place, len, &mut side);
                let begins = found.is_ok()
                    && (!side.one_touch() || tpt.touch_ahead(place.key, self.stream(), last));
                (begins, 0)
            }
            Destination::Send { receive, at } => {
                let (at, nth) = (u64::from(at), receive as usize);
                let end = at.saturating_add(len);
                // An empty message only has a completion.
                let found = len > 0 && receive_ahead(&there, self.responder, &mut side, nth, end);
                (found, at)
            }
        };
        if !found || side.write::<H>(&there.turn.memory, from, octets).is_err() {
            return false;
        }
        if len == 0 {
            return true;
        }
        there.turn.step(Counter::RxPkts);
        there.turn.add(Counter::RxBytes, len);
        self.slice.charge_copy(len);
        there.turn.moved(len);
        true
    }

    fn try_atomic(&mut self, inbound: &Inbound) -> Result<u64, Refusal> {
        let message = self.inbound(inbound)?;
        let there = PeerContext::new(self.core, self.qp, self.slice);
        let old = responder::atomic(&there, self.responder, &message)?;
        there.turn.step(message.operation.executed());
        Ok(old)
    }

    /// Moves the QP to the error state, unless the message waits for a receive. Returns the reason
    /// for the peer.
    #[cold]
    fn refuse(&mut self, refusal: Refusal) -> Refused {
        let there = PeerContext::new(self.core, self.qp, self.slice);
        outcome::fail(&there, self.responder, refusal);
        refused(refusal)
    }
}

impl<H: Host> Memory for Reach<'_, H> {
    fn read(&mut self, work: u64, at: u32, into: &mut [u8]) -> Result<(), Undone> {
        let (posted, raw) = self.outstanding.find(work).ok_or(Undone::Gone)?;
        let here = TurnContext::patient(self.core, self.qp, self.asker, self.slice);
        let mut source = SgList::default();
        source.add_source(&here, self.qp.user(), &posted.send, raw).map_err(|_| Undone::Gone)?;
        let range = u64::from(at)..u64::from(at).saturating_add(into.len() as u64);
        here.memory.of_message(work);
        source.announce::<H>(&here.memory, range.start..posted.send.length, into.len() as u64);
        if source.read::<H>(&here.memory, range.start, into).is_err() {
            self.moves.reads = source.fault(&here, range) == Denied::Absent;
            return Err(if self.moves.reads { Undone::Later } else { Undone::Gone });
        }
        if let Some(carried) = posted.command {
            carried.insert(into, at.into());
        }
        self.slice.charge_copy(into.len() as u64);
        here.moved(into.len() as u64);
        Ok(())
    }

    fn store(&mut self, work: u64, at: u32, octets: &[u8]) -> Result<(), Undone> {
        let (posted, raw) = self.outstanding.find(work).ok_or(Undone::Gone)?;
        let here = TurnContext::patient(self.core, self.qp, self.asker, self.slice);
        let mut sink = SgList::default();
        sink.add_sink(&here, self.qp.user(), &posted.send, raw).map_err(|_| Undone::Gone)?;
        let range = u64::from(at)..u64::from(at).saturating_add(octets.len() as u64);
        let is_handed = self.moves.stored.as_ref().is_some_and(|it| it.is_of(work));
        let waits = posted.send.opcode.info().class == Class::Read
            && (is_handed || !sink.is_immediate::<H>(&here.memory, range.clone()));
        if waits {
            let stored = self.moves.stored.get_or_insert_default();
            stored.turn_to(work);
            let ends = range.end == posted.send.length;
            store_later(&here, stored, &sink, octets, &Part { range, ends })?;
        } else {
            sink.write::<H>(&here.memory, range.start, octets).map_err(|_| Undone::Gone)?;
        }
        here.moved(octets.len() as u64);
        Ok(())
    }

    fn store_ahead(&mut self, work: u64, at: u32, octets: &[u8]) -> bool {
        let Some((posted, raw)) = self.outstanding.find(work) else { return false };
        let here = TurnContext::new(self.core, self.qp, self.slice);
        let mut sink = SgList::default();
        let end = u64::from(at).saturating_add(octets.len() as u64);
        // Octets in front of the last ones may have to wait, and these with them.
        let waits = here.memory.may_wait() && end == posted.send.length;
        if waits || sink.add_sink(&here, self.qp.user(), &posted.send, raw).is_err() {
            return false;
        }
        here.moved(octets.len() as u64);
        sink.write::<H>(&here.memory, at.into(), octets).is_ok()
    }

    fn read_source(&mut self, source: &ReadSource, at: u32, into: &mut [u8]) -> Result<(), Undone> {
        let there = PeerContext::patient(self.core, self.qp, self.responder.asker(), self.slice);
        let part = Source {
            remote: remote(source.at),
            at: at.into(),
            left: source.len.saturating_sub(at).into(),
            message: self.responder.message(source.number),
            // The end of the answer is reported by itself.
            last: false,
        };
        match responder::read_on(&there, self.responder, &part, into) {
            Ok(()) => {}
            Err(Refusal::Absent) => {
                self.moves.reads = true;
                return Err(Undone::Later);
            }
            Err(_) => return Err(Undone::Gone),
        }
        self.slice.charge_copy(into.len() as u64);
        there.turn.moved(into.len() as u64);
        Ok(())
    }

    fn answered(&mut self, source: &ReadSource) {
        let ReadSource { at, len, number } = *source;
        let (operation, end) = (Operation::Read(at), StreamPos(0));
        let (at, last, solicited) = (0, true, false);
        // A key that has ended in the meantime needs no further action.
        let _ = self.try_end(&Inbound { operation, at, len, last, solicited, number, end });
    }

    fn place(&mut self, inbound: &Inbound, octets: &[u8]) -> Result<(), Refused> {
        self.try_place(inbound, octets).map_err(|refusal| self.refuse(refusal))
    }

    fn place_ahead(&mut self, early: &Early, octets: &[u8]) -> bool {
        self.try_ahead(early, octets)
    }

    fn is_moving(&self, number: u64) -> bool {
        let placed = self.moves.placed.as_ref().filter(|placed| placed.is_of(number));
        placed.is_some_and(|placed| placed.awaited() == Awaited::Soon)
    }

    fn end(&mut self, inbound: &Inbound) -> Result<Ended, Refused> {
        let ended = self.try_end(inbound).map(|()| Ended::Now);
        ended.map_err(|refusal| self.refuse(refusal))
    }

    fn is_over(&self) -> bool {
        self.slice.charge(cost::FPDU);
        self.slice.is_over()
    }

    fn atomic(&mut self, inbound: &Inbound) -> Result<u64, Refused> {
        self.try_atomic(inbound).map_err(|refusal| self.refuse(refusal))
    }
}

/// The place of octets in a message.
struct Part {
    range: Range<u64>,
    /// True if they are its last ones.
    ends: bool,
}

/// Passes octets of an answer to memory that the host writes. The last ones are stored when all of
/// the message have arrived there.
#[cold]
fn store_later<H: Host>(
    here: &TurnContext<'_, H>,
    stored: &mut Takeover,
    sink: &SgList<'_>,
    octets: &[u8],
    Part { range, ends }: &Part,
) -> Result<(), Undone> {
    if !stored.has(range.end) {
        if sink.hand_over::<H>(&here.memory, range.start, octets, stored.progress()).is_err() {
            let is_absent = sink.fault(here, range.clone()) == Denied::Absent;
            return Err(if is_absent { Undone::Later } else { Undone::Gone });
        }
        stored.reach(range.end);
    }
    match stored.awaited() {
        Awaited::Failed => Err(Undone::Gone),
        Awaited::Soon if *ends => Err(Undone::Later),
        _ => Ok(()),
    }
}

/// Returns the memory that a tagged message refers to.
const fn remote(at: Tagged) -> Remote {
    Remote { addr: at.to, key: Key::new(at.stag.0) }
}

/// Returns the reason of a refusal that the stream reports to the peer.
pub(super) const fn refused(refusal: Refusal) -> Refused {
    match refusal {
        Refusal::NotReady => Refused::NotReady,
        Refusal::Absent => Refused::Later,
        Refusal::Invalid => Refused::Disabled,
        Refusal::TooShort => Refused::TooLong,
        Refusal::Access(denied) => match denied {
            Denied::Foreign => Refused::Foreign,
            Denied::Bounds => Refused::Bounds,
            Denied::Rights | Denied::Touched => Refused::Rights,
            Denied::NotBindable | Denied::InUse => Refused::NotInvalidated,
            Denied::Invalid | Denied::Kind | Denied::Stale => Refused::Invalid,
            Denied::Memory | Denied::Full | Denied::Absent => Refused::Gone,
            // No message asks for a direct transfer.
            Denied::Overrun | Denied::Short | Denied::Early | Denied::Ended => Refused::Gone,
        },
        Refusal::Operational | Refusal::Malformed | Refusal::Unexpected => Refused::Gone,
    }
}
