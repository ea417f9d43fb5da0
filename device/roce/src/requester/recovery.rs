//! Selective retransmission of lost packets without a change of the protocol: hold and leap.
//!
//! A peer may drop packets after a missing packet, or hold them. The answer to the missing packet
//! shows what the peer does: a peer that holds packets acknowledges more than the missing packet.
//! At the first loss of a connection, the requester therefore sends only the missing packet again,
//! which takes one round trip, and records the peer's behaviour. To a peer that holds packets, it
//! sends only the missing packets again. To a peer that drops them, it sends all packets again ("go
//! back N"), as in the specification.
//!
//! No answer shows the loss of the last packets before a pause. Probes detect it sooner than the
//! time-out of the QP, which is often half a second: the requester sends the last packet again
//! after twice the round trip time, and later the oldest packet. A duplicate is acknowledged again,
//! and a gap causes a NAK. Probes do not count as retries.

use std::time::Duration;

use vrnic_packet::Nanos;

use super::Requester;
use crate::psn::Psn;

/// The method of retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// All packets from the lost one on, after a NAK or a time-out.
    GoBackN,
    /// Only the lost packets, if the peer holds the others; with probes.
    Leap,
}

/// The peer's treatment of packets after a missing one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Peer {
    #[default]
    Unknown,
    Keeps,
    Drops,
}

/// Number of probes before the time-out.
const PROBES: u8 = 2;
/// The minimum time before a probe, because threads on both sides sleep and wake.
const EARLIEST: Duration = Duration::from_micros(200);
/// Number of consecutive holes of one packet each, after which the peer is assumed to drop packets.
const SINGLE_HOLES: u8 = 3;

/// The state of recovery.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair {
    peer: Peer,
    /// The missing packet that was sent again without the packets after it, until its answer
    /// arrives.
    asked: Option<Psn>,
    /// True if only the packet at the cursor is sent again. After that, the cursor moves behind all
    /// sent packets.
    single: bool,
    single_holes: u8,
    probes: u8,
    pub(super) probe_at: Option<Nanos>,
}

impl Repair {
    pub(super) const fn new() -> Self {
        Self {
            peer: Peer::Unknown,
            asked: None,
            single: false,
            single_holes: 0,
            probes: PROBES,
            probe_at: None,
        }
    }

    /// Returns whether only the packet at the cursor is sent again.
    pub(super) const fn is_single(&self) -> bool {
        self.single
    }

    /// Returns whether nothing is sent before the peer's behaviour is known.
    pub(super) fn is_waiting(&self) -> bool {
        self.asked.is_some() && !self.single && self.peer == Peer::Unknown
    }

    /// Records that all packets are sent again.
    pub(super) const fn reset(&mut self) {
        self.asked = None;
        self.single = false;
    }

    /// Records progress, so that probes may follow again.
    pub(super) const fn progressed(&mut self) {
        self.probes = PROBES;
    }
}

impl Requester {
    /// Handles a packet that is missing at the peer: sends it again, without the packets after it
    /// if the peer may have held them.
    pub(super) fn repair(&mut self) {
        if !self.restart() || self.config.recovery == Recovery::GoBackN {
            return;
        }
        // The answer to a READ does not show whether packets after it were held.
        let shows = self.ledger.get(self.ledger.oldest()).is_some_and(|entry| !entry.has_answer());
        if self.repair.peer == Peer::Keeps || (self.repair.peer == Peer::Unknown && shows) {
            self.repair.single = true;
            self.repair.asked = shows.then_some(self.oldest);
        }
    }

    /// Moves the cursor behind all sent packets, after only the missing packet was sent again.
    pub(super) fn leap(&mut self) {
        self.repair.single = false;
        self.cursor = self.high;
        self.at = self.ledger.started();
        let last = self.at.checked_sub(1).and_then(|at| self.ledger.get(at));
        if last.is_some_and(|last| last.span.end() != self.high) {
            // The last entry has been sent in part.
            self.at -= 1;
        }
    }

    /// Finds out from an answer whether the peer has held the packets after the missing packet.
    /// `further` is true if the answer is for a packet after all packets that it acknowledges: the
    /// peer cannot answer a packet that it has dropped.
    pub(super) fn learn(&mut self, further: bool) {
        let Some(asked) = self.repair.asked.filter(|asked| asked.is_before(self.oldest)) else {
            return;
        };
        self.repair.asked = None;
        let single = self.oldest.since(asked) == 1;
        self.repair.single_holes = if single { self.repair.single_holes + 1 } else { 0 };
        if !single || (further && self.repair.single_holes < SINGLE_HOLES) {
            self.repair.peer = Peer::Keeps;
        } else if self.oldest != self.high {
            self.repair.peer = Peer::Drops;
            self.go_back();
        }
    }

    /// Sets the time of the next probe, if there will be one.
    pub(super) fn arm_probe(&mut self, now: Nanos) {
        let wait = self.trip.smoothed().filter(|_| self.config.recovery == Recovery::Leap);
        let reads = self.ledger.get(self.ledger.oldest()).is_some_and(|entry| entry.has_answer());
        let factor = if reads { 8 } else { 2 } << (PROBES - self.repair.probes.min(PROBES));
        self.repair.probe_at = wait
            .filter(|_| self.repair.probes > 0)
            .map(|trip| now.plus((trip * factor).max(EARLIEST)));
    }

    /// Sends a packet again to find out whether packets have been lost: first the last one, then
    /// the first READ or atomic, or the oldest packet if there is none.
    pub(super) fn probe(&mut self, now: Nanos) {
        self.repair.probe_at = None;
        if self.oldest == self.high || self.cursor != self.high || self.repair.single {
            return;
        }
        self.counters.probes += 1;
        let first = self.repair.probes == PROBES;
        self.repair.probes -= 1;
        let last = self.ledger.started().checked_sub(1);
        let repeats = |at: &usize| self.ledger.get(*at).is_some_and(|entry| !entry.has_answer());
        match last.filter(|_| first).filter(repeats) {
            Some(at) => {
                self.repair.reset();
                self.cursor = self.high.previous();
                self.at = at;
                self.urgent = true;
                self.trip.forget();
            }
            None => {
                self.go_back();
                self.repair.single = true;
                self.skip_to_answer();
            }
        }
        self.arm_probe(now);
    }

    /// Moves the cursor from the oldest packet to the first READ or atomic, if there is one. A
    /// responder does not acknowledge a duplicate before a READ or atomic, because the answer to
    /// the READ or atomic also acknowledges the duplicate.
    fn skip_to_answer(&mut self) {
        let started = self.ledger.oldest()..self.ledger.started();
        let answered = |at: &usize| self.ledger.get(*at).is_some_and(|entry| entry.has_answer());
        if let Some(at) = started.skip(1).find(answered).filter(|_| !answered(&self.at))
            && let Some(entry) = self.ledger.get(at)
        {
            (self.cursor, self.at) = (entry.span.first, at);
        }
    }
}
