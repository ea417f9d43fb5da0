//! Parks a worker until another thread unparks it, or until a time limit.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::event::Event;
use super::sync::{AtomicBool, fence};

/// Parks and unparks one worker. Unparking costs a system call only while the worker is parked.
#[derive(Debug)]
pub struct Waker {
    event: Event,
    /// Set by the worker before its last check for work, and cleared when it is unparked.
    parked: AtomicBool,
}

impl Waker {
    /// Creates the waker of a worker that is not parked.
    ///
    /// # Errors
    /// Returns an error if descriptors run out.
    pub fn new() -> io::Result<Self> {
        Ok(Self { event: Event::new()?, parked: AtomicBool::new(false) })
    }

    /// Unparks the worker if it is parked, or about to be. The caller has made its work visible
    /// before.
    pub fn unpark(&self) {
        // Orders the caller's work before the load of `parked`; pairs with `prepare_park`.
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::SeqCst) && self.parked.swap(false, Ordering::SeqCst) {
            self.event.step();
        }
    }

    /// Announces that the worker will park. From then on, [`Self::unpark`] ends or prevents that.
    /// The worker checks for work once more before it calls [`Self::park`].
    pub fn prepare_park(&self) {
        self.parked.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Waits for [`Self::unpark`], at most `limit`. Returns whether it was called.
    pub fn park(&self, limit: Duration) -> bool {
        self.event.wait(limit)
    }

    /// Withdraws the announcement of [`Self::prepare_park`], if there was one, however the wait
    /// ended.
    pub fn end_park(&self) {
        self.parked.store(false, Ordering::SeqCst);
        // The count is cleared even if no thread has unparked the worker since then: the thread
        // that ended an earlier park may increment it late, and the next park would not wait.
        self.event.take();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    use super::*;

    fn readable(waker: &Waker) -> bool {
        waker.park(Duration::ZERO)
    }

    /// A thread that unparks may be interrupted between finding the worker parked and writing the
    /// count. The count then ends one park early, and no more.
    #[test]
    fn a_late_count_ends_one_park_alone() {
        let waker = Waker::new().expect("waker");
        waker.prepare_park();
        // The first half of `unpark`.
        assert!(waker.parked.swap(false, Ordering::SeqCst));
        waker.end_park();
        // The second half.
        waker.event.step();
        waker.prepare_park();
        waker.park(Duration::from_secs(5));
        waker.end_park();
        waker.prepare_park();
        assert!(!readable(&waker), "the next park ends at once, too");
        waker.unpark();
        assert!(readable(&waker));
    }

    /// A call of `unpark` between the last look and the wait, or at any other time, is never lost.
    #[test]
    fn no_unpark_is_lost() {
        const ROUNDS: u64 = 20_000;
        let waker = Arc::new(Waker::new().expect("waker"));
        let posted = Arc::new(AtomicU64::new(0));
        let (worker_waker, worker_posted) = (Arc::clone(&waker), Arc::clone(&posted));
        let done = Arc::new(AtomicU64::new(0));
        let worker_done = Arc::clone(&done);
        let worker = std::thread::spawn(move || {
            while worker_done.load(Ordering::Acquire) < ROUNDS {
                worker_waker.prepare_park();
                let seen = worker_posted.load(Ordering::Acquire);
                if seen == worker_done.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    worker_waker.park(Duration::from_secs(5));
                    assert!(start.elapsed() < Duration::from_secs(4), "an unpark was lost");
                }
                worker_waker.end_park();
                worker_done.store(worker_posted.load(Ordering::Acquire), Ordering::Release);
            }
        });
        for round in 1..=ROUNDS {
            posted.store(round, Ordering::Release);
            waker.unpark();
            while round % 3 == 0 && done.load(Ordering::Acquire) < round {
                std::hint::spin_loop();
                std::thread::yield_now();
            }
        }
        worker.join().expect("worker");
    }
}
