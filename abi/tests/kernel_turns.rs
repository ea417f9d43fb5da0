// SPDX-License-Identifier: GPL-2.0
//! The part of the kernel module that takes what an adapter adds, with adapters that add more
//! without end.
//!
//! Shows: hostile: events and requests of an adapter without end, in the kernel module

use std::cell::{Cell, RefCell};

use turns::{Source, take_all, take_some};

#[path = "../../driver/hw/turns.rs"]
mod turns;

/// The shortest pause, in ns.
const PAUSE: i64 = 20;

/// An adapter that adds events for ever, whose life ends after some turns.
struct Endless {
    now: Cell<i64>,
    /// How long each turn takes.
    turns: Vec<i64>,
    taken: Cell<usize>,
    pauses: RefCell<Vec<i64>>,
    /// True if there are events for so many turns only.
    ends: bool,
}

impl Endless {
    fn new(turns: &[i64]) -> Self {
        let (now, taken) = (Cell::new(1 << 40), Cell::new(0));
        Self { now, turns: turns.to_vec(), taken, pauses: RefCell::default(), ends: false }
    }
}

impl Source for Endless {
    fn take(&self) -> bool {
        let nth = self.taken.get();
        let time = self.turns.get(nth).expect("a turn after the end");
        self.now.set(self.now.get() + time);
        self.taken.set(nth + 1);
        !self.ends || nth + 1 < self.turns.len()
    }

    fn is_over(&self) -> bool {
        !self.ends && self.taken.get() == self.turns.len()
    }

    fn now(&self) -> i64 {
        self.now.get()
    }

    fn pause(&self, time: i64) {
        self.pauses.borrow_mut().push(time);
        // Other tasks may keep the processor for longer.
        self.now.set(self.now.get() + 3 * time);
    }
}

/// The thread stops in the first turn after the adapter's end, though there are more events.
#[test]
fn an_adapter_without_end_keeps_its_thread_until_it_dies() {
    for turns in 1..6 {
        let adapter = Endless::new(&vec![5; turns]);
        take_all(&adapter, PAUSE);
        assert_eq!(adapter.taken.get(), turns);
        assert_eq!(adapter.pauses.borrow().len(), turns - 1);
    }
}

/// Each pause is as long as the turn before it, and not too short.
#[test]
fn half_of_the_time_is_for_others() {
    let adapter = Endless::new(&[5, 100, 20, 3000, 1]);
    take_all(&adapter, PAUSE);
    assert_eq!(*adapter.pauses.borrow(), [20, 100, 20, 3000]);
}

/// A thread that has taken everything returns at once.
#[test]
fn the_last_event_ends_the_thread() {
    let adapter = Endless { ends: true, ..Endless::new(&[7, 7]) };
    take_all(&adapter, PAUSE);
    assert_eq!((adapter.taken.get(), adapter.pauses.borrow().len()), (2, 1));
}

/// A work item serves some requests, and leaves the rest to its next turn.
#[test]
fn requests_without_end_are_served_in_turns() {
    let (mut served, mut left) = (0, u32::MAX);
    let mut serve = || {
        served += 1;
        left -= 1;
        left > 0
    };
    assert!(take_some(32, &mut serve), "there are more");
    assert!(take_some(32, &mut serve), "there are more");
    assert_eq!(served, 64);
    left = 3;
    let serve = || {
        left -= 1;
        left > 0
    };
    assert!(!take_some(32, serve), "there are no more");
}
