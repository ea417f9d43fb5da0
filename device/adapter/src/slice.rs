//! The time that a worker may spend on one adapter before it continues with the next.
//!
//! Work of a poll is charged to its slice by its usual duration. The clock is read only after a
//! certain charge, so that a poll with little work does not read it. A guest can make work slower
//! than its charge, for example by memory that is not in the cache. The clock is then read later by
//! the same factor. Not so in short slices: there, the charge between two readings is made smaller
//! by that factor, in the next poll too ([`ClockInterval`]), and the last one is what is left.

use std::cell::Cell;
use std::time::Duration;

use vrnic_packet::Nanos;

use crate::host::{Clock, GuestMemory, Lane};

/// The time in nanoseconds of its worker that an adapter may take in one poll while no other waits.
pub const SLICE_NS: u64 = 50_000;
/// The same as a duration.
pub const SLICE: Duration = Duration::from_nanos(SLICE_NS);
/// The time of an adapter next to others that answer their guests' messages one at a time. Less
/// work than this is not measured.
pub const SHORT_SLICE: Duration = Duration::from_nanos(CLOCK_INTERVAL_NS);
/// Charge between two readings of the clock, if work takes as long as its charge.
const CLOCK_INTERVAL_NS: u64 = 5_000;
/// The smallest charge between two readings, however slow the work is.
const MIN_CLOCK_INTERVAL_NS: u64 = CLOCK_INTERVAL_NS / 32;
/// Charge before the first reading in a short slice, and between it and the second one, which
/// together show whether the work is slow.
const FIRST_CLOCK_INTERVAL_NS: u64 = CLOCK_INTERVAL_NS / 8;
/// Number of bytes of a message that are moved at once.
const PIECE: u64 = 128 << 10;
/// Number of bytes of a long copy, after which the clock is read while memory may be slow.
const LONG_COPY: u64 = 16 << 10;
/// [`PIECE`], and [`GuestMemory::SLOW_PIECE`], in a short slice.
const SHORT_PIECE: u64 = 32 << 10;
const SHORT_SLOW_PIECE: u64 = 4 << 10;
/// The part of a short slice that is in any case for frames that have arrived.
const ARRIVALS_PART: u64 = 4;
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
    /// A copy of a frame for a QP of raw packets, queued for its worker.
    pub(crate) const COPY: u64 = 150;
    /// The check of an adapter for members of a group.
    pub(crate) const ADAPTER: u64 = 100;
    /// An event, with its interrupt.
    pub(crate) const EVENT: u64 = 500;
    /// A timer that has expired.
    pub(crate) const TIMER: u64 = 100;
    /// A turn that another thread has requested: its QP looked up.
    pub(crate) const MAIL: u64 = 50;
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

/// The charge in nanoseconds between two readings of the clock in short slices: the smaller, the
/// slower the work of an adapter was when it was measured last.
#[derive(Clone, Copy, Debug)]
pub struct ClockInterval(u64);

impl Default for ClockInterval {
    fn default() -> Self {
        Self(CLOCK_INTERVAL_NS)
    }
}

impl ClockInterval {
    /// Returns the interval for work that took `took` nanoseconds instead of its charge.
    fn of(charged: u64, took: u64) -> Self {
        let interval = CLOCK_INTERVAL_NS.saturating_mul(charged) / took.max(1);
        Self(interval.clamp(MIN_CLOCK_INTERVAL_NS, CLOCK_INTERVAL_NS))
    }

    /// Returns the probable duration of work with this charge.
    fn duration(self, charged: u64) -> u64 {
        charged * CLOCK_INTERVAL_NS / self.0
    }

    /// Returns the charge at which the clock is read next, if the slice ends in `left` nanoseconds.
    fn until(self, left: u64) -> u64 {
        let end = left.min(CLOCK_INTERVAL_NS) * self.0 / CLOCK_INTERVAL_NS;
        end.max(MIN_CLOCK_INTERVAL_NS)
    }
}

