//! Time-based loss detection: RACK (RFC 8985, 6).

use std::time::Duration;

use super::records::{Fate, Record, Records};
use super::rtt::Rtt;
use crate::seq::StreamPos;
use crate::time::Nanos;

/// Number of segments that the peer has out of order, from which on the window for reordering is
/// zero (RFC 8985, 6.2).
const DUPLICATES: usize = 3;
/// Number of recoveries after which an enlarged reordering window is reset.
const PERSIST: u8 = 16;

/// The state of RACK.
#[derive(Debug, Default)]
pub(crate) struct Rack {
    /// The delivered segment that was sent last: its time of sending and its end.
    newest: Option<(Nanos, StreamPos)>,
    rtt: Duration,
    /// The highest end of a delivered segment.
    forward: StreamPos,
    reordering: bool,
    /// The reordering window, in quarters of the minimum round trip time.
    quarters: u32,
    persist: u8,
    /// Reports of duplicates before this position belong to a round trip that has been counted.
    round: StreamPos,
}

impl Rack {
    /// Records that a segment has been delivered. `original` is true if the acknowledgement was for
    /// an earlier transmission than the last one. Returns the round trip time if it is a valid
    /// measurement.
    pub(crate) fn delivered(
        &mut self,
        now: Nanos,
        record: &Record,
        rtt: &Rtt,
        original: bool,
    ) -> Option<Duration> {
        if !record.resent && record.end < self.forward {
            self.reordering = true;
        }
        self.forward = self.forward.max(record.end);
        let trip = now.since(record.sent);
        if record.resent && (original || rtt.shortest().is_some_and(|shortest| trip < shortest)) {
            return None;
        }
        if self.newest.is_none_or(|newest| newest <= (record.sent, record.end)) {
            self.newest = Some((record.sent, record.end));
            self.rtt = trip;
        }
        (!record.resent).then_some(trip)
    }

    /// Records a reported duplicate: a segment was sent again although it was not lost.
    pub(crate) fn duplicate(&mut self, una: StreamPos, next: StreamPos) {
        if una >= self.round {
            self.round = next;
            self.quarters = self.quarters.saturating_add(1).min(u32::from(PERSIST));
            self.persist = PERSIST;
            self.reordering = true;
        }
    }

    /// Records that a recovery has ended.
    pub(crate) fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.quarters = 0;
        }
    }

    /// Returns the reordering window.
    fn window(&self, rtt: &Rtt, sacked: usize, recovering: bool) -> Duration {
        if !self.reordering && (recovering || sacked >= DUPLICATES) {
            return Duration::ZERO;
        }
        let window = rtt.shortest().unwrap_or_default() * (self.quarters + 1) / 4;
        window.min(rtt.smoothed().unwrap_or(window))
    }

    /// Marks segments as lost that were sent long enough before a delivered one. Returns the time
    /// at which more of them may have to be marked.
    pub(crate) fn detect(
        &self,
        now: Nanos,
        records: &mut Records,
        rtt: &Rtt,
        recovering: bool,
    ) -> Option<Nanos> {
        let (newest, wait) =
            (self.newest?, self.rtt + self.window(rtt, records.sacked(), recovering));
        let mut next: Option<Nanos> = None;
        for at in 0..records.len() {
            let Some(record) = records.get(at) else { break };
            if record.fate != Fate::Flying || (record.sent, record.end) >= newest {
                // Without retransmissions, the times of sending are in ascending order.
                if record.fate == Fate::Flying && !record.resent && record.sent > newest.0 {
                    break;
                }
                continue;
            }
            let due = record.sent.plus(wait);
            if due <= now {
                records.set(at, Fate::Lost);
            } else {
                next = Some(next.map_or(due, |next| next.max(due)));
            }
        }
        next
    }
}
