//! The bell alone.

use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;
use vrnic_models::model;

use crate::bell::Bell;

/// One who makes work and rings, so often.
fn ringer(bell: &Arc<Bell>, work: &Arc<AtomicU32>, times: u32) -> thread::JoinHandle<()> {
    let (bell, work) = (Arc::clone(bell), Arc::clone(work));
    thread::spawn(move || {
        for _ in 0..times {
            work.fetch_add(1, Ordering::Relaxed);
            bell.ring();
        }
    })
}

/// Sleeps until there is so much work.
fn work_off(bell: &Bell, work: &AtomicU32, all: u32) {
    while work.load(Ordering::Relaxed) < all {
        bell.prepare_sleep();
        if work.load(Ordering::Relaxed) < all {
            bell.wait(Duration::MAX);
        }
        bell.end_sleep();
    }
}

/// No ring is lost, whenever it comes; and whatever counts came late, the sleep after the next one
/// is whole.
#[test]
fn rings_end_sleeps_and_only_theirs() {
    model(5, || {
        let (bell, work) = (Arc::new(Bell::new().expect("bell")), Arc::default());
        let ringer = ringer(&bell, &work, 2);
        work_off(&bell, &work, 2);
        ringer.join().expect("ringer");
        bell.prepare_sleep();
        bell.end_sleep();
        bell.prepare_sleep();
        assert!(!bell.wait(Duration::ZERO), "a sleep ends though nobody rings");
    });
}

/// Rings from two threads.
#[test]
fn two_ring_at_the_same_time() {
    model(3, || {
        let (bell, work) = (Arc::new(Bell::new().expect("bell")), Arc::default());
        let ringers = [ringer(&bell, &work, 1), ringer(&bell, &work, 1)];
        work_off(&bell, &work, 2);
        ringers.into_iter().for_each(|ringer| ringer.join().expect("ringer"));
    });
}
