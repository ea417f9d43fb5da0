//! The timers of the sending direction.

use std::time::Duration;

use vrnic_packet::Nanos;

use super::Sender;
use super::records::Fate;
use super::recovery::Recovery;
use super::rtt::Rtt;

/// A window of fewer bytes counts as closed. A [`Source`](crate::Source) may have to keep the last
/// bytes of a frame together, and no receiver has such small buffers.
pub(super) const WINDOW_MIN: u64 = 8;
/// Time after which a part of a small window is used (RFC 9293, 3.8.6.2.1).
const OVERRIDE: Duration = Duration::from_millis(200);
/// Number of consecutive time-outs after which a connection ends, as in Linux.
pub(super) const RETRIES: u8 = 15;
/// The minimum wait before a tail loss probe, however short the round trip is.
const TAIL_MIN: Duration = Duration::from_millis(1);
/// The maximum time by which a peer delays the acknowledgement of a single segment (RFC 8985, 7.2).
const DELAYED_ACK: Duration = Duration::from_millis(200);
/// Time after which a path that carried less than before is tried again with segments of full size
/// (RFC 1191, 6.3; RFC 8201, 4).
const PATH_AGE: Duration = Duration::from_secs(600);

/// The peer has not answered for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GiveUp;

/// The times at which timers expire, and what has become due.
#[derive(Debug)]
pub(super) struct Timers {
    user_timeout: Duration,
    /// The retransmission timer.
    pub(super) retransmit: Option<Nanos>,
    /// The timer for a tail loss probe.
    pub(super) tail: Option<Nanos>,
    /// The timer for reordering, after which segments may have to be marked as lost.
    pub(super) reorder: Option<Nanos>,
    /// The persist timer, which runs while the peer's window is too small.
    persist: Option<Nanos>,
    /// The end of the time for which segments are shorter, because the path carries less.
    path: Option<Nanos>,
    /// The time of the last progress, while bytes must be acknowledged or sent. While the peer's
    /// window is closed, each answer of the peer is progress.
    pub(super) waiting: Option<Nanos>,
    pub(super) retries: u32,
    pub(super) tail_due: bool,
    pub(super) probe_due: bool,
    pub(super) override_due: bool,
}

impl Timers {
    pub(super) const fn new(user_timeout: Duration) -> Self {
        Self {
            user_timeout,
            retransmit: None,
            tail: None,
            reorder: None,
            persist: None,
            path: None,
            waiting: None,
            retries: 0,
            tail_due: false,
            probe_due: false,
            override_due: false,
        }
    }

    /// Returns the time without progress after which a connection ends.
    pub(super) const fn user_timeout(&self) -> Duration {
        self.user_timeout
    }

    /// Starts the persist timer: bytes wait for the peer's window, and no segment is in flight
    /// whose acknowledgement would announce a larger one.
    pub(super) fn blocked(&mut self, now: Nanos, room: u64, rtt: &Rtt) {
        let wait = if room >= WINDOW_MIN { OVERRIDE } else { rtt.timeout() };
        self.persist.get_or_insert(now.plus(wait));
        self.waiting.get_or_insert(now);
    }

    /// Records an answer of the peer. A connection whose peer keeps its window closed stays open as
    /// long as the peer answers (RFC 9293, 3.8.6.1).
    pub(super) fn answered(&mut self, now: Nanos) {
        if self.persist.is_some() {
            self.waiting = Some(now);
        }
    }

    /// Starts the time for which segments are shorter.
    pub(super) fn shortened(&mut self, now: Nanos) {
        self.path = Some(now.plus(PATH_AGE));
    }

    /// Stops the persist timer, because bytes fit into the peer's window.
    pub(super) fn unblocked(&mut self, rtt: &mut Rtt) {
        if self.persist.take().is_some() {
            rtt.restart();
            self.waiting = None;
        }
        (self.probe_due, self.override_due) = (false, false);
    }

    /// Starts timers for a segment that is sent. `first` is true if it is a retransmission of the
    /// first unacknowledged one.
    pub(super) fn sent(&mut self, now: Nanos, first: bool, rtt: &Rtt) {
        self.waiting.get_or_insert(now);
        if first || self.retransmit.is_none() {
            self.retransmit = Some(now.plus(rtt.timeout()));
        }
    }

    /// Stops timers, because everything that was sent is acknowledged. Bytes may still wait for the
    /// peer's window.
    pub(super) fn idle(&mut self) {
        (self.retransmit, self.tail, self.reorder) = (None, None, None);
        self.waiting = self.waiting.filter(|_| self.persist.is_some());
        (self.retries, self.tail_due) = (0, false);
    }
}

