//! Pings: another thread asks, and the thread that is asked answers in its next turn.

use std::sync::atomic::{AtomicU64, Ordering};

/// The pings of a thread, as counts.
#[derive(Debug, Default)]
pub struct Pulse {
    asked: AtomicU64,
    answered: AtomicU64,
}

/// A thread that answers pings.
pub trait Pinged: Send + Sync {
    /// Returns its pings.
    fn pulse(&self) -> &Pulse;

    /// Ends its wait, if it waits.
    fn wake(&self);
}

impl Pulse {
    /// Pings. The caller wakes the thread.
    pub fn ask(&self) {
        self.asked.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of pings so far.
    #[inline]
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Answers the first `asked` pings.
    pub fn answer(&self, asked: u64) {
        self.answered.store(asked, Ordering::Release);
    }

    /// Returns whether all pings have been answered.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire) == self.asked.load(Ordering::Acquire)
    }
}
