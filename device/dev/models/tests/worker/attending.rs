//! If work for the switch is left while all workers sleep, its thread has been woken.
//!
//! Shows: daemon: work for the switch while all workers fall asleep, in every order of steps

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32};
use loom::thread;
use vrnic_models::model;

use crate::attendance::Attendance;

#[derive(Default)]
struct Served {
    attendance: Attendance,
    posted: AtomicU32,
    /// True if the thread has been woken.
    rung: AtomicBool,
}

impl Served {
    fn post(&self) {
        self.posted.fetch_add(1, Ordering::Relaxed);
        if self.attendance.post() {
            self.rung.store(true, Ordering::Relaxed);
        }
    }

    /// Runs one round of a worker. Returns the amount of work that it has taken.
    fn poll(&self) -> u32 {
        if !self.attendance.is_due() {
            return 0;
        }
        if self.attendance.attend() {
            self.rung.store(true, Ordering::Relaxed);
        }
        if !self.attendance.has_work() {
            return 0;
        }
        self.attendance.take();
        self.posted.swap(0, Ordering::Relaxed)
    }

    /// Falls asleep as a worker does, unless work exists. Returns whether it sleeps.
    fn fall_asleep(&self) -> bool {
        if self.attendance.fall_asleep() {
            self.rung.store(true, Ordering::Relaxed);
        }
        if self.attendance.has_work() {
            self.attendance.begin();
            return false;
        }
        true
    }
}

#[test]
fn work_finds_a_worker_awake_or_the_thread_is_woken() {
    model(5, || {
        let served = Arc::new(Served::default());
        served.attendance.begin();
        let poster = {
            let served = Arc::clone(&served);
            thread::spawn(move || served.post())
        };
        let mut taken = served.poll();
        while !served.fall_asleep() {
            taken += served.poll();
        }
        poster.join().expect("poster");
        assert!(!served.attendance.is_attended(), "nobody is awake");
        let left = served.posted.load(Ordering::Relaxed);
        assert_eq!(taken + left, 1);
        assert!(left == 0 || served.rung.load(Ordering::Relaxed), "work is left, and nobody knows");
    });
}
