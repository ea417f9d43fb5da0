//! Decides when received bytes are acknowledged.

use std::time::Duration;

use vrnic_packet::Nanos;

/// Number of bytes after which an acknowledgement is not delayed.
const BYTES: u64 = 32 << 10;
/// Number of segments with data after which it is not delayed (RFC 9293, 3.8.6.3).
const SEGMENTS: u32 = 2;

/// The state of the pending acknowledgement.
#[derive(Debug)]
pub(crate) struct Acks {
    /// True if an acknowledgement is due now.
    pub(crate) due: bool,
    /// The time at which an acknowledgement becomes due.
    pub(crate) deadline: Option<Nanos>,
    delay: Duration,
    segments: u32,
    bytes: u64,
    /// Number of segments out of order since the last progress for which no acknowledgement was
    /// sent.
    repeats: u32,
}

impl Acks {
    pub(crate) const fn new(delay: Duration) -> Self {
        Self { due: false, deadline: None, delay, segments: 0, bytes: 0, repeats: 0 }
    }

    /// Counts a segment whose bytes arrived in order.
    pub(crate) fn arrived(&mut self, now: Nanos, bytes: u64) {
        self.repeats = 0;
        self.segments += 1;
        self.bytes += bytes;
        if self.segments >= SEGMENTS || self.bytes >= BYTES {
            self.due = true;
        }
        self.deadline.get_or_insert(now.plus(self.delay));
    }

    /// Counts a segment that arrived out of order.
    pub(crate) fn arrived_early(&mut self) {
        self.due = true;
        self.repeats = self.repeats.saturating_add(1);
    }

    /// Returns whether an acknowledgement for a segment out of order is still to be sent. If the
    /// next acknowledgement repeats the previous one (`repeated`), it counts for that segment.
    pub(crate) fn takes_repeat(&mut self, repeated: bool) -> bool {
        let left = self.repeats > 0;
        self.repeats -= u32::from(left && repeated);
        left
    }

    pub(crate) fn timeout(&mut self, now: Nanos) {
        if self.deadline.is_some_and(|at| at <= now) {
            self.deadline = None;
            self.due = true;
        }
    }

    /// Records that a segment has carried the acknowledgement.
    pub(crate) fn sent(&mut self) {
        *self = Self { repeats: self.repeats, ..Self::new(self.delay) };
    }
}
