//! Numbers of things that exist, and of those that may exist.

use std::sync::atomic::{AtomicU32, Ordering};

/// A number of things, and its maximum. The number may be above a maximum that was lowered; then
/// nothing more can be taken until it is below.
#[derive(Debug)]
pub struct Meter {
    maximum: AtomicU32,
    used: AtomicU32,
}

/// Things that were taken. On drop they are given back, unless they were kept.
#[derive(Debug)]
pub struct Taken<'a> {
    meter: &'a Meter,
    amount: u32,
}

impl Meter {
    /// Creates a meter of which nothing is taken.
    #[must_use]
    pub const fn new(maximum: u32) -> Self {
        Self { maximum: AtomicU32::new(maximum), used: AtomicU32::new(0) }
    }

    /// Returns how much may be taken.
    #[must_use]
    pub fn maximum(&self) -> u32 {
        self.maximum.load(Ordering::Relaxed)
    }

    /// Sets the maximum. What is taken stays taken.
    pub fn set_maximum(&self, maximum: u32) {
        self.maximum.store(maximum, Ordering::Relaxed);
    }

    /// Returns the number of things that are taken.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes this many. Returns `None` if that is more than are left.
    #[must_use]
    pub fn take(&self, amount: u32) -> Option<Taken<'_>> {
        let maximum = self.maximum();
        let add = |used: u32| used.checked_add(amount).filter(|sum| *sum <= maximum);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Taken { meter: self, amount })
    }

    /// Gives back this many that were kept.
    pub fn give(&self, amount: u32) {
        let subtract = |used: u32| Some(used.saturating_sub(amount));
        let _before = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
    }

    /// Gives back all.
    pub fn clear(&self) {
        self.used.store(0, Ordering::Relaxed);
    }
}

impl Taken<'_> {
    /// Keeps them taken until [`Meter::give`].
    pub fn keep(mut self) {
        self.amount = 0;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.meter.give(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_given_back() {
        let meter = Meter::new(5);
        let taken = meter.take(5).expect("room");
        assert!(meter.take(1).is_none());
        drop(taken);
        assert_eq!(meter.used(), 0);
        meter.take(3).expect("room").keep();
        assert!(meter.take(3).is_none() && meter.take(u32::MAX).is_none());
        assert_eq!(meter.used(), 3);
        meter.give(1);
        assert_eq!(meter.used(), 2);
    }

    #[test]
    fn a_lowered_maximum_takes_nothing_away() {
        let meter = Meter::new(5);
        meter.take(4).expect("room").keep();
        meter.set_maximum(3);
        assert_eq!((meter.used(), meter.maximum()), (4, 3));
        assert!(meter.take(1).is_none());
        meter.give(2);
        meter.take(1).expect("room").keep();
        meter.clear();
        assert_eq!(meter.used(), 0);
    }
}