/// The slice of one poll.
#[derive(Debug)]
pub struct Slice<'a, H> {
    host: &'a H,
    lane: Lane,
    /// The duration of the slice in nanoseconds.
    length: u64,
    /// The charge since the clock was read, and the charge at which it is read next.
    charged: Cell<u64>,
    read_at: Cell<u64>,
    interval: Cell<ClockInterval>,
    /// The time of the last reading of the clock.
    last_read: Cell<Option<Nanos>>,
    /// The end of the slice; unknown before the first reading of the clock.
    end: Cell<Nanos>,
    over: Cell<bool>,
    /// True if the last long copy took much longer than its charge, or other work did since then,
    /// and before the first one.
    slow: Cell<bool>,
}

impl<'a, H: Clock> Slice<'a, H> {
    /// Creates a slice of [`SLICE`] that begins now, of a worker in `lane`.
    #[inline]
    #[must_use]
    pub fn new(host: &'a H, lane: Lane) -> Self {
        Self::lasting(host, lane, SLICE, ClockInterval::default())
    }

    /// Creates a slice of this length that begins now, of a worker in `lane`. `interval` comes
    /// from the adapter's last slice, if there was work in it.
    #[inline]
    #[must_use]
    pub fn lasting(host: &'a H, lane: Lane, length: Duration, interval: ClockInterval) -> Self {
        // CAST: a slice is no longer than `SLICE`.
        let length = length.as_nanos() as u64;
        let is_short = length < SLICE_NS;
        let interval = if is_short { interval } else { ClockInterval::default() };
        let first = match interval.0 {
            // After the first piece of work, so that the next ones are measured.
            ..CLOCK_INTERVAL_NS => 0,
            _ if is_short => FIRST_CLOCK_INTERVAL_NS,
            _ => CLOCK_INTERVAL_NS,
        };
        Self {
            host,
            lane,
            length,
            charged: Cell::new(0),
            read_at: Cell::new(first),
            interval: Cell::new(interval),
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

    /// Returns the time. This reading of the clock does not end the slice.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.host.now()
    }

    /// Returns the charge between two readings of the clock in the adapter's next slice.
    #[inline]
    #[must_use]
    pub fn interval(&self) -> ClockInterval {
        self.interval.get()
    }

    /// Charges work that takes about `ns` nanoseconds.
    #[inline]
    pub fn charge(&self, ns: u64) {
        self.charged.set(self.charged.get() + ns);
        if self.charged.get() >= self.read_at.get() && self.read_clock() {
            self.slow.set(true);
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

    /// Returns the length of the slice of frames that have arrived. It is in addition to this one,
    /// but while other adapters wait it is mostly what is left of this one.
    #[inline]
    #[must_use]
    pub fn for_arrivals(&self) -> Duration {
        let left = if self.is_short() {
            self.length.saturating_sub(self.spent()).max(self.length / ARRIVALS_PART)
        } else {
            self.length
        };
        Duration::from_nanos(left)
    }

    /// Returns whether other adapters wait for the end of the slice.
    #[inline]
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.length < SLICE_NS
    }

    /// Charges a copy of this many bytes. The clock is read after each long one while memory may be
    /// slow.
    #[inline]
    pub fn charge_copy(&self, bytes: u64) {
        let long = if self.is_short() { SHORT_SLOW_PIECE } else { LONG_COPY };
        if bytes < long {
            return self.charge(bytes / 16);
        }
        self.charged.set(self.charged.get() + bytes / 16);
        if self.slow.get() || self.charged.get() >= self.read_at.get() {
            self.slow.set(self.read_clock());
        }
    }

    /// Charges this number of copies of frames for QPs of raw packets.
    #[inline]
    pub fn charge_copies(&self, count: u64) {
        // There are rarely any, and what takes no time is not measured.
        if count > 0 {
            self.charge(cost::COPY * count);
        }
    }

    /// Returns whether the slice is used up. The rest of the work then waits for the next poll.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Reads the clock. Returns whether the work since the last reading took much longer than its
    /// charge, or was the first.
    #[cold]
    fn read_clock(&self) -> bool {
        let charged = self.charged.take();
        self.host.work(charged);
        let now = self.host.now();
        let slow = match self.last_read.replace(Some(now)) {
            Some(before) => {
                let took = now.0.saturating_sub(before.0);
                // Less work is over before the clock shows its duration.
                if self.is_short() && charged >= MIN_CLOCK_INTERVAL_NS {
                    self.interval.set(ClockInterval::of(charged, took));
                }
                let left = self.end.get().0.saturating_sub(now.0);
                self.read_at.set(self.interval.get().until(left));
                took > SLOW * charged
            }
            None => {
                let before = self.interval.get().duration(charged);
                self.end.set(Nanos(now.0.saturating_sub(before) + self.length));
                if self.read_at.get() == 0 {
                    self.read_at.set(self.interval.get().0);
                }
                true
            }
        };
        self.over.set(now >= self.end.get());
        slow
    }
}

impl<H: Clock + GuestMemory> Slice<'_, H> {
    /// Returns how many of the `left` bytes of a message to move before they are charged. A page
    /// that has never been used takes a hundred times as long as others, so a long message begins
    /// with a short piece, whose duration is measured.
    #[inline]
    #[must_use]
    pub fn piece(&self, left: u64) -> u64 {
        if left > H::SLOW_PIECE && self.last_read.get().is_none() {
            let _first = self.read_clock();
        }
        left.min(match (self.slow.get(), self.is_short()) {
            (false, false) => PIECE,
            (false, true) => SHORT_PIECE,
            (true, false) => H::SLOW_PIECE,
            (true, true) => SHORT_SLOW_PIECE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that the work advances.
    #[derive(Debug, Default)]
    struct Simulated {
        now: Cell<u64>,
        readings: Cell<u32>,
    }

    impl Clock for Simulated {
        fn now(&self) -> Nanos {
            self.readings.set(self.readings.get() + 1);
            Nanos(self.now.get())
        }
    }

    /// Works for a slice, with work that takes `slower` times its charge. Returns the duration.
    fn work(slice: &Slice<'_, Simulated>, slower: u64) -> u64 {
        let start = slice.host.now.get();
        while !slice.is_over() {
            slice.host.now.set(slice.host.now.get() + 100 * slower);
            slice.charge(100);
        }
        slice.host.now.get() - start
    }

    #[test]
    fn slow_work_ends_a_short_slice_soon() {
        let clock = Simulated::default();
        let slice = |interval| Slice::lasting(&clock, Lane::worker(0), SHORT_SLICE, interval);
        let first = slice(ClockInterval::default());
        assert!(work(&first, 20) <= 30_000, "until the work is known to be slow");
        let second = slice(first.interval());
        assert!(work(&second, 20) <= 10_000, "once this is known");
        let third = slice(second.interval());
        assert!(work(&third, 1) <= 6_000, "work that is no longer slow has its time");
        assert_eq!(third.interval().0, CLOCK_INTERVAL_NS);
    }

    #[test]
    fn a_short_slice_ends_in_time() {
        let clock = Simulated::default();
        let slice = Slice::lasting(&clock, Lane::worker(0), SHORT_SLICE, ClockInterval::default());
        assert!(work(&slice, 2) <= 6_000, "the last interval is only as long as what is left");
    }

    #[test]
    fn frames_have_the_rest_of_a_short_slice_and_a_part_in_any_case() {
        let clock = Simulated::default();
        let lane = Lane::worker(0);
        let short = Slice::lasting(&clock, lane, SHORT_SLICE, ClockInterval::default());
        assert_eq!(short.for_arrivals(), SHORT_SLICE);
        short.charge(400);
        assert_eq!(short.for_arrivals(), SHORT_SLICE - Duration::from_nanos(400));
        work(&short, 1);
        assert_eq!(short.for_arrivals(), SHORT_SLICE / 4);
        let long = Slice::new(&clock, lane);
        work(&long, 1);
        assert_eq!(long.for_arrivals(), SLICE);
    }

    #[test]
    fn work_of_the_usual_duration_reads_the_clock_seldom() {
        let clock = Simulated::default();
        let short = Slice::lasting(&clock, Lane::worker(0), SHORT_SLICE, ClockInterval::default());
        assert!((5_000..6_500).contains(&work(&short, 1)));
        assert_eq!(clock.readings.replace(0), 3);
        assert!((50_000..55_000).contains(&work(&Slice::new(&clock, Lane::worker(0)), 1)));
        assert_eq!(clock.readings.get(), 10);
    }
}
