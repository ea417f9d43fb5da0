//! Processing of answers: acknowledgements, NAKs, READ responses, atomic responses.

use std::time::Duration;

use vrnic_packet::Nanos;

use super::Requester;
use super::work::{Outcome, Work};
use crate::discard::Discard;
use crate::psn::Psn;
use crate::time::rnr_delay;
use crate::wire::syndrome::RnrTimer;
use crate::wire::{Aeth, Body, Nak, Packet, ReadPart, Response, Syndrome};

/// An effect of an answer on the caller's memory. It must be applied before completions are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// The answer has no effect on memory.
    Nothing,
    /// Bytes of a READ must be stored.
    Place {
        /// The work request.
        id: u64,
        /// Their offset in its message.
        offset: u32,
        /// The part of the data that has arrived.
        bytes: &'a [u8],
    },
    /// The old value of an atomic must be stored.
    Old {
        /// The work request.
        id: u64,
        /// What the word had before the atomic.
        value: u64,
    },
}

/// The assumed round trip time before the first measurement.
pub(super) const ROUND_TRIP: Duration = Duration::from_micros(50);

/// The answer of an earlier READ or atomic is missing.
struct Gap;

impl Requester {
    /// Processes an answer. A caller that cannot apply the effect calls [`Self::refuse`].
    ///
    /// # Errors
    /// The reason for which the answer was dropped. It may nevertheless cause retransmissions.
    pub fn receive<'a>(&mut self, now: Nanos, packet: &Packet<'a>) -> Result<Effect<'a>, Discard> {
        let result = self.answer(now, packet);
        if let Err(discard) = result {
            self.counters.discards.count(discard);
        }
        result
    }

    fn answer<'a>(&mut self, now: Nanos, packet: &Packet<'a>) -> Result<Effect<'a>, Discard> {
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
        // refusal of the same packets must not change the wait.
        if self.not_ready_until.is_some() {
            return Err(Discard::AnswerInWait);
        }
        // An acknowledgement covers its own packet and all earlier packets. Other answers cover
        // only the earlier packets.
        let plain =
            matches!(response, Response::Acknowledge(Aeth { syndrome: Syndrome::Ack(_), .. }));
        let reached = self.reach(now, if plain { psn.next() } else { psn });
        self.learn(!plain);
        match reached {
            Ok(()) if plain => Ok(Effect::Nothing),
            Ok(()) => Ok(self.at_oldest(now, response, packet)),
            Err(Gap) => Err(self.implied_nak(reports_loss(&response).then_some(psn))),
        }
    }

    /// Handles an answer to the oldest packet.
    fn at_oldest<'a>(&mut self, now: Nanos, response: Response, packet: &Packet<'a>) -> Effect<'a> {
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
                None | Some(Syndrome::Ack(_)) => self.read_response(now, part, packet.payload),
                Some(_) => self.fails(Outcome::BadResponse),
            },
            Response::Atomic(aeth, value) => match aeth.syndrome {
                Syndrome::Ack(_) => self.atomic_response(now, value),
                _ => self.fails(Outcome::BadResponse),
            },
        }
    }

    /// Records that all packets before `end` have been executed, and settles entries without an
    /// answer of their own.
    fn reach(&mut self, now: Nanos, end: Psn) -> Result<(), Gap> {
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

    /// Moves `oldest` forwards to `end`, over SENDs and WRITEs, which any later answer
    /// acknowledges. Stops at a READ or atomic whose answer is missing.
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

    /// Handles progress: resets retry counters and the timer, and settles entries that were
    /// acknowledged after a READ that has been answered now.
    fn progressed(&mut self, now: Nanos) {
        let behind = self.executed.since(self.oldest) > self.high.since(self.oldest);
        if behind {
            self.executed = self.oldest;
        }
        // Another READ or atomic may precede `executed`, whose answer may still arrive.
        let _missing = self.advance(self.executed);
        // The peer is ahead of the packets that are being retransmitted (hfi1 rc.c, `do_rc_ack`).
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

    /// Handles a NAK "sequence error": the oldest packet is missing at the responder.
    fn missing(&mut self, now: Nanos) {
        self.counters.sequence_naks += 1;
        if self.restarted != Some(self.oldest) {
            self.congested(now);
        }
        self.repair();
    }

    /// Handles a congestion notification (CNP).
    fn notified(&mut self, now: Nanos) {
        let handled = match &mut self.rate {
            Some(rate) => {
                let _reduced = rate.notified(now);
                true
            }
            None => self.congested(now),
        };
        if handled {
            self.counters.notified += 1;
        } else {
            self.counters.notifications_ignored += 1;
        }
    }

    /// Handles a loss of packets or a congestion notification. Returns whether the window was
    /// reduced.
    pub(super) fn congested(&mut self, now: Nanos) -> bool {
        let trip = self.trip.smoothed().unwrap_or(ROUND_TRIP);
        self.window.as_mut().is_some_and(|window| window.congested(now, trip))
    }

    /// Sends all unanswered packets again, unless this was done since the last progress: several
    /// signs of one loss must cause only one retransmission. Returns whether they are sent again.
    pub(super) fn restart(&mut self) -> bool {
        let new = self.restarted != Some(self.oldest);
        if new {
            self.restarted = Some(self.oldest);
            self.go_back();
        }
        new
    }

    /// Handles an RNR NAK: there was no receive for the oldest packet.
    fn not_ready(&mut self, now: Nanos, timer: RnrTimer) {
        self.counters.not_ready += 1;
        match self.rnr_retries {
            0 => self.ledger.fail_oldest(Outcome::RnrRetryExceeded),
            retries => {
                // Seven means no limit.
                self.rnr_retries = if retries == 7 { 7 } else { retries - 1 };
                self.go_back();
                self.not_ready_until = Some(now.plus(rnr_delay(timer)));
                self.disarm();
            }
        }
    }

    /// Handles the other NAKs: the request of the oldest packet and the QP have failed.
    fn refused(&mut self, nak: Nak) {
        self.ledger.fail_oldest(match nak {
            Nak::InvalidRequest => Outcome::RemoteInvalidRequest,
            Nak::RemoteAccess => Outcome::RemoteAccess,
            Nak::Sequence | Nak::RemoteOperational => Outcome::RemoteOperational,
        });
    }

    /// Handles a packet of the answer to a READ. Only its number determines its place: after a
    /// request for the rest, some responders begin with FIRST and others continue with MIDDLE.
    ///
    /// An empty answer of one packet also ends a FLUSH or an ATOMIC WRITE.
    fn read_response<'a>(&mut self, now: Nanos, part: ReadPart, bytes: &'a [u8]) -> Effect<'a> {
        let (psn, mtu) = (self.oldest, self.config.mtu);
        let Some(entry) = self.ledger.get(self.ledger.oldest()) else { return Effect::Nothing };
        match entry.request.work {
            Work::Read(_) => {}
            Work::Flush(..) | Work::AtomicWrite(_) if matches!(part, ReadPart::Only(_)) => {
                if !bytes.is_empty() {
                    return self.fails(Outcome::LocalLength);
                }
                self.answered(now, true);
                return Effect::Nothing;
            }
            _ => return self.fails(Outcome::BadResponse),
        }
        if usize::try_from(entry.bytes_at(psn, mtu)) != Ok(bytes.len()) {
            return self.fails(Outcome::LocalLength);
        }
        let (id, offset) = (entry.request.id, entry.offset(psn, mtu));
        let ends = psn == entry.span.last();
        self.answered(now, ends);
        Effect::Place { id, offset, bytes }
    }

    /// Handles the answer to an atomic.
    fn atomic_response<'a>(&mut self, now: Nanos, value: u64) -> Effect<'a> {
        let Some(entry) = self.ledger.get(self.ledger.oldest()) else { return Effect::Nothing };
        if !entry.request.work.is_atomic() {
            return self.fails(Outcome::BadResponse);
        }
        let id = entry.request.id;
        self.answered(now, true);
        Effect::Old { id, value }
    }

    /// Handles the failure of the oldest packet's request.
    fn fails<'a>(&mut self, outcome: Outcome) -> Effect<'a> {
        self.ledger.fail_oldest(outcome);
        Effect::Nothing
    }

    /// Handles one packet of an answer that has arrived in order.
    fn answered(&mut self, now: Nanos, ends: bool) {
        self.oldest = self.oldest.next();
        if ends {
            self.ledger.settle();
        }
        self.progressed(now);
    }

    /// Handles an answer that shows that an earlier answer is missing. Sends the request of the
    /// missing answer again, once for each loss (hfi1 rc.c, `RVT_R_RDMAR_SEQ`). If the answer is a
    /// NAK, `lost` is the packet that the responder has not received. The responder does not repeat
    /// the NAK.
    fn implied_nak(&mut self, lost: Option<Psn>) -> Discard {
        // The request may be about to be retransmitted anyway.
        if self.restarted != Some(self.oldest) && self.cursor != self.oldest {
            self.counters.implied_naks += 1;
            self.restart();
            // Without a NAK there is no sign that other packets were lost.
            self.skip_to = lost.unwrap_or(self.high);
        } else if let Some(lost) = lost
            && self.ahead(self.skip_to) > self.ahead(lost)
        {
            // An earlier answer has shown the gap.
            self.skip_to = lost;
            if self.ahead(self.cursor) > self.ahead(lost) {
                self.go_back_to(lost);
            }
        }
        Discard::AnswerGap
    }
}

/// Returns whether an answer is a NAK "sequence error": a packet has not arrived.
const fn reports_loss(response: &Response) -> bool {
    matches!(response, Response::Acknowledge(Aeth { syndrome: Syndrome::Nak(Nak::Sequence), .. }))
}