impl Sender {
    /// Returns whether nothing is in flight, and nothing waits for the peer's window.
    pub(crate) fn is_quiet(&self) -> bool {
        self.records.is_empty() && self.timers.persist.is_none()
    }

    /// Returns the next time at which [`Self::timeout`] has work.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let timers = &self.timers;
        let give_up = timers.waiting.map(|since| since.plus(timers.user_timeout));
        [timers.retransmit, timers.tail, timers.reorder, timers.persist, timers.path, give_up]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles expired timers.
    pub(crate) fn timeout(&mut self, now: Nanos) -> Result<(), GiveUp> {
        let due = |at: Option<Nanos>| at.is_some_and(|at| at <= now);
        if due(self.timers.waiting.map(|since| since.plus(self.timers.user_timeout))) {
            return Err(GiveUp);
        }
        if due(self.timers.reorder) {
            self.reordered(now);
        }
        if due(self.timers.tail) {
            self.timers.tail = None;
            if self.recovery.is_some() {
                self.rescue();
            } else {
                self.timers.tail_due = true;
            }
            self.timers.retransmit = Some(now.plus(self.rtt.timeout()));
        }
        if due(self.timers.persist) {
            let room = self.edge.since(self.next);
            let usable = room >= WINDOW_MIN;
            (self.timers.probe_due, self.timers.override_due) = (!usable, usable);
            self.rtt.back_off();
            self.timers.persist = Some(now.plus(self.rtt.timeout()));
        }
        if due(self.timers.path) {
            (self.timers.path, self.mss) = (None, self.mss_max);
        }
        if due(self.timers.retransmit) {
            self.expired(now)?;
        }
        Ok(())
    }

    /// Handles the retransmission time-out: all segments are assumed to be lost.
    fn expired(&mut self, now: Nanos) -> Result<(), GiveUp> {
        self.timers.retransmit = None;
        if self.records.is_empty() {
            return Ok(());
        }
        self.timers.retries += 1;
        if self.timers.retries > RETRIES.into() {
            return Err(GiveUp);
        }
        self.counters.timeouts += 1;
        let flight = self.records.flying();
        // A peer that has reported the first segment but does not acknowledge it has dropped what
        // it reported (RFC 2018, 8).
        if self.records.first().is_some_and(|record| record.fate == Fate::Sacked) {
            self.records.set_all(Fate::Sacked, Fate::Lost);
        }
        self.records.set_all(Fate::Flying, Fate::Lost);
        (self.repeated, self.tail) = (0, None);
        (self.timers.tail, self.timers.tail_due, self.timers.reorder) = (None, false, None);
        self.congestion.timed_out(flight, self.timers.retries == 1);
        self.recovery = Some(Recovery::Timeout { point: self.next });
        self.rtt.back_off();
        self.timers.retransmit = Some(now.plus(self.rtt.timeout()));
        Ok(())
    }

    /// Sends the first segment again in a recovery in which nothing has arrived for a while: the
    /// retransmission was lost with nothing after it, or the acknowledgement was. A receiver that
    /// acknowledges a whole window at once sends few of them.
    fn rescue(&mut self) {
        let first = self.records.iter().position(|record| record.fate == Fate::Flying);
        if let Some(at) = first {
            self.rescued = true;
            self.counters.tail_probes += 1;
            self.records.set(at, Fate::Lost);
        }
    }

    /// Starts the timer for a tail loss probe (RFC 8985, 7.2). A recovery gets one, too, for each
    /// progress that it makes.
    pub(super) fn arm_tail(&mut self, now: Nanos) {
        let fast = matches!(self.recovery, Some(Recovery::Fast(_))) && self.records.flying() > 0;
        let tail = self.recovery.is_none() && self.tail.is_none() && self.records.sacked() == 0;
        let quiet = self.sack && !self.records.is_empty() && (tail || fast && !self.rescued);
        let lone = if tail && self.records.len() == 1 { DELAYED_ACK } else { Duration::ZERO };
        let wait = |smoothed: Duration| (smoothed * 2 + lone).max(TAIL_MIN);
        let at = self.rtt.smoothed().map(|smoothed| now.plus(wait(smoothed)));
        let before = |at: &Nanos| self.timers.retransmit.is_some_and(|rto| *at < rto);
        self.timers.tail = at.filter(before).filter(|_| quiet);
        self.timers.tail_due &= tail && quiet;
    }
}
