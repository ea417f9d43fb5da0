//! No event is lost by completion queues that are armed at random.

mod common;

use vrnic_testdriver::arming::{Outcome, Setup, run};

/// Events of each test, over all handlers. `VRNIC_ARMING_EVENTS` asks for more.
const EVENTS: u64 = 100_000;
/// Handlers that run at the same time.
const HANDLERS: u16 = 2;

/// Handlers on vectors of their own, each with `queues` completion queues; the event queues have 64
/// entries.
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
    // The last events may not have been taken from the queues.
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

/// More queues than event queue entries: events are held back.
#[test]
fn event_queues_that_are_full() {
    nothing_is_lost("1", 150, false);
}
