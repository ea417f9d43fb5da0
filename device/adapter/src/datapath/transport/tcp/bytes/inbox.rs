//! Puts the bytes that arrive into receives, one after the other. A byte that arrives before others
//! goes to its final place if that is known.

use vrnic_abi::connection::RELEASE_WORD;
use vrnic_abi::cq::Status;
use vrnic_abi::sq::MAX_MESSAGE;
use vrnic_tcp::{Connection, Delivered, Delivery, Offered, Sink, StreamPos, Then};

use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::responder::outcome;
use crate::datapath::responder::receives::{length_ahead, next, receive_ahead, write};
use crate::datapath::sgl::SgList;
use crate::host::Host;
use crate::objects::completion::Completion;
use crate::objects::qp::Responder;
use crate::objects::qp::tcp::bytes::receives::{Receives, StreamEnd};
use crate::slice::cost;
use crate::stats::Counter;

/// Maximum window in bytes. TCP stores bytes that the receives cannot take, up to this number.
pub(crate) const WINDOW: u32 = 1 << 20;

/// The receives of a QP.
pub(in crate::datapath::transport::tcp) struct Inbox<'a, 't, H: Host> {
    pub(in crate::datapath::transport::tcp) there: &'a PeerContext<'t, H>,
    pub(in crate::datapath::transport::tcp) responder: &'a mut Responder,
    pub(in crate::datapath::transport::tcp) receives: &'a mut Receives,
}

impl<H: Host> Inbox<'_, '_, H> {
    /// Returns the number of bytes for which the receive in progress has room, after taking the
    /// next one if there is none in progress. Returns `None` if none is posted.
    ///
    /// # Errors
    /// The reason for which the queue or the receive is faulty. A receive without room is.
    fn room(&mut self) -> Result<Option<u64>, Refusal> {
        if self.responder.current.is_none() {
            self.responder.current = next(self.there, self.responder)?;
            self.receives.filled = 0;
        }
        let Some(recv) = &self.responder.current else { return Ok(None) };
        let total = recv.segments.as_ref().ok_or(Refusal::Malformed)?.total();
        let room = total.min(MAX_MESSAGE.into()).saturating_sub(self.receives.filled);
        if room == 0 { Err(Refusal::TooShort) } else { Ok(Some(room)) }
    }

