//! Answers: acknowledgements, NAKs, READ responses, the values of atomics.

use std::time::Duration;

use super::Requester;
use super::work::Outcome;
use crate::discard::Discard;
use crate::psn::Psn;
use crate::time::{Time, rnr_delay};
use crate::wire::syndrome::RnrTimer;
use crate::wire::{Aeth, Body, Nak, Packet, Response, Syndrome};

/// An effect of an answer on the caller's memory. It has to be done before completions are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// None.
    Nothing,
    /// Bytes that a READ asked for.
    Place {
        /// The work request.
        id: u64,
        /// Their offset in its message.
        offset: u32,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The value that the word of an atomic had.
    Old {
        /// The work request.
        id: u64,
        /// The value.
        value: u64,
    },
}

/// The round trip time before one was measured.
const ROUND_TRIP: Duration = Duration::from_micros(50);

/// The answer of a READ or atomic that was to come before the one that came is missing.
struct Gap;

impl Requester {
    /// Takes an answer. A caller that cannot do the effect calls [`Self::refuse`].
    ///
    /// # Errors
    /// The reason for which the answer was dropped. It may have caused packets to be sent again
    /// nevertheless.
    pub fn receive<'a>(&mut self, now: Time, packet: &Packet<'a>) -> Result<Effect<'a>, Discard> {
        let result = self.answer(now, packet);
        if let Err(discard) = result {
            self.counters.discards.count(discard);
        }
        result
    }

    fn answer<'a>(&mut self, now: Time, packet: &Packet<'a>) -> Result<Effect<'a>, Discard> {
        let psn = packet.head.psn;
        let response = match packet.body {
            Body::Response(response) => response,
            Body::Congestion => {
                self.notified(now);
                return Ok(Effect::Nothing);
            }
            _ => return Err(Discard::Transport),
        };
        if packet.head.transport != self.config.transport {
            return Err(Discard::Transport);
        }
        if self.failed {
            return Err(Discard::State);
        }
        // Only outstanding packets can be answered, and only once: other answers are late or
        // forged.
        if psn.since(self.oldest) >= self.high.since(self.oldest) {
            let late = psn.is_before(self.oldest);
            return Err(if late { Discard::StaleAnswer } else { Discard::UnsentAnswer });
        }
        // A responder that is not ready has executed none of the outstanding packets. A second
        // refusal of the same packets must not shorten or prolong the wait.
        if self.not_ready_until.is_some() {
            return Err(Discard::AnswerInWait);
        }
        // An acknowledgement covers its own packet, other answers cover only the packets before
        // theirs.
        let plain =
            matches!(response, Response::Acknowledge(Aeth { syndrome: Syndrome::Ack(_), .. }));
        let reached = self.reach(now, if plain { psn.next() } else { psn });
        self.learn(!plain);
        match reached {
            Ok(()) if plain => Ok(Effect::Nothing),
            Ok(()) => Ok(self.at_oldest(now, response, packet)),
            Err(Gap) => Err(self.implied_nak()),
        }
    }

    /// Acts on an answer to the oldest packet.
    fn at_oldest<'a>(&mut self, now: Time, response: Response, packet: &Packet<'a>) -> Effect<'a> {
        let psn = packet.head.psn;
        if self.oldest != psn {
            // An earlier acknowledgement has covered the packet.
            return Effect::Nothing;
        }
        match response {
            Response::Acknowledge(aeth) => {
                match aeth.syndrome {
                    Syndrome::NotReady(timer) => self.not_ready(now, timer),
                    Syndrome::Nak(Nak::Sequence) => self.missing(now),
                    Syndrome::Nak(nak) => self.refused(nak),
                    Syndrome::Ack(_) => {}
                }
                Effect::Nothing
            }
            Response::Read(part) => match part.aeth().map(|aeth| aeth.syndrome) {
                None | Some(Syndrome::Ack(_)) => self.read_response(now, packet.payload),
                Some(_) => self.fails(Outcome::BadResponse),
            },
            Response::Atomic(aeth, value) => match aeth.syndrome {
                Syndrome::Ack(_) => self.atomic_response(now, value),
                _ => self.fails(Outcome::BadResponse),
            },
        }
    }

    /// Notes that all before `end` has been executed, and settles entries that need no answer of
    /// their own.
    fn reach(&mut self, now: Time, end: Psn) -> Result<(), Gap> {
        let before = self.oldest;
        if end.since(before) > self.executed.since(before) {
            self.executed = end;
        }
        let result = self.advance(end);
        if self.oldest != before {
            self.progressed(now);
        }
        result
    }

    /// Moves `oldest` forwards to `end`, over SENDs and WRITEs, which anything later acknowledges,
    /// but not over a READ or atomic whose answer is missing.
    fn advance(&mut self, end: Psn) -> Result<(), Gap> {
        while self.oldest != end {
            let Some(entry) = self.ledger.get(self.ledger.oldest()) else { break };
            if entry.has_answer() {
                return Err(Gap);
            }
            let span = entry.span;
            if span.contains(end) {
                self.oldest = end;
            } else {
                self.oldest = span.end();
                self.ledger.settle();
            }
        }
        Ok(())
    }

    /// Acts on progress: counters of retries and the timer start anew, and entries that were
    /// acknowledged behind a READ that has been answered now are settled.
    fn progressed(&mut self, now: Time) {
        let behind = self.executed.since(self.oldest) > self.high.since(self.oldest);
        if behind {
            self.executed = self.oldest;
        }
        // A further READ or atomic may stand before `executed`; its answer may still be under way.
        let _missing = self.advance(self.executed);
        // The peer is further than the packets that are being sent again (hfi1 rc.c, `do_rc_ack`).
        if self.cursor.since(self.oldest) > self.high.since(self.oldest) {
            self.rewind();
        }
        self.repair.progressed();
        let trip = self.trip.answered(self.oldest, now).or(self.trip.smoothed());
        if let Some(window) = &mut self.window {
            window.progressed(now, trip.unwrap_or(ROUND_TRIP));
        }
        self.retries = self.config.retry_count;
        self.rnr_retries = self.config.rnr_retry;
        self.restarted = None;
        self.disarm();
        if self.oldest != self.high {
            self.arm(now);
        }
    }

    /// NAK "sequence error": the oldest packet is missing at the responder.
    fn missing(&mut self, now: Time) {
        self.counters.sequence_naks += 1;
        if self.restarted != Some(self.oldest) {
            self.congested(now);
        }
        self.repair();
    }

    /// A notification of congestion has come (CNP).
    fn notified(&mut self, now: Time) {
        if self.congested(now) {
            self.counters.notified += 1;
        } else {
            self.counters.notifications_ignored += 1;
        }
    }

    /// Packets were lost, or a router says that its queue is long. Returns whether the window is
    /// made smaller.
    pub(super) fn congested(&mut self, now: Time) -> bool {
        let trip = self.trip.smoothed().unwrap_or(ROUND_TRIP);
        self.window.as_mut().is_some_and(|window| window.congested(now, trip))
    }

    /// Goes back, unless that was done since there was progress: several signs of one loss must not
    /// make several retransmissions. Returns whether it goes back.
    pub(super) fn restart(&mut self) -> bool {
        let new = self.restarted != Some(self.oldest);
        if new {
            self.restarted = Some(self.oldest);
            self.go_back();
        }
        new
    }

    /// RNR NAK: the oldest packet found no receive.
    fn not_ready(&mut self, now: Time, timer: RnrTimer) {
        self.counters.not_ready += 1;
        match self.rnr_retries {
            0 => self.ledger.fail_oldest(Outcome::RnrRetryExceeded),
            retries => {
                // Seven means without limit.
                self.rnr_retries = if retries == 7 { 7 } else { retries - 1 };
                self.go_back();
                self.not_ready_until = Some(now.plus(rnr_delay(timer)));
                self.disarm();
            }
        }
    }

    /// NAK of the other kinds: the request of the oldest packet has failed, and with it the QP.
    fn refused(&mut self, nak: Nak) {
        self.ledger.fail_oldest(match nak {
            Nak::InvalidRequest => Outcome::RemoteInvalidRequest,
            Nak::RemoteAccess => Outcome::RemoteAccess,
            Nak::Sequence | Nak::RemoteOperational => Outcome::RemoteOperational,
        });
    }

    /// A packet of the answer to a READ. Its place is known by its number alone: after a request
    /// for the rest, some responders begin with FIRST and others go on with MIDDLE.
    fn read_response<'a>(&mut self, now: Time, bytes: &'a [u8]) -> Effect<'a> {
        let (psn, mtu) = (self.oldest, self.config.mtu);
        let Some(entry) = self.ledger.get(self.ledger.oldest()) else { return Effect::Nothing };
        if !entry.request.work.is_read() {
            return self.fails(Outcome::BadResponse);
        }
        if usize::try_from(entry.bytes_at(psn, mtu)) != Ok(bytes.len()) {
            return self.fails(Outcome::LocalLength);
        }
        let (id, offset) = (entry.request.id, entry.offset(psn, mtu));
        let ends = psn == entry.span.last();
        self.answered(now, ends);
        Effect::Place { id, offset, bytes }
    }

    /// The answer to an atomic.
    fn atomic_response<'a>(&mut self, now: Time, value: u64) -> Effect<'a> {
        let Some(entry) = self.ledger.get(self.ledger.oldest()) else { return Effect::Nothing };
        if !entry.has_answer() || entry.request.work.is_read() {
            return self.fails(Outcome::BadResponse);
        }
        let id = entry.request.id;
        self.answered(now, true);
        Effect::Old { id, value }
    }

    /// The request of the oldest packet has failed.
    fn fails<'a>(&mut self, outcome: Outcome) -> Effect<'a> {
        self.ledger.fail_oldest(outcome);
        Effect::Nothing
    }

    /// One packet of an answer has come, in order.
    fn answered(&mut self, now: Time, ends: bool) {
        self.oldest = self.oldest.next();
        if ends {
            self.ledger.settle();
        }
        self.progressed(now);
    }

    /// An answer has come while one before it is missing: sends the request of the missing one
    /// again, once for each loss (hfi1 rc.c, `RVT_R_RDMAR_SEQ`).
    fn implied_nak(&mut self) -> Discard {
        // The request may be about to be sent again anyhow.
        if self.restarted != Some(self.oldest) && self.cursor != self.oldest {
            self.counters.implied_naks += 1;
            self.restart();
            // There is no sign that other packets were lost.
            self.skip_to = self.high;
        }
        Discard::AnswerGap
    }
}
