//! Sleep of a worker, until its bell rings or a time has passed.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::event::Event;
use super::sync::{AtomicBool, fence};

/// A bell. Ringing it costs a system call only while the worker sleeps.
#[derive(Debug)]
pub struct Bell {
    event: Event,
    /// Set by the worker before its last look at the work, cleared when it wakes.
    asleep: AtomicBool,
}

impl Bell {
    /// A silent bell.
    ///
    /// # Errors
    /// When descriptors run out.
    pub fn new() -> io::Result<Self> {
        Ok(Self { event: Event::new()?, asleep: AtomicBool::new(false) })
    }

    /// Wakes the worker if it sleeps. The caller has made the work visible before.
    pub fn ring(&self) {
        // Orders the caller's work before the look at `asleep`; pairs with `prepare_sleep`.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.event.step();
        }
    }

    /// From here on a ring ends the sleep. The worker looks for work once more before it waits.
    pub fn prepare_sleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Waits for a ring, at most `limit`. Returns whether the bell rang.
    pub fn wait(&self, limit: Duration) -> bool {
        self.event.wait(limit)
    }

    /// Ends the sleep, however it ended.
    pub fn end_sleep(&self) {
        self.asleep.store(false, Ordering::SeqCst);
        // The count is taken even if the bell has not rung since this sleep began: a ring of an
        // earlier sleep may write it late, and the next wait would not wait.
        self.event.take();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    use super::*;

    fn readable(bell: &Bell) -> bool {
        bell.wait(Duration::ZERO)
    }

    /// A thread that rings may be interrupted between finding the worker asleep and writing the
    /// count. The count then ends one sleep early, and no more.
    #[test]
    fn a_late_count_ends_one_sleep_alone() {
        let bell = Bell::new().expect("bell");
        bell.prepare_sleep();
        // The first half of a ring.
        assert!(bell.asleep.swap(false, Ordering::SeqCst));
        bell.end_sleep();
        // The second half.
        bell.event.step();
        bell.prepare_sleep();
        bell.wait(Duration::from_secs(5));
        bell.end_sleep();
        bell.prepare_sleep();
        assert!(!readable(&bell), "the next sleep ends at once, too");
        bell.ring();
        assert!(readable(&bell));
    }

    /// A ring between the last look and the wait, or at any other time, is never lost.
    #[test]
    fn no_ring_is_lost() {
        const ROUNDS: u64 = 20_000;
        let bell = Arc::new(Bell::new().expect("bell"));
        let posted = Arc::new(AtomicU64::new(0));
        let (worker_bell, worker_posted) = (Arc::clone(&bell), Arc::clone(&posted));
        let done = Arc::new(AtomicU64::new(0));
        let worker_done = Arc::clone(&done);
        let worker = std::thread::spawn(move || {
            while worker_done.load(Ordering::Acquire) < ROUNDS {
                worker_bell.prepare_sleep();
                let seen = worker_posted.load(Ordering::Acquire);
                if seen == worker_done.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    worker_bell.wait(Duration::from_secs(5));
                    assert!(start.elapsed() < Duration::from_secs(4), "a ring was lost");
                }
                worker_bell.end_sleep();
                worker_done.store(worker_posted.load(Ordering::Acquire), Ordering::Release);
            }
        });
        for round in 1..=ROUNDS {
            posted.store(round, Ordering::Release);
            bell.ring();
            while round % 3 == 0 && done.load(Ordering::Acquire) < round {
                std::hint::spin_loop();
                std::thread::yield_now();
            }
        }
        worker.join().expect("worker");
    }
}
