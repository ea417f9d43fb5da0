//! Pings: one thread asks, and the other thread answers in its next turn.

use std::sync::atomic::{AtomicU64, Ordering};

/// The numbers of pings that were sent and answered.
#[derive(Debug, Default)]
pub struct Pulse {
    asked: AtomicU64,
    answered: AtomicU64,
}

/// A thread that answers pings.
pub trait Pinged: Send + Sync {
    /// Returns its ping counts.
    fn pulse(&self) -> &Pulse;

    /// Ends its wait, if it waits.
    fn wake(&self);
}

impl Pulse {
    /// Sends a ping. The caller then wakes the thread.
    pub fn ask(&self) {
        self.asked.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of pings that were sent.
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
