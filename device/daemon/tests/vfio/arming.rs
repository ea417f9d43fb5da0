//! Completion queues that are armed at random lose no event.
//!
//! Shows: completions

use vrnic_testdriver::vmm::arming::{Outcome, Setup, run};

use crate::common;

/// Number of events of each test, over all handlers. `VRNIC_ARMING_EVENTS` can set another number.
const EVENTS: u64 = 100_000;
/// Number of handlers that run at the same time.
const HANDLERS: u16 = 2;

/// Runs handlers on separate vectors, each with `queues` completion queues. The event queues have
/// 64 entries.
fn nothing_is_lost(workers: &str, queues: u32, sleeps: bool) {
    let events = std::env::var("VRNIC_ARMING_EVENTS").ok().and_then(|n| n.parse().ok());
    let events = events.unwrap_or(EVENTS) / u64::from(HANDLERS);
    let daemon = common::start_with(2, &["--workers", workers]);
    let [near, far] = common::pair(&daemon);
    let mut all = Outcome::default();
    std::thread::scope(|scope| {
        let handlers: Vec<_> = (0..HANDLERS)
            .map(|nth| {
                let setup = Setup { vector: 1 + nth, queues, events, sleeps, seed: u64::from(nth) };
                let (near, far) = (&near, &far);
                scope.spawn(move || run(near, far, &setup))
            })
            .collect();
        for handler in handlers {
            all += handler.join().expect("no event is lost");
        }
    });
    println!("{all:?}");
    let stats = near.stats();
    // The last events may still be in the queues.
    let sent = stats.completion_events.get();
    assert!(all.events <= sent && sent <= all.arms, "{all:?}, {sent} sent");
    assert!(stats.interrupts.get() > 0);
}

#[test]
fn handlers_that_look() {
    nothing_is_lost("1", 8, false);
}

#[test]
fn handlers_that_sleep_until_interrupts() {
    nothing_is_lost("1", 8, true);
}

#[test]
fn two_workers() {
    nothing_is_lost("2", 8, true);
}

/// With more completion queues than entries of the event queue, events are held back.
#[test]
fn event_queues_that_are_full() {
    nothing_is_lost("1", 150, false);
}
