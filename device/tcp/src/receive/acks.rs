//! The moment at which received bytes are acknowledged.

use std::time::Duration;

use crate::time::Nanos;

/// Bytes after which an acknowledgement is not delayed.
const BYTES: u64 = 32 << 10;
/// Segments with data after which it is not delayed (RFC 9293, 3.8.6.3).
const SEGMENTS: u32 = 2;

/// The acknowledgement that is due, or will be.
#[derive(Debug)]
pub(crate) struct Acks {
    /// An acknowledgement is due now.
    pub(crate) due: bool,
    /// The time at which it will be.
    pub(crate) deadline: Option<Nanos>,
    delay: Duration,
    segments: u32,
    bytes: u64,
    /// Segments out of order since the last progress that were not acknowledged each.
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

    /// Returns whether a segment out of order is left to acknowledge. The next acknowledgement is
    /// for it if it is a `repeated` one.
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

    /// A segment has carried the acknowledgement.
    pub(crate) fn sent(&mut self) {
        *self = Self { repeats: self.repeats, ..Self::new(self.delay) };
    }
}
