//! The waker without a worker.

use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;
use vrnic_models::model;

use crate::waker::Waker;

/// Starts a thread that makes work and unparks the worker, `times` times.
fn unparker(waker: &Arc<Waker>, work: &Arc<AtomicU32>, times: u32) -> thread::JoinHandle<()> {
    let (waker, work) = (Arc::clone(waker), Arc::clone(work));
    thread::spawn(move || {
        for _ in 0..times {
            work.fetch_add(1, Ordering::Relaxed);
            waker.unpark();
        }
    })
}

/// Parks until there is this much work.
fn work_off(waker: &Waker, work: &AtomicU32, all: u32) {
    while work.load(Ordering::Relaxed) < all {
        waker.prepare_park();
        if work.load(Ordering::Relaxed) < all {
            waker.park(Duration::MAX);
        }
        waker.end_park();
    }
}

/// No call of `unpark` is lost, whenever it comes. The park after the next one is whole, whatever
/// counts came late.
#[test]
fn an_unpark_ends_its_park_alone() {
    model(5, || {
        let (waker, work) = (Arc::new(Waker::new().expect("waker")), Arc::default());
        let unparker = unparker(&waker, &work, 2);
        work_off(&waker, &work, 2);
        unparker.join().expect("unparker");
        waker.prepare_park();
        waker.end_park();
        waker.prepare_park();
        assert!(!waker.park(Duration::ZERO), "a park ends though nobody unparks");
    });
}

/// Two threads unpark.
#[test]
fn two_unpark_at_the_same_time() {
    model(3, || {
        let (waker, work) = (Arc::new(Waker::new().expect("waker")), Arc::default());
        let threads = [unparker(&waker, &work, 1), unparker(&waker, &work, 1)];
        work_off(&waker, &work, 2);
        threads.into_iter().for_each(|thread| thread.join().expect("unparker"));
    });
}
