//! Decides which thread runs an object that several threads can run: the object's own thread, which
//! waits for events, or a worker, which polls.
//!
//! When a worker finds work for the object, workers run it from then on ("attend"), and its thread
//! does not. Otherwise the two threads would wake each other for each packet. When there is no more
//! work, or when all workers sleep, the thread is woken and waits for events again.
//!
//! No work is lost. When work is posted, either a worker is awake and checks for work before it
//! sleeps, or the thread that posts it has to wake the object's thread.

use std::sync::atomic::Ordering;

use super::sync::{AtomicBool, AtomicUsize, fence};

/// The state that the thread, the workers and the threads that post work share.
#[derive(Debug, Default)]
pub struct Attendance {
    /// Number of workers that are not asleep.
    awake: AtomicUsize,
    /// True if a worker attends.
    attended: AtomicBool,
    /// True if work was posted that no thread has taken.
    work: AtomicBool,
}

impl Attendance {
    /// Announces work, which the caller has made visible. Returns whether the caller has to wake
    /// the thread.
    #[must_use]
    pub fn post(&self) -> bool {
        self.work.store(true, Ordering::SeqCst);
        // Pairs with the fence in `fall_asleep`.
        fence(Ordering::SeqCst);
        self.awake.load(Ordering::SeqCst) == 0
    }

    /// Returns whether work waits.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.work.load(Ordering::SeqCst)
    }

    /// Returns whether a worker has to run the object, because work waits or a worker attends.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.work.load(Ordering::Relaxed) || self.is_attended()
    }

    /// Marks all work as taken. After this call the caller takes all posted work.
    pub fn take(&self) {
        self.work.swap(false, Ordering::SeqCst);
    }

    /// Returns whether a worker attends.
    #[inline]
    pub fn is_attended(&self) -> bool {
        self.attended.load(Ordering::SeqCst)
    }

    /// Makes the calling worker attend, unless all workers are about to sleep. Returns whether the
    /// caller has to wake the thread.
    #[must_use]
    pub fn attend(&self) -> bool {
        if self.awake.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.attended.store(true, Ordering::SeqCst);
        // The caller may be about to sleep, and the other workers may have fallen asleep since the
        // first check.
        self.awake.load(Ordering::SeqCst) == 0 && self.leave()
    }

    /// Ends the attendance. Returns whether the caller has to wake the thread.
    #[must_use]
    pub fn leave(&self) -> bool {
        self.attended.swap(false, Ordering::SeqCst)
    }

    /// Counts a worker as awake.
    pub fn begin(&self) {
        self.awake.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a worker as asleep. The worker must check for work after this call and before it
    /// sleeps. Returns whether the caller has to wake the thread.
    #[must_use]
    pub fn fall_asleep(&self) -> bool {
        let last = self.awake.fetch_sub(1, Ordering::SeqCst) == 1;
        fence(Ordering::SeqCst);
        last && self.leave()
    }
}
