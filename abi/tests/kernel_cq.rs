// SPDX-License-Identifier: GPL-2.0
//! The part of the kernel module that finds what is new in the completion ring of a kernel client,
//! on a ring that this test writes as the adapter does. The queue pair of most cases is as old as
//! the ring.
//!
//! Shows: completions: completion queues of kernel clients, at every index of 32 bits

extern crate vrnic_abi as abi;

use std::cell::Cell;
use std::convert::Infallible;

use consumer::{Consumer, Entries, NO_QPN};

#[path = "../../driver/verbs/consumer.rs"]
mod consumer;

const SIZE: u32 = 8;
/// The first index of a test: as the ring is new, and where an index of 32 bits changes its sign or
/// starts anew.
const STARTS: [u32; 4] = [0, (1 << 31) - SIZE / 2, 1 << 31, u32::MAX - SIZE / 2];

/// A ring of entries that have only a stamp and an owner.
struct Ring {
    entries: Vec<Cell<(u32, u32)>>,
    /// How many stamps have been read.
    looks: Cell<u32>,
    /// True if the adapter writes each entry just before its stamp is read.
    hurries: bool,
}

impl Ring {
    /// A ring and its consumer, with the same lap behind them.
    fn at(start: u32) -> (Self, Consumer) {
        Self::of(SIZE, start)
    }

    fn of(size: u32, start: u32) -> (Self, Consumer) {
        let lap = |n| (abi::stamp(start.wrapping_sub(size).wrapping_add(n)), NO_QPN);
        let entries = (0..size).map(|_| Cell::default()).collect();
        let this = Self { entries, looks: Cell::new(0), hurries: false };
        if start > 0 {
            (0..size).for_each(|n| this.entry(start.wrapping_add(n)).set(lap(n)));
        }
        let mut consumer = Consumer::new();
        consumer.index = start;
        (this, consumer)
    }

    fn entry(&self, index: u32) -> &Cell<(u32, u32)> {
        &self.entries[index as usize % self.entries.len()]
    }

    /// The steps of the adapter.
    fn write(&self, index: u32, owner: u32) {
        self.entry(index).set((abi::stamp(index), owner));
    }

    /// All that is new, and whose it is.
    fn take(&self, consumer: &mut Consumer) -> Vec<(u32, u32)> {
        let mut round = consumer.round(self);
        let next = || round.next().unwrap().map(|index| (index, self.entry(index).get().1));
        std::iter::from_fn(next).collect()
    }
}

impl Entries for Ring {
    type Error = Infallible;

    fn size(&self) -> u32 {
        self.entries.len() as u32
    }

    fn stamp(&self, index: u32) -> Result<u32, Infallible> {
        self.looks.set(self.looks.get() + 1);
        if self.hurries {
            assert!(self.looks.get() <= self.size(), "a walk without end");
            self.write(index, NO_QPN);
        }
        Ok(self.entry(index).get().0)
    }

    fn owner(&self, index: u32) -> Result<u32, Infallible> {
        Ok(self.entry(index).get().1)
    }

    fn disown(&self, index: u32) -> Result<(), Infallible> {
        self.entry(index).set((self.entry(index).get().0, NO_QPN));
        Ok(())
    }

    fn copy(&self, index: u32, to: &Self) -> Result<(), Infallible> {
        to.entry(index).set(self.entry(index).get());
        Ok(())
    }
}

#[test]
fn an_old_queue_pair_is_heard_of_at_every_index() {
    let (ring, mut consumer) = Ring::at(0);
    consumer.forget(&ring, 7).unwrap();
    for start in STARTS {
        let (ring, at) = Ring::at(start);
        consumer.index = at.index;
        for lap in 0..3 {
            let first = start.wrapping_add(lap * SIZE);
            assert!(!consumer.has_next(&ring).unwrap());
            assert_eq!(ring.take(&mut consumer), []);
            let written: Vec<_> = (0..SIZE).map(|n| (first.wrapping_add(n), 7)).collect();
            written.iter().for_each(|(index, owner)| ring.write(*index, *owner));
            assert_eq!(consumer.end(&ring).unwrap(), first.wrapping_add(SIZE));
            assert_eq!(ring.take(&mut consumer), written, "from index {first:#x} on");
        }
    }
}

