//! The time that a worker may spend on one adapter before it continues with the next.
//!
//! Work of a poll is charged to its slice by its usual duration. The clock is read only after a
//! certain charge, so that a poll with little work does not read it. A guest can make work slower
//! than its charge, for example by memory that is not in the cache. The clock is then read later by
//! the same factor.

use std::cell::Cell;
use std::time::Duration;

use vrnic_packet::Nanos;

use crate::host::{Clock, Lane};

/// The time in nanoseconds of its worker that an adapter may take in one poll while no other waits.
pub const SLICE_NS: u64 = 50_000;
/// The same as a duration.
pub const SLICE: Duration = Duration::from_nanos(SLICE_NS);
/// The time of an adapter beside others that answer their guests' messages one at a time. Less work
/// than this is not measured.
pub const SHORT_SLICE: Duration = Duration::from_nanos(CLOCK_INTERVAL_NS);
/// Charge between two readings of the clock.
const CLOCK_INTERVAL_NS: u64 = 5_000;
/// Number of bytes of a message that are moved at once.
const PIECE: u64 = 128 << 10;
/// The same if memory is slow, such as memory that has never been used and that the kernel
/// allocates page by page.
const SLOW_PIECE: u64 = 16 << 10;
/// The same two in a short slice.
const SHORT_PIECE: u64 = 32 << 10;
const SHORT_SLOW_PIECE: u64 = 4 << 10;
/// Work is slow if it takes this many times its charge.
const SLOW: u64 = 4;

/// Durations of work in nanoseconds.
pub(crate) mod cost {
    /// The locks and look-ups of a turn.
    pub(crate) const TURN: u64 = 100;
    /// A work request: read, checked, completed.
    pub(crate) const REQUEST: u64 = 50;
    /// A segment, looked up in the table of keys.
    pub(crate) const SEGMENT: u64 = 20;
    /// A receive: read, checked, completed.
    pub(crate) const RECEIVE: u64 = 60;
    /// A packet: its headers checked or written, and its ICRC.
    pub(crate) const PACKET: u64 = 150;
    /// An FPDU: its headers and CRC checked, its message looked up.
    pub(crate) const FPDU: u64 = 100;
    /// The delivery of a datagram to one QP, whose data is usually not in the cache.
    pub(crate) const DELIVERY: u64 = 300;
    /// The check of an adapter for members of a group.
    pub(crate) const ADAPTER: u64 = 100;
    /// An event, with its interrupt.
    pub(crate) const EVENT: u64 = 500;
    /// A QP that fails because its CQ has.
    pub(crate) const FAILURE: u64 = 500;
    /// The check of the summary of a doorbell page.
    pub(crate) const SUMMARY: u64 = 5;
    /// The check of the slots of a doorbell group.
    pub(crate) const GROUP: u64 = 400;
    /// A request that concerns a key, and each page of a registration.
    pub(crate) const KEY: u64 = 100;
    pub(crate) const PAGE: u64 = 4;

    /// Returns the duration of a wait for all threads that hold the memory of an adapter with this
    /// many workers. The caller is one of these workers, and the other threads hold the memory
    /// briefly.
    pub(crate) const fn readers(workers: usize) -> u64 {
        if workers > 1 { super::CLOCK_INTERVAL_NS } else { 2 * KEY }
    }
}

/// The slice of one poll.
#[derive(Debug)]
pub struct Slice<'a, H> {
    host: &'a H,
    lane: Lane,
    /// Its duration in nanoseconds.
    length: u64,
    /// The charge since the clock was read.
    charged: Cell<u64>,
    /// The time of the last reading of the clock.
    last_read: Cell<Option<Nanos>>,
    /// The end of the slice; unknown before the first reading of the clock.
    end: Cell<Nanos>,
    over: Cell<bool>,
    /// True if work took much longer than its charge at the last reading of the clock, and before
    /// the first one.
    slow: Cell<bool>,
}

impl<'a, H: Clock> Slice<'a, H> {
    /// Creates a slice of [`SLICE`] that begins now, of a worker in `lane`.
    #[inline]
    #[must_use]
    pub fn new(host: &'a H, lane: Lane) -> Self {
        Self::lasting(host, lane, SLICE)
    }

    /// Creates a slice of this length that begins now, of a worker in `lane`.
    #[inline]
    #[must_use]
    pub fn lasting(host: &'a H, lane: Lane, length: Duration) -> Self {
        Self {
            host,
            lane,
            // CAST: a slice is no longer than `SLICE`.
            length: length.as_nanos() as u64,
            charged: Cell::new(0),
            last_read: Cell::new(None),
            end: Cell::new(Nanos(0)),
            over: Cell::new(false),
            slow: Cell::new(true),
        }
    }

    /// Returns the lane of the worker.
    #[inline]
    #[must_use]
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Charges work that takes about `ns` nanoseconds.
    #[inline]
    pub fn charge(&self, ns: u64) {
        let charged = self.charged.get() + ns;
        self.charged.set(charged);
        if charged >= CLOCK_INTERVAL_NS {
            self.read_clock();
        }
    }

    /// Returns the duration of the slice so far in nanoseconds: measured up to the last reading of
    /// the clock, and the charge since then.
    #[inline]
    #[must_use]
    pub fn spent(&self) -> u64 {
        let measured = self
            .last_read
            .get()
            .map_or(0, |read| (read.0 + self.length).saturating_sub(self.end.get().0));
        measured + self.charged.get()
    }

    /// Returns whether other adapters wait for the end of the slice.
    #[inline]
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.length < SLICE_NS
    }

    /// Returns how many of the `left` bytes of a message to move before they are charged. A page
    /// that has never been used takes a hundred times as long as others, so a long message begins
    /// with a short piece, whose duration is measured.
    #[inline]
    #[must_use]
    pub fn piece(&self, left: u64) -> u64 {
        if left > SLOW_PIECE && self.last_read.get().is_none() {
            self.read_clock();
        }
        left.min(match (self.slow.get(), self.is_short()) {
            (false, false) => PIECE,
            (false, true) => SHORT_PIECE,
            (true, false) => SLOW_PIECE,
            (true, true) => SHORT_SLOW_PIECE,
        })
    }

    /// Charges a copy of this many bytes. The clock is read each time while memory may be slow.
    #[inline]
    pub fn charge_copy(&self, bytes: u64) {
        self.charge(bytes / 16);
        // The charge is zero if the clock has just been read.
        let long = if self.is_short() { SHORT_SLOW_PIECE } else { SLOW_PIECE };
        if self.slow.get() && bytes >= long && self.charged.get() > 0 {
            self.read_clock();
        }
    }

    /// Returns whether the slice is used up. The rest of the work then waits for the next poll.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.get()
    }

    #[cold]
    fn read_clock(&self) {
        let now = self.host.now();
        let charged = self.charged.take();
        match self.last_read.replace(Some(now)) {
            Some(before) => self.slow.set(now.0.saturating_sub(before.0) > SLOW * charged),
            None => self.end.set(Nanos(now.0.saturating_sub(charged) + self.length)),
        }
        self.over.set(now >= self.end.get());
    }
}
