//! Received octets: the start frame of the responder, then FPDUs.

use super::Stream;
use super::close::{Happening, State};
use super::event::Event;
use crate::mpa::deframer::{Deframer, Found};
use crate::mpa::framer::Form;
use crate::mpa::markers::Markers;
use crate::mpa::start::{self, Failure};
use crate::rdmap::early_segments::{Placed, Table};
use crate::rdmap::memory::Memory;
use crate::rdmap::receive::{Ends, Step};
use crate::tcp::{Delivered, Delivery, Offered, Sink, StreamPos, Then};
use crate::wire::rdmap::Segment;
use crate::wire::start::{FRAME_MAX, Start, length};
use crate::wire::terminate::{self, Cause};

/// Number of times that an FPDU with a wrong CRC is refused, so that the peer sends it again,
/// before the stream ends (RFC 5044, section 8).
const CRC_RETRIES: u32 = 3;

/// FPDUs of octets not yet acknowledged that are taken even if the turn is over, so that TCP does
/// not store the rest of each segment on which a turn ends.
const PIECES: u32 = 32;

/// The reason for which octets are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// A SEND waits for a receive.
    NoReceive,
    /// There is no memory for a part of an FPDU.
    NoMemory,
    /// The memory of a segment is not ready.
    Absent,
    /// A message ends later.
    Later,
    /// The turn of the caller is over.
    Turn,
}

/// The state of the receiving direction.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) deframer: Deframer,
    /// The position of the first FPDU.
    pub(super) origin: StreamPos,
    /// Number of segments in order that have consisted of whole FPDUs since the last one that has
    /// not.
    pub(super) aligned: u32,
    /// Segments that were placed out of order.
    pub(super) ahead: Table,
    /// The position after the last octets that were placed out of order and have become next in
    /// order.
    pub(super) filled: StreamPos,
    /// True if the peer has finished, but segments before its end have not been processed.
    pub(super) finished: bool,
    /// The beginning of the start frame.
    start: Vec<u8>,
    /// The reason for which TCP was asked to hold octets back.
    pub(super) held: Option<Held>,
    /// True if the octets that are being delivered have been acknowledged, and do not arrive again.
    pub(super) acknowledged: bool,
    /// The position of the FPDU that ended the stream. It is not acknowledged before the Terminate,
    /// so that its request is still outstanding at the peer.
    pub(super) refused: Option<StreamPos>,
    /// The position of an FPDU with a wrong CRC, and how often it has arrived.
    wrong: (StreamPos, u32),
    /// Events that have been reported, as bits.
    given: u8,
}

impl Arriving {
    pub(super) fn new(ahead: usize) -> Self {
        Self {
            deframer: Deframer::new(Form::default()),
            origin: StreamPos(0),
            aligned: 0,
            ahead: Table::new(ahead),
            filled: StreamPos(0),
            finished: false,
            start: Vec::new(),
            held: None,
            acknowledged: false,
            refused: None,
            wrong: (StreamPos(0), 0),
            given: 0,
        }
    }

    /// Returns whether the received octets end between two FPDUs.
    pub(super) const fn is_at_border(&self) -> bool {
        self.deframer.is_at_border()
    }

    /// Counts a segment that has been processed in order. `starts` is true if it started with an
    /// FPDU.
    const fn align(&mut self, starts: bool) {
        let whole = starts && self.is_at_border();
        self.aligned = if whole { self.aligned.saturating_add(1) } else { 0 };
    }

    /// Returns whether an event was reported.
    pub(super) const fn was_given(&self, nth: u32) -> bool {
        self.given & 1 << nth != 0
    }

    /// Returns whether an event is reported for the first time, and records it.
    pub(super) const fn first_time(&mut self, nth: u32) -> bool {
        let bit = 1 << nth;
        let first = self.given & bit == 0;
        self.given |= bit;
        first
    }
}

/// The sink for TCP: the stream with the memory of its messages.
#[derive(Debug)]
pub struct Inbox<'a, M> {
    pub(super) stream: &'a mut Stream,
    pub(super) memory: &'a mut M,
}

/// The treatment of received octets.
enum Fate {
    /// This many octets were taken. `true` if a message has ended.
    Taken(usize, bool),
    /// This many octets were taken. No more are taken for now.
    Hold(usize),
    /// The rest must be sent again.
    Refuse,
}

/// The effect of a processed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The message of the segment continues.
    Part,
    /// The message of the segment has ended.
    End,
    /// Nothing more is taken until the caller resumes.
    Hold,
}