#[test]
fn what_a_predecessor_left_is_not_heard_of() {
    for start in STARTS {
        let (ring, mut consumer) = Ring::at(start);
        let at = |n| start.wrapping_add(n);
        [7, 8, 7].into_iter().zip(0..).for_each(|(owner, n)| ring.write(at(n), owner));
        consumer.forget(&ring, 7).unwrap();
        ring.write(at(3), 7);
        let heard = [(at(0), NO_QPN), (at(1), 8), (at(2), NO_QPN), (at(3), 7)];
        assert_eq!(ring.take(&mut consumer), heard);
    }
}

#[test]
fn arming_reads_few_of_the_entries_that_wait() {
    const LARGE: u32 = 1 << 16;
    for start in [0, 1 << 31, u32::MAX - LARGE / 2] {
        for waiting in [0, 1, 2, 3, 4, 100, LARGE / 2, LARGE - 1, LARGE] {
            let (ring, consumer) = Ring::of(LARGE, start);
            let end = start.wrapping_add(waiting);
            (0..waiting).for_each(|n| ring.write(start.wrapping_add(n), 7));
            assert_eq!(consumer.end(&ring).unwrap(), end, "{waiting} from {start:#x} on");
            let (looks, digits) =
                (ring.looks.get(), waiting.checked_ilog2().map_or(0, |log| log + 1));
            assert!(looks <= 2 * digits + 1, "{looks} stamps read, {waiting} wait");
        }
    }
}

#[test]
fn a_walk_through_the_ring_ends_though_the_adapter_goes_on_writing() {
    let (mut ring, mut consumer) = Ring::at(0);
    ring.hurries = true;
    consumer.forget(&ring, 7).unwrap();
    assert_eq!(ring.looks.replace(0), SIZE);
    assert_eq!(consumer.end(&ring).unwrap(), SIZE);
    ring.looks.set(0);
    assert_eq!(ring.take(&mut consumer).len(), SIZE as usize, "entries that belong to nobody");
}

/// What one call has no room for, the next call takes.
#[test]
fn entries_are_taken_in_portions() {
    for start in STARTS {
        let (ring, mut consumer) = Ring::at(start);
        (0..SIZE).for_each(|n| ring.write(start.wrapping_add(n), 7));
        let mut round = consumer.round(&ring);
        for n in 0..3 {
            assert_eq!(round.next().unwrap(), Some(start.wrapping_add(n)));
        }
        assert_eq!(ring.take(&mut consumer).len(), SIZE as usize - 3);
    }
}

/// Some entries have been taken, some wait in the old ring, and the adapter has written the next
/// ones to the new one before the consumer moves.
///
/// Shows: completions: kernel clients' completion queues that grow and shrink in use
#[test]
fn a_queue_that_moves_to_another_ring_loses_nothing() {
    for start in STARTS {
        for size in [SIZE / 2, SIZE, 4 * SIZE] {
            let (old, mut consumer) = Ring::at(start);
            let all: Vec<_> = (0..6).map(|n| (start.wrapping_add(n), 7 + n)).collect();
            let (taken, waiting, new) = (&all[..2], &all[2..4], &all[4..]);
            taken.iter().for_each(|(index, owner)| old.write(*index, *owner));
            assert_eq!(old.take(&mut consumer), taken);
            let (ring, _) = Ring::of(size, 0);
            let before = abi::stamp(consumer.index.wrapping_sub(1));
            ring.entries.iter().for_each(|entry| entry.set((before, NO_QPN)));
            waiting.iter().for_each(|(index, owner)| old.write(*index, *owner));
            new.iter().for_each(|(index, owner)| ring.write(*index, *owner));
            // A consumer that does not know of the new ring waits for its first entry.
            assert_eq!(consumer.end(&old).unwrap(), new[0].0);
            let first = new[0].0;
            assert!(!consumer.move_to(&old, &ring, first.wrapping_sub(3)).unwrap(), "too early");
            assert!(!consumer.move_to(&old, &ring, first.wrapping_add(size)).unwrap(), "too late");
            assert!(consumer.move_to(&old, &ring, first).unwrap());
            assert_eq!(ring.take(&mut consumer), all[2..], "{size} entries from {start:#x} on");
            assert!(!consumer.has_next(&ring).unwrap());
        }
    }
}
