//! The time that a worker may spend on one adapter before it continues with the next.
//!
//! Work of a poll is charged to its slice by the time that it usually takes. The clock is read only
//! when enough has been charged, so that a poll with little to do reads none for this. A guest can
//! make work slower than its charge, e.g. by memory that is not in the cache; then the clock is
//! read later by the same factor, not more.

use std::cell::Cell;

use crate::host::{Clock, Lane};

/// The share of its worker's time that an adapter may take in one poll.
pub const SLICE_NS: u64 = 50_000;
/// Charges between two readings of the clock.
const LOOK_NS: u64 = 5_000;
/// Bytes of a message that are moved at once.
const PIECE: u64 = 128 << 10;
/// The same, when memory is slow: as memory that nobody has used yet, which the kernel makes page
/// by page.
const SLOW_PIECE: u64 = 16 << 10;
/// Work is slow when it takes so many times its charge.
const SLOW: u64 = 4;

/// Durations of pieces of work, in ns.
pub(crate) mod cost {
    /// The locks and look-ups of a turn.
    pub(crate) const TURN: u64 = 100;
    /// A work request: fetched, checked, completed.
    pub(crate) const REQUEST: u64 = 50;
    /// A segment, looked up in the table of keys.
    pub(crate) const SEGMENT: u64 = 20;
    /// A receive: fetched, checked, completed.
    pub(crate) const RECEIVE: u64 = 60;
    /// A packet: its headers checked or written, its ICRC.
    pub(crate) const PACKET: u64 = 150;
    /// A datagram's way to one QP, which has seldom been used lately.
    pub(crate) const DELIVERY: u64 = 300;
    /// A look at an adapter for members of a group.
    pub(crate) const ADAPTER: u64 = 100;
    /// An event, with its interrupt.
    pub(crate) const EVENT: u64 = 500;
    /// A QP that fails because its CQ has.
    pub(crate) const FAILURE: u64 = 500;
    /// A look at the summary of a doorbell page.
    pub(crate) const SUMMARY: u64 = 5;
    /// A look at the slots of a doorbell group.
    pub(crate) const GROUP: u64 = 400;
    /// A request about a key, and each page of a registration.
    pub(crate) const KEY: u64 = 100;
    pub(crate) const PAGE: u64 = 4;

    /// A wait for all who hold the memory of an adapter with this many workers, one of which is the
    /// caller. Other threads hold it briefly.
    pub(crate) const fn readers(workers: usize) -> u64 {
        if workers > 1 { super::LOOK_NS } else { 2 * KEY }
    }
}

/// The slice of one poll.
#[derive(Debug)]
pub struct Slice<'a, H> {
    host: &'a H,
    lane: Lane,
    /// Charged since the clock was read.
    charged: Cell<u64>,
    /// When the clock was read last.
    looked: Cell<Option<u64>>,
    /// When the slice ends; unknown before the clock has been read.
    end: Cell<u64>,
    over: Cell<bool>,
    /// True if work took much longer than its charge when the clock was read last, and before
    /// anybody knows.
    slow: Cell<bool>,
}

impl<'a, H: Clock> Slice<'a, H> {
    /// A slice that begins now, of a worker in `lane`.
    #[inline]
    #[must_use]
    pub fn new(host: &'a H, lane: Lane) -> Self {
        Self {
            host,
            lane,
            charged: Cell::new(0),
            looked: Cell::new(None),
            end: Cell::new(0),
            over: Cell::new(false),
            slow: Cell::new(true),
        }
    }

    /// Returns the lane of the worker whose time it is.
    #[inline]
    #[must_use]
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Charges work that takes about so many ns.
    #[inline]
    pub fn charge(&self, ns: u64) {
        let charged = self.charged.get() + ns;
        self.charged.set(charged);
        if charged >= LOOK_NS {
            self.look();
        }
    }

    /// Returns how many of the `left` bytes of a message to move before their charge. A page that
    /// nobody has used yet takes a hundred times as long as another, so a long message begins with
    /// a short piece, whose time is measured.
    #[inline]
    #[must_use]
    pub fn piece(&self, left: u64) -> u64 {
        if left > SLOW_PIECE && self.looked.get().is_none() {
            self.look();
        }
        left.min(if self.slow.get() { SLOW_PIECE } else { PIECE })
    }

    /// Charges the move of so many bytes. The clock is read each time while memory may be slow.
    #[inline]
    pub fn charge_copy(&self, bytes: u64) {
        self.charge(bytes / 16);
        // Nothing is charged any more if the clock has just been read.
        if self.slow.get() && bytes >= SLOW_PIECE && self.charged.get() > 0 {
            self.look();
        }
    }

    /// Returns whether it is used up. The rest of the work then waits for the next poll.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.get()
    }

    #[cold]
    fn look(&self) {
        let now = self.host.now();
        let charged = self.charged.take();
        match self.looked.replace(Some(now)) {
            Some(before) => self.slow.set(now.saturating_sub(before) > SLOW * charged),
            None => self.end.set(now.saturating_sub(charged) + SLICE_NS),
        }
        self.over.set(now >= self.end.get());
    }
}