    /// Puts bytes into receives, and completes those that are full, or end with PSH. Returns the
    /// number of bytes for which there were receives. `write` is false if the bytes are there
    /// already.
    ///
    /// # Errors
    /// The reason for which a receive cannot take bytes.
    fn put(&mut self, bytes: Bytes<'_>) -> Result<usize, Refusal> {
        let mut done = 0;
        while done < bytes.len() {
            if self.there.turn.slice.is_over() && bytes.may_wait() && done > 0 {
                self.receives.tired = true;
                break;
            }
            let Some(room) = self.room()? else { break };
            let most = room.min(self.receives.until_mark());
            let count = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len() - done);
            if let Bytes::New(bytes) = bytes {
                let part = bytes.get(done..done + count).unwrap_or_default();
                write(self.there, self.responder, self.receives.filled, part)?;
            }
            done += count;
            let pushed = self.receives.advance(count as u64);
            if pushed || count as u64 == room {
                self.complete()?;
            }
        }
        Ok(done)
    }

    /// Returns the number of bytes for which a receive has room: 0 is the receive in progress.
    fn length(&mut self, nth: usize) -> Option<u64> {
        let length = length_ahead(self.there, self.responder, nth)?;
        Some(length.min(MAX_MESSAGE.into()))
    }

    /// Completes the receive in progress.
    fn complete(&mut self) -> Result<(), Refusal> {
        let recv = self.responder.current.take().ok_or(Refusal::NotReady)?;
        let filled = std::mem::take(&mut self.receives.filled);
        let completion = Completion {
            byte_len: u32::try_from(filled).unwrap_or(u32::MAX),
            ..Completion::of_receive(self.there.qp.qpn, &recv, Status::Success)
        };
        self.there.turn.step(Counter::RxSendReq);
        outcome::complete(self.there, self.responder, &completion)
    }

    /// Moves the QP to the error state.
    #[cold]
    fn fail(&mut self, refusal: Refusal) {
        outcome::fail(self.there, self.responder, refusal);
    }

    /// Puts bytes of the guest's kernel into receives that are posted now. Returns whether all of
    /// them are in receives.
    pub(super) fn deliver_early(&mut self) -> bool {
        if self.receives.early().is_empty() {
            return true;
        }
        let early = self.receives.take_early();
        let put = self.put(Bytes::New(early.bytes()));
        self.receives.put_back(early);
        if let Err(refusal) = put {
            self.fail(refusal);
        }
        self.receives.early().is_empty()
    }

    /// Tells the program that the stream has ended: the receive in progress completes, and the next
    /// one without bytes.
    pub(super) fn tell_end(&mut self) {
        if self.receives.end != StreamEnd::Due || !self.receives.early().is_empty() {
            return;
        }
        let told = self.end();
        match told {
            Ok(true) => self.receives.end = StreamEnd::Told,
            Ok(false) => {}
            Err(refusal) => self.fail(refusal),
        }
    }

    /// Returns whether there was a receive for the end.
    fn end(&mut self) -> Result<bool, Refusal> {
        if self.responder.current.is_some() && self.receives.filled > 0 {
            self.complete()?;
        }
        if self.room()?.is_none() {
            return Ok(false);
        }
        self.complete()?;
        Ok(true)
    }

    /// Completes the receives that are posted with the bytes that they have: the one in progress
    /// may have some, all others have none. Returns whether none is left.
    pub(super) fn give_back(&mut self) -> bool {
        while !self.there.turn.slice.is_over() {
            if self.responder.current.is_none() {
                match next(self.there, self.responder) {
                    Ok(Some(recv)) => self.responder.current = Some(recv),
                    Ok(None) => return true,
                    Err(refusal) => {
                        self.fail(refusal);
                        return true;
                    }
                }
            }
            self.there.turn.slice.charge(cost::REQUEST);
            if let Err(refusal) = self.complete() {
                self.fail(refusal);
                return true;
            }
        }
        false
    }

    /// Completes the receive in progress with the bytes that it has, if the program has asked for
    /// them. Bytes that were placed after a gap would be at wrong places in the receives that
    /// follow, so while there are some, the request waits until they are in order.
    pub(super) fn release(&mut self, tcp: &Connection) {
        let word = self.there.turn.host().bar_load32(self.there.qp.doorbell.mark(RELEASE_WORD));
        if !self.receives.release.look(word) || tcp.has_placed() {
            return;
        }
        self.receives.release.done();
        if self.responder.current.is_some()
            && self.receives.filled > 0
            && let Err(refusal) = self.complete()
        {
            self.fail(refusal);
        }
    }

    /// Returns the number of bytes that may still arrive for the receives that are posted, or the
    /// maximum window.
    pub(super) fn window(&mut self) -> u32 {
        let room = match self.room() {
            Ok(room) => room.unwrap_or(0),
            Err(refusal) => {
                self.fail(refusal);
                0
            }
        };
        let mut all = room;
        for nth in 1.. {
            if room == 0 || all >= WINDOW.into() {
                break;
            }
            let Some(more) = self.length(nth) else { break };
            all = all.saturating_add(more);
        }
        u32::try_from(all).unwrap_or(u32::MAX).min(WINDOW)
    }

    /// Writes bytes that arrive before others to their place, if it is known.
    fn place(&mut self, at: StreamPos, bytes: &[u8]) -> Option<()> {
        if self.receives.stopped {
            return None;
        }
        self.room().ok().flatten()?;
        let known = self.receives.are_filled() && !self.receives.release.is_due();
        let mut start = self.receives.start().filter(|_| known)?;
        let (mut at, mut rest) = (at, bytes);
        for nth in 0.. {
            let length = self.length(nth)?;
            let end = start.plus(length);
            if at < end {
                let from = at.since(start);
                let count = usize::try_from(end.since(at)).unwrap_or(usize::MAX).min(rest.len());
                let (part, behind) = rest.split_at_checked(count)?;
                let (mut side, until) = (SgList::default(), from + count as u64);
                if !receive_ahead(self.there, self.responder, &mut side, nth, until) {
                    return None;
                }
                side.write::<H>(&self.there.turn.memory, from, part).ok()?;
                (at, rest) = (at.plus(count as u64), behind);
            }
            if rest.is_empty() {
                break;
            }
            start = end;
        }
        self.there.turn.slice.charge_copy(bytes.len() as u64);
        self.there.turn.moved(bytes.len() as u64);
        Some(())
    }
}

/// Bytes for receives.
#[derive(Clone, Copy)]
enum Bytes<'a> {
    /// Bytes that are copied to the receives.
    New(&'a [u8]),
    /// So many bytes have been placed before.
    Placed(usize),
}

impl Bytes<'_> {
    const fn len(&self) -> usize {
        match self {
            Self::New(bytes) => bytes.len(),
            Self::Placed(count) => *count,
        }
    }

    /// Returns whether a part of them may be left to a later turn.
    const fn may_wait(&self) -> bool {
        matches!(self, Self::New(_))
    }
}

impl<H: Host> Sink for Inbox<'_, '_, H> {
    fn deliver(&mut self, delivery: &Delivery<'_>) -> Delivered {
        if self.receives.stopped {
            return Delivered { taken: 0, then: Then::Hold };
        }
        let put = if self.receives.early().is_empty() {
            self.put(Bytes::New(delivery.bytes))
        } else {
            Ok(0)
        };
        let taken = match put {
            Ok(taken) => taken,
            Err(refusal) => {
                self.fail(refusal);
                return Delivered { taken: 0, then: Then::Refuse };
            }
        };
        self.receives.held = taken < delivery.bytes.len();
        let then = if self.receives.held { Then::Hold } else { Then::Continue };
        Delivered { taken, then }
    }

    fn offer(&mut self, at: StreamPos, bytes: &[u8]) -> Offered {
        match self.place(at, bytes) {
            Some(()) => Offered::Placed,
            None => Offered::Buffer,
        }
    }

    fn filled(&mut self, from: StreamPos, to: StreamPos) -> Then {
        let count = usize::try_from(to.since(from)).unwrap_or(usize::MAX);
        match self.put(Bytes::Placed(count)) {
            Ok(done) if done == count => Then::Continue,
            Ok(_) => Then::Refuse,
            Err(refusal) => {
                self.fail(refusal);
                Then::Refuse
            }
        }
    }
}
