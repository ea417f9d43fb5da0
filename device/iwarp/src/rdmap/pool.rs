//! Copies of short messages, which are complete as soon as they have been sent.

use std::sync::Arc;

use crate::tcp::{Budget, Rest, Share};

/// A ring of octets. Copies are released in the order in which they were made.
#[derive(Debug)]
pub(super) struct Pool {
    octets: Vec<u8>,
    /// Number of octets that it may have.
    room: usize,
    /// Number of octets that were ever allocated, and that were ever released.
    head: u64,
    tail: u64,
    /// The part of the budget that its memory has taken.
    share: Share,
}

impl Pool {
    /// Creates a ring. It has memory while there are copies, and afterwards until
    /// [`Self::shrink`].
    pub(super) fn new(room: usize) -> Self {
        Self { octets: Vec::new(), room, head: 0, tail: 0, share: Share::default() }
    }

    /// Takes memory from a budget, from now on, and leaves a part of it to others, because messages
    /// can do without copies. It must not have any yet.
    pub(super) fn use_budget(&mut self, budget: &Arc<Budget>) {
        self.share = Share::leaving(Rest::Quarter, budget);
    }

    /// Returns the number of bytes that are taken from the budget.
    pub(super) const fn charged(&self) -> usize {
        self.share.used()
    }

    /// Gives memory back if there are no copies.
    pub(super) fn shrink(&mut self) {
        if self.head == self.tail {
            self.octets = Vec::new();
            self.share.give_all_back();
        }
    }

    /// Allocates a copy of `len` octets, and returns its name, if there is room and memory. A copy
    /// is contiguous, so octets at the end of the ring may stay unused.
    pub(super) fn take(&mut self, len: usize) -> Option<(u64, &mut [u8])> {
        if self.octets.len() < self.room {
            if !self.share.grow(self.room) {
                return None;
            }
            self.octets.try_reserve_exact(self.room).ok()?;
            self.octets.resize(self.room, 0);
        }
        let room = self.room as u64;
        let at = self.head.checked_rem(room)?;
        let start = if at + len as u64 > room { self.head + (room - at) } else { self.head };
        let end = start + len as u64;
        if end - self.tail > room {
            return None;
        }
        self.head = end;
        let from = usize::try_from(start % room).ok()?;
        Some((start, self.octets.get_mut(from..from + len)?))
    }

    /// Returns octets of a copy.
    pub(super) fn get(&self, name: u64, at: usize, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(name.checked_rem(self.octets.len() as u64)?).ok()?;
        self.octets.get(from + at..from + at + len)
    }

    /// Releases a copy, and all that were allocated before it.
    pub(super) const fn release(&mut self, name: u64, len: usize) {
        self.tail = name + len as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_copies_comes_from_the_budget_and_returns_to_it() {
        let budget = Budget::new(250);
        let mut pool = Pool::new(100);
        pool.use_budget(&budget);
        let (name, _) = pool.take(60).expect("memory");
        assert_eq!(budget.free(), 150);
        assert!(pool.take(60).is_none(), "the ring has no room");
        pool.shrink();
        assert_eq!(budget.free(), 150, "a copy is in use");
        pool.release(name, 60);
        pool.shrink();
        assert_eq!(budget.free(), 250);
    }

    #[test]
    fn without_memory_nothing_is_copied() {
        let budget = Budget::new(99);
        let mut pool = Pool::new(100);
        pool.use_budget(&budget);
        assert!(pool.take(1).is_none());
        assert_eq!(budget.free(), 99);
    }
}