impl<M: Memory> Sink for Inbox<'_, M> {
    fn progress(&mut self, unacknowledged: StreamPos, sent: StreamPos) {
        self.stream.progress(self.memory, unacknowledged, sent);
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Delivered {
        let starts = self.stream.arriving.is_at_border();
        let delivered = self.deliver_in_order(delivery);
        self.stream.arriving.deframer.trim();
        // TCP delivers stored bytes in pieces that are not the segments that arrived.
        if !delivery.acknowledged {
            self.stream.arriving.align(starts);
        }
        delivered
    }

    fn offer(&mut self, at: StreamPos, bytes: &[u8]) -> Offered {
        let offered = self.stream.offer(at, bytes, self.memory);
        self.stream.arriving.deframer.trim();
        offered
    }

    fn filled(&mut self, from: StreamPos, to: StreamPos) -> Then {
        self.stream.filled(from, to, self.memory)
    }
}

impl<M: Memory> Inbox<'_, M> {
    fn deliver_in_order(&mut self, delivery: &Delivery<'_>) -> Delivered {
        let Delivery { at, bytes, acknowledged } = *delivery;
        self.stream.arriving.acknowledged = acknowledged;
        if self.stream.catch_up(self.memory) == Then::Hold {
            return Delivered { taken: 0, then: Then::Hold };
        }
        if matches!(self.stream.arriving.held, Some(Held::Turn | Held::NoMemory | Held::Absent)) {
            self.stream.arriving.held = None;
        }
        let (mut left, mut ended, mut pieces) = (bytes, false, 0);
        let taken = |left: &[u8]| bytes.len() - left.len();
        while !left.is_empty() && matches!(self.stream.state, State::Starting | State::Rts) {
            let from = at.plus(taken(left) as u64);
            let fate = match self.stream.state {
                State::Starting => self.stream.start_frame(from, left),
                _ => self.stream.segment(from, left, self.memory),
            };
            match fate {
                Fate::Taken(octets, end) => {
                    ended |= end;
                    left = left.get(octets..).unwrap_or_default();
                    pieces += 1;
                    let may_hold = acknowledged || pieces >= PIECES;
                    if self.memory.is_over() && may_hold && !left.is_empty() {
                        self.stream.arriving.held = Some(Held::Turn);
                        return Delivered { taken: taken(left), then: Then::Hold };
                    }
                }
                Fate::Hold(octets) => {
                    return Delivered { taken: taken(left) + octets, then: Then::Hold };
                }
                Fate::Refuse if !acknowledged => {
                    return Delivered { taken: taken(left), then: Then::Refuse };
                }
                Fate::Refuse => break,
            }
        }
        let from = at.plus(taken(left) as u64);
        if !left.is_empty() && !self.stream.discards(from, left.len() as u64) {
            return Delivered { taken: taken(left), then: Then::Refuse };
        }
        let then = if ended { Then::Acknowledge } else { Then::Continue };
        Delivered { taken: bytes.len(), then }
    }
}

impl Stream {
    /// Processes octets of the responder's start frame.
    fn start_frame(&mut self, at: StreamPos, octets: &[u8]) -> Fate {
        let start = &mut self.arriving.start;
        let before = start.len();
        let room = FRAME_MAX.saturating_sub(before).min(octets.len());
        start.extend_from_slice(octets.get(..room).unwrap_or_default());
        let size = match length(start) {
            Ok(Some(size)) if size <= start.len() => size,
            Ok(_) => return Fate::Taken(room, false),
            Err(_) => {
                self.start_failed(Failure::Frame, false);
                return Fate::Taken(room, false);
            }
        };
        start.truncate(size);
        let frame = std::mem::take(start);
        match Start::parse(&frame) {
            Ok(reply) => self.reply(&reply),
            Err(_) => self.start_failed(Failure::Frame, false),
        }
        let taken = size.saturating_sub(before);
        self.arriving.origin = at.plus(taken as u64);
        Fate::Taken(taken, true)
    }

    /// Processes the reply of the responder.
    fn reply(&mut self, reply: &Start<'_>) {
        self.private.extend_from_slice(reply.private);
        match start::conclude(&self.config.wishes, reply) {
            Ok(agreement) => {
                self.agree(agreement);
                if self.state != State::Rts {
                    return;
                }
                if let Some(first) = agreement.first {
                    self.first_message(first);
                }
                self.establish();
            }
            Err(failure) => {
                let crc = self.config.wishes.crc || reply.crc;
                self.log.agree(Form { crc, markers: Markers(reply.markers) });
                self.start_failed(failure, true);
            }
        }
    }

