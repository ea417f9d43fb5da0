//! The choice of the next packet.

use std::ops::Range;

use vrnic_packet::Nanos;

use super::Requester;
use super::answers::ROUND_TRIP;
use super::ledger::Entry;
use crate::congestion::RateControl;
use crate::psn::{MAX_OUTSTANDING, Psn, Span};
use crate::wire::{Body, Head};

/// The bytes of a packet that count for the rate in addition to its payload: Ethernet, IPv4, UDP,
/// and the headers of a WRITE.
const HEADERS: u32 = 74;

/// A packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The base transport header.
    pub head: Head,
    /// The operation.
    pub body: Body,
    /// The work request that the bytes belong to.
    pub id: u64,
    /// The range of its bytes.
    pub range: Range<u32>,
}

impl Transmit {
    /// Returns the bytes that count for the rate.
    fn bytes(&self) -> u32 {
        self.range.end.saturating_sub(self.range.start).saturating_add(HEADERS)
    }
}

/// The packet at the cursor.
#[derive(Clone, Copy)]
struct Upcoming {
    entry: Entry,
    /// True if the entry gets its sequence numbers with this packet.
    starts: bool,
}

impl Requester {
    /// Returns the next packet to send, if one may be sent now. The caller copies its bytes. If it
    /// cannot, it calls [`Self::not_sent`] and [`Self::refuse`] or [`Self::stall`], and does not
    /// send the packet.
    pub fn next(&mut self, now: Nanos) -> Option<Transmit> {
        if self.failed || self.not_ready_until.is_some() || self.stalled_until.is_some() {
            return None;
        }
        let single = self.repair.is_single();
        if !single {
            self.skip();
        }
        let upcoming = self.upcoming()?;
        if self.rate.is_some() && self.waits_for_its_turn(now) {
            return None;
        }
        if upcoming.starts {
            self.ledger.start(upcoming.entry.span);
        }
        let mut transmit = self.make(&upcoming.entry);
        if let Some(rate) = &mut self.rate {
            rate.sent(now, transmit.bytes());
            if rate.is_limited() && self.since_ack_request > 0 {
                // The wait for an answer begins with this packet: those before it may have asked
                // for none.
                self.disarm();
            }
        }
        let again = transmit.head.psn.since(self.oldest) < self.high.since(self.oldest);
        self.move_cursor(&upcoming.entry);
        if single {
            self.leap();
        }
        if !self.config.transport.is_reliable() {
            self.left();
            return Some(transmit);
        }
        transmit.head.ack_request =
            self.asks_for_acknowledgement(&upcoming.entry, transmit.head.psn);
        self.since_ack_request =
            if transmit.head.ack_request { 0 } else { self.since_ack_request + 1 };
        self.urgent = false;
        self.counters.sent += 1;
        self.counters.resent += u64::from(again);
        if transmit.head.ack_request && !again && !upcoming.entry.has_answer() {
            self.trip.sent(transmit.head.psn, now);
        }
        if self.timer.is_none() && self.repair.probe_at.is_none() {
            self.arm(now);
        }
        Some(transmit)
    }

    /// Returns whether the next packet must wait because of the rate.
    fn waits_for_its_turn(&mut self, now: Nanos) -> bool {
        self.paced_until = self.rate.as_mut().and_then(|rate| rate.waits_until(now));
        self.paced_until.is_some()
    }

    /// Takes back that the packet which [`Self::next`] has just returned counts for the rate.
    pub fn not_sent(&mut self, transmit: &Transmit) {
        if let Some(rate) = &mut self.rate {
            rate.not_sent(transmit.bytes());
        }
    }

    /// Returns the work request of the packet at the cursor, unless it must wait, and the range of
    /// its bytes.
    #[must_use]
    pub fn upcoming_bytes(&self, now: Nanos) -> Option<(u64, Range<u32>)> {
        let waits = self.failed
            || self.not_ready_until.is_some()
            || self.stalled_until.is_some()
            || self.paced_until.is_some_and(|until| now < until);
        let upcoming = self.upcoming().filter(|_| !waits)?;
        let Transmit { id, range, .. } = self.make(&upcoming.entry);
        Some((id, range))
    }

