//! Who serves something that several threads can serve: its own thread, which waits for events, or
//! a worker, which polls anyway.
//!
//! A worker that makes work for it, or finds some, attends from then on, and its thread rests: two
//! threads would wake each other for each packet. When nothing comes any more, or when all workers
//! sleep, the thread is woken and waits for events again.
//!
//! No work is lost. Whoever posts some sees a worker awake, which looks for work before it sleeps,
//! or is told to wake the thread.

use std::sync::atomic::Ordering;

use super::sync::{AtomicBool, AtomicUsize, fence};

/// The state that the thread, the workers and those who post work share.
#[derive(Debug, Default)]
pub struct Attendance {
    /// Workers that are not asleep.
    awake: AtomicUsize,
    /// True if a worker attends.
    attended: AtomicBool,
    /// True if something was posted that nobody has taken.
    work: AtomicBool,
}

impl Attendance {
    /// Announces work, which the caller has made visible. Returns whether the caller has to wake
    /// the thread.
    #[must_use]
    pub fn post(&self) -> bool {
        self.work.store(true, Ordering::SeqCst);
        // Pairs with the one of `fall_asleep`.
        fence(Ordering::SeqCst);
        self.awake.load(Ordering::SeqCst) == 0
    }

    /// Returns whether there is work.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.work.load(Ordering::SeqCst)
    }

    /// Returns whether a worker has to look: there is work, or one attends.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.work.load(Ordering::Relaxed) || self.is_attended()
    }

    /// Forgets the work. The caller takes all that was posted after this call.
    pub fn take(&self) {
        self.work.swap(false, Ordering::SeqCst);
    }

    /// Returns whether a worker attends.
    #[inline]
    pub fn is_attended(&self) -> bool {
        self.attended.load(Ordering::SeqCst)
    }

    /// Makes the caller, a worker, attend, unless it is about to sleep.
    pub fn attend(&self) {
        if self.awake.load(Ordering::SeqCst) > 0 {
            self.attended.store(true, Ordering::SeqCst);
        }
    }

    /// Ends the attendance. Returns whether the caller has to wake the thread.
    #[must_use]
    pub fn leave(&self) -> bool {
        self.attended.swap(false, Ordering::SeqCst)
    }

    /// Counts a worker that begins.
    pub fn begin(&self) {
        self.awake.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a worker as asleep. It looks for work after this call, and before it sleeps. Returns
    /// whether the caller has to wake the thread.
    #[must_use]
    pub fn fall_asleep(&self) -> bool {
        let last = self.awake.fetch_sub(1, Ordering::SeqCst) == 1;
        fence(Ordering::SeqCst);
        last && self.leave()
    }
}