    fn start_failed(&mut self, failure: Failure, agreed: bool) {
        self.events.push_back(Event::StartFailed(failure));
        match failure.cause().filter(|_| agreed) {
            Some(cause) => self.terminate(cause, &terminate::payload(cause, None)),
            None => self.happened(Happening::StartFailed),
        }
    }

    /// Processes octets of FPDUs, at most one FPDU.
    fn segment(&mut self, at: StreamPos, octets: &[u8], memory: &mut impl Memory) -> Fate {
        let start = self.next_fpdu();
        let Self { arriving, receive, requester, responder, .. } = self;
        let (ulpdu, size) = match arriving.deframer.find(octets) {
            Ok(Found::Nothing) => return Fate::Taken(octets.len(), false),
            Ok(Found::NoMemory) if arriving.acknowledged => {
                arriving.held = Some(Held::NoMemory);
                return Fate::Hold(0);
            }
            Ok(Found::NoMemory) => return Fate::Refuse,
            Ok(Found::Ulpdu { ulpdu, octets }) => (ulpdu, octets),
            Err(cause) => return self.broken(cause, at),
        };
        let end = at.plus(size as u64);
        let ends = Ends { requester, responder, memory };
        // The FPDU's octets may have been placed although TCP has stored them.
        let early = arriving.ahead.take(start).filter(|(_, behind)| *behind == end);
        let taken = Segment::parse(ulpdu, self.config.extensions).and_then(|segment| match early {
            Some((placed, _)) if Placed::of(&segment) == Some(placed) => {
                receive.take_placed(&placed, end, ends)
            }
            _ => receive.take(&segment, end, ends),
        });
        let step = match taken {
            Ok(step) => step,
            Err(cause) => {
                let payload = terminate::payload(cause, Some(ulpdu));
                self.arriving.refused = Some(at);
                self.terminate(cause, &payload);
                return Fate::Refuse;
            }
        };
        if step == Step::NotReady {
            self.arriving.held = Some(Held::NoReceive);
            self.counters.not_ready += 1;
            return Fate::Hold(0);
        }
        if step == Step::Absent {
            self.arriving.held = Some(Held::Absent);
            return Fate::Hold(0);
        }
        self.arriving.deframer.pass();
        match self.taken(step) {
            Taken::Hold => Fate::Hold(size),
            taken => Fate::Taken(size, taken == Taken::End),
        }
    }

    /// Handles the effect of a segment that was processed in order.
    pub(super) fn taken(&mut self, step: Step) -> Taken {
        self.arriving.held = None;
        self.counters.fpdus_received += 1;
        // The initiator's first FPDU allows the responder to send (RFC 5044, section 7.1.2).
        self.may_send = true;
        self.establish();
        match step {
            Step::Placed => return Taken::Part,
            Step::Later => {
                self.arriving.held = Some(Held::Later);
                return Taken::Hold;
            }
            Step::Terminated(report) => self.terminated(report),
            Step::Ended | Step::NotReady | Step::Absent => {}
        }
        Taken::End
    }

    /// Handles octets that are not a valid FPDU.
    fn broken(&mut self, cause: Cause, at: StreamPos) -> Fate {
        if cause == Cause::Crc {
            self.counters.crc_errors += 1;
            let (wrong, count) = &mut self.arriving.wrong;
            *count = if *wrong == at { *count + 1 } else { 1 };
            *wrong = at;
            let comes_again = self.arriving.deframer.is_at_border() && !self.arriving.acknowledged;
            if comes_again && *count <= CRC_RETRIES {
                return Fate::Refuse;
            }
        }
        self.arriving.refused = Some(at);
        self.terminate(cause, &terminate::payload(cause, None));
        Fate::Refuse
    }

    /// Drops octets that arrive when messages are no longer accepted. Returns `false` if they must
    /// not be acknowledged.
    pub(super) fn discards(&mut self, at: StreamPos, octets: u64) -> bool {
        let reported = !self.terminated || self.send_state.queued == 0;
        if self.state == State::Terminate
            && !reported
            && !self.arriving.acknowledged
            && self.arriving.refused.is_some_and(|refused| refused <= at)
        {
            return false;
        }
        self.counters.discarded += octets;
        if self.state == State::Closing {
            self.happened(Happening::Data);
        }
        true
    }
}
