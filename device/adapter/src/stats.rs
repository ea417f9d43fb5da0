//! Counters of an adapter, and the rate limit of its warnings.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
pub use vrnic_abi::admin::Counter;
use vrnic_abi::admin::STAT_NAMES;

use crate::host::Lane;
use crate::log_ratelimit::Limiter;

/// Number of counters.
const COUNTERS: usize = STAT_NAMES.len();

/// The counts of one lane, in the order of [`vrnic_abi::admin::Stats`].
#[derive(Debug)]
struct Counts([AtomicU64; COUNTERS]);

/// The values of all counters at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values([u64; COUNTERS]);

impl Default for Values {
    fn default() -> Self {
        Self([0; COUNTERS])
    }
}

impl Values {
    /// Adds other values.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, value)| *sum = sum.wrapping_add(value));
    }

    /// Returns these values without others.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|nth| {
            let of = |values: &Self| values.0.get(nth).copied().unwrap_or(0);
            of(self).saturating_sub(of(other))
        }))
    }

    /// Returns them in the form for the guest: an array of little-endian 64-bit words.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

impl IntoIterator for Values {
    type Item = u64;
    type IntoIter = std::array::IntoIter<u64, COUNTERS>;

    /// Returns the values in the order of [`STAT_NAMES`].
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The counters, with a copy for each [`Lane`]. Reading adds the copies.
#[derive(Debug)]
pub struct Counters {
    shared: CachePadded<Counts>,
    workers: Box<[CachePadded<Counts>]>,
    /// The values at the last reset. The workers' copies are never reset, because only their own
    /// threads may write them.
    base: Mutex<[u64; COUNTERS]>,
    /// The rate limit of warnings about the guest.
    pub limiter: Limiter,
}

/// The copy of the counters of one lane, for a thread in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InLane<'a> {
    counts: &'a Counts,
    /// True if no other thread writes the copy.
    is_own: bool,
}

impl InLane<'_> {
    /// Returns whether [`Self::add_own`] can be used.
    #[inline]
    pub(crate) const fn is_own(self) -> bool {
        self.is_own
    }

    /// Adds to a counter that no other thread writes. A locked instruction would only cost time.
    #[inline]
    pub(crate) fn add_own(self, counter: Counter, value: u64) {
        if let Some(cell) = self.counts.0.get(counter as usize) {
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
        }
    }

    /// Adds to a counter.
    #[inline]
    pub(crate) fn add(self, counter: Counter, value: u64) {
        if self.is_own {
            self.add_own(counter, value);
        } else if let Some(cell) = self.counts.0.get(counter as usize) {
            cell.fetch_add(value, Ordering::Relaxed);
        }
    }
}

impl Counters {
    /// Creates counters of zero for this many lanes.
    #[must_use]
    pub fn new(lanes: usize) -> Self {
        let counts = || Counts(std::array::from_fn(|_| AtomicU64::new(0))).into();
        Self {
            shared: counts(),
            workers: (1..lanes).map(|_| counts()).collect(),
            base: Mutex::new([0; COUNTERS]),
            limiter: Limiter::default(),
        }
    }

    /// Adds to a counter. Can be called from any thread.
    #[inline]
    pub fn add(&self, counter: Counter, value: u64) {
        InLane { counts: &self.shared, is_own: false }.add(counter, value);
    }

    /// Adds one to a counter. Can be called from any thread.
    #[inline]
    pub fn step(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Returns the copy of a lane.
    #[inline]
    pub(crate) fn in_lane(&self, lane: Lane) -> InLane<'_> {
        let own = lane.index(self.workers.len() + 1).checked_sub(1);
        let own = own.and_then(|worker| self.workers.get(worker));
        InLane { counts: own.unwrap_or(&self.shared), is_own: own.is_some() }
    }

    /// Returns the value of a counter.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.values().into_iter().nth(counter as usize).unwrap_or(0)
    }

    /// Returns all values.
    #[must_use]
    pub fn values(&self) -> Values {
        let base = *self.base.lock();
        let mut values = self.sums();
        values.iter_mut().zip(base).for_each(|(sum, base)| *sum = sum.wrapping_sub(base));
        Values(values)
    }

    /// Sets all counters to zero.
    pub fn clear(&self) {
        *self.base.lock() = self.sums();
    }

    /// Returns the sums of the lanes.
    fn sums(&self) -> [u64; COUNTERS] {
        let mut sums = [0u64; COUNTERS];
        for lane in self.workers.iter().chain([&self.shared]) {
            for (sum, cell) in sums.iter_mut().zip(&lane.0) {
                *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_added_up_and_begin_again() {
        let counters = Counters::new(3);
        counters.step(Counter::TxPkts);
        counters.in_lane(Lane::SHARED).add(Counter::TxPkts, 10);
        for worker in 0..3 {
            // The third counts with the threads that are not workers.
            let lane = counters.in_lane(Lane::worker(worker));
            assert_eq!(lane.is_own(), worker < 2);
            lane.add(Counter::TxPkts, 10);
            lane.add(Counter::TxBytes, worker as u64);
        }
        assert_eq!((counters.get(Counter::TxPkts), counters.get(Counter::TxBytes)), (41, 3));
        counters.clear();
        assert_eq!(counters.get(Counter::TxPkts), 0);
        counters.in_lane(Lane::worker(1)).add(Counter::TxPkts, 5);
        assert_eq!(counters.values().into_iter().collect::<Vec<_>>()[..2], [5, 0]);
        assert_eq!(
            counters.values().bytes()[..16],
            [5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
    }
}