    /// Moves the cursor over SENDs and WRITEs that need not be sent again while the answer of an
    /// earlier READ or atomic is missing, because they are acknowledged, or because there is no
    /// sign that they were lost.
    fn skip(&mut self) {
        let end = if self.ahead(self.executed) > self.ahead(self.skip_to) {
            self.executed
        } else {
            self.skip_to
        };
        while self.ahead(self.cursor) < self.ahead(end)
            && self.at < self.ledger.started()
            && let Some(entry) = self.ledger.get(self.at)
            && !entry.has_answer()
        {
            if entry.span.contains(end) {
                self.cursor = end;
            } else {
                self.cursor = entry.span.end();
                self.at += 1;
            }
        }
    }

    /// Returns the packet at the cursor, unless it must wait.
    fn upcoming(&self) -> Option<Upcoming> {
        let entry = *self.ledger.get(self.at)?;
        if entry.failed.is_some() || self.repair.is_waiting() {
            return None;
        }
        let outstanding = self.cursor.since(self.oldest);
        let sent = outstanding < self.high.since(self.oldest);
        if !sent && outstanding >= self.window() {
            return None;
        }
        if self.at < self.ledger.started() {
            return Some(Upcoming { entry, starts: false });
        }
        let count = if entry.request.work.has_answer() && !entry.request.work.is_read() {
            1
        } else {
            self.config.mtu.packets(entry.request.length)
        };
        let answers = self.ledger.answers_due();
        let waits = self.paused
            || (entry.request.fence && answers > 0)
            || (entry.has_answer() && answers >= usize::from(self.config.max_rd_atomic.max(1)))
            || outstanding.saturating_add(count) > MAX_OUTSTANDING;
        let span = Span { first: self.cursor, count };
        (!waits).then_some(Upcoming { entry: Entry { span, ..entry }, starts: true })
    }

    /// Generates the packet at the cursor.
    fn make(&self, entry: &Entry) -> Transmit {
        let (psn, mtu) = (self.cursor, self.config.mtu);
        let request = &entry.request;
        let offset = entry.offset(psn, mtu);
        let bytes = if request.work.has_payload() { entry.bytes_at(psn, mtu) } else { 0 };
        let last = entry.has_answer() || psn == entry.span.last();
        let mut head = Head::new(self.config.transport, self.config.destination, psn);
        head.solicited = last && request.solicited && request.work.completes_a_receive();
        head.srqn = request.srqn;
        Transmit {
            head,
            body: Body::Request(request.work.request(request.length, offset, last)),
            id: request.id,
            range: offset..offset.saturating_add(bytes),
        }
    }

    /// Moves the cursor behind the packet. The request of a READ uses as many numbers as its answer
    /// has packets.
    fn move_cursor(&mut self, entry: &Entry) {
        let next = if entry.has_answer() { entry.span.end() } else { self.cursor.next() };
        self.move_cursor_to(next, next == entry.span.end());
    }

    fn move_cursor_to(&mut self, next: Psn, ends: bool) {
        if next.since(self.oldest) > self.high.since(self.oldest) {
            self.high = next;
        }
        self.cursor = next;
        self.at += usize::from(ends);
    }

    /// Returns whether a packet asks for an acknowledgement. Reasons are that its message must be
    /// reported, that no packet can follow at once, or that no packet has asked for a quarter of
    /// the window, or for a round trip time at a rate that limits packets.
    fn asks_for_acknowledgement(&self, entry: &Entry, sent: Psn) -> bool {
        let ends = sent.next() == entry.span.end();
        let quarter = (self.window() / 4).max(1);
        self.urgent
            || entry.has_answer()
            || (ends && entry.request.signaled)
            || self.since_ack_request + 1 >= quarter
            || self.upcoming().is_none()
            || self.rate.as_ref().is_some_and(|rate| self.asks_for_rate(rate))
    }

    /// Returns whether the packets since the last one that asked for an acknowledgement take a
    /// round trip time at a rate that limits them.
    fn asks_for_rate(&self, rate: &RateControl) -> bool {
        let bytes = u64::from(self.config.mtu.bytes().saturating_add(HEADERS));
        let time = rate.rate().time(bytes.saturating_mul(u64::from(self.since_ack_request) + 1));
        rate.is_limited() && time >= self.trip.smoothed().unwrap_or(ROUND_TRIP)
    }

    /// Returns the maximum number of outstanding packets.
    fn window(&self) -> u32 {
        let allowed = self.window.map_or(u32::MAX, |window| window.packets());
        self.config.window.min(allowed)
    }

    /// Settles an unreliable packet that has been sent. It has no answer.
    fn left(&mut self) {
        self.counters.sent += 1;
        self.oldest = self.cursor;
        self.executed = self.cursor;
        while self.ledger.oldest() < self.at {
            self.ledger.settle();
        }
    }
}
