//! The store for bytes out of order: a ring of blocks, which has memory only for those in use.

use std::sync::Arc;

use crate::budget::{BLOCK, Block, Budget, Rest, Share};
use crate::seq::StreamPos;

/// A ring of blocks. A block holds bytes of one range of the stream at a time, so its memory can be
/// given back when all of these have been passed.
#[derive(Default)]
pub(crate) struct Store {
    /// Number of positions.
    len: u64,
    /// The blocks. Empty while no byte is stored.
    blocks: Vec<Option<Block>>,
    /// Number of blocks that have memory.
    used: usize,
    /// The number of the first block that may have memory, counted from position 0.
    first: u64,
    share: Share,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({} of {})", self.used * BLOCK, self.len)
    }
}

impl Store {
    pub(crate) fn new(len: usize) -> Self {
        Self { len: len as u64, ..Self::default() }
    }

    /// Takes memory from a budget from now on. Nothing may be stored.
    pub(crate) fn use_budget(&mut self, budget: &Arc<Budget>) {
        self.share = Share::leaving(Rest::Quarter, budget);
    }

    /// Returns the number of positions from the first one that was not passed, which can be stored
    /// at a time.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Makes room for the bytes from `at` to `end`. Returns `false` if there is no memory.
    pub(crate) fn make_room(&mut self, at: StreamPos, end: StreamPos) -> bool {
        if self.blocks.is_empty() {
            // The first and the last byte are rarely at the end of a block.
            let count = usize::try_from(self.len).unwrap_or_default().div_ceil(BLOCK) + 1;
            if self.blocks.try_reserve_exact(count).is_err() {
                return false;
            }
            self.blocks.resize_with(count, || None);
        }
        (number(at)..=number(StreamPos(end.0.saturating_sub(1)))).all(|number| {
            let Self { blocks, share, used, .. } = self;
            let Some(place) = slot(blocks, number) else { return false };
            if place.is_none() {
                *place = share.take_block();
                *used += usize::from(place.is_some());
            }
            place.is_some()
        })
    }

    /// Stores bytes for which there is room.
    pub(crate) fn write(&mut self, at: StreamPos, bytes: &[u8]) {
        let (mut from, mut left) = (at, bytes);
        while !left.is_empty() {
            let offset = offset(from);
            let (now, rest) = left.split_at(left.len().min(BLOCK - offset));
            let block = slot(&mut self.blocks, number(from)).and_then(Option::as_mut);
            if let Some(to) = block.and_then(|block| block.get_mut(offset..offset + now.len())) {
                to.copy_from_slice(now);
            }
            (from, left) = (from.plus(now.len() as u64), rest);
        }
    }

    /// Returns the stored bytes from `at` on, at most `len` and at most up to the end of a block;
    /// at least one if `len` is not zero.
    pub(crate) fn read(&self, at: StreamPos, len: u64) -> &[u8] {
        let nth = number(at).checked_rem(self.blocks.len() as u64).unwrap_or_default();
        // CAST: it is less than the number of blocks.
        let block = self.blocks.get(nth as usize).and_then(Option::as_ref);
        let rest = block.and_then(|block| block.get(offset(at)..)).unwrap_or_default();
        rest.get(..usize::try_from(len).unwrap_or(usize::MAX)).unwrap_or(rest)
    }

    /// Gives the memory back of blocks whose bytes are all before `at`. All stored bytes from there
    /// on are kept.
    pub(crate) fn pass(&mut self, at: StreamPos) {
        let from = std::mem::replace(&mut self.first, number(at));
        if self.used > 0 {
            (from..self.first).for_each(|number| self.give_back(number));
        }
    }

    /// Gives the memory of all blocks back.
    pub(crate) fn clear(&mut self) {
        if self.used > 0 {
            (0..self.blocks.len() as u64).for_each(|number| self.give_back(number));
        }
    }

    /// Returns the number of bytes of memory of its blocks.
    pub(crate) const fn kept(&self) -> usize {
        self.used * BLOCK
    }

    /// Returns the number of bytes that are taken from the budget.
    pub(crate) const fn charged(&self) -> usize {
        self.share.used()
    }

    /// Returns whether a block has memory.
    pub(crate) const fn is_used(&self) -> bool {
        self.used > 0
    }

    /// Gives the memory of the list of blocks back if no block has memory.
    pub(crate) fn shrink(&mut self) {
        if self.used == 0 {
            self.blocks = Vec::new();
        }
    }

    fn give_back(&mut self, number: u64) {
        if let Some(block) = slot(&mut self.blocks, number).and_then(Option::take) {
            self.share.give_block_back(block);
            self.used -= 1;
        }
    }
}

/// Returns the number of the block of a position, counted from position 0.
const fn number(at: StreamPos) -> u64 {
    at.0 / BLOCK as u64
}

/// Returns the place of a position in its block.
const fn offset(at: StreamPos) -> usize {
    // CAST: it is less than the length of a block.
    (at.0 % BLOCK as u64) as usize
}

fn slot(blocks: &mut [Option<Block>], number: u64) -> Option<&mut Option<Block>> {
    let nth = number.checked_rem(blocks.len() as u64)?;
    // CAST: it is less than the number of blocks.
    blocks.get_mut(nth as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store as in a connection: a window that moves on, in which bytes are stored and read.
    #[test]
    fn bytes_that_were_not_passed_are_kept() {
        let len = 100_000_u64;
        let budget = Budget::new(1 << 20);
        let mut store = Store::new(100_000);
        store.use_budget(&budget);
        let byte = |at: u64| (at ^ at >> 8 ^ at >> 16) as u8;
        let mut rng = 1_u64;
        let (mut passed, mut stored) = (StreamPos(0), StreamPos(0));
        for _ in 0..5000 {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let more = (rng >> 40) % 5000;
            let end = StreamPos((stored.0 + more).min(passed.0 + len));
            assert!(end <= stored || store.make_room(stored, end));
            let bytes: Vec<u8> = (stored.0..end.0).map(byte).collect();
            store.write(stored, &bytes);
            stored = stored.max(end);
            let upto = passed.plus((rng >> 50) % 6000).min(stored);
            while passed < upto {
                let read = store.read(passed, upto.since(passed));
                assert!(
                    !read.is_empty() && read.iter().zip(passed.0..).all(|(b, at)| *b == byte(at))
                );
                passed = passed.plus(read.len() as u64);
            }
            store.pass(passed);
            let held = (1 << 20) - budget.free();
            assert!(held as u64 <= stored.since(passed) + 2 * BLOCK as u64, "{held} bytes");
        }
        store.clear();
        assert_eq!(budget.free(), 1 << 20);
    }

    /// As many connections as a peer wants to open store a byte each.
    #[test]
    fn many_stores_leave_a_quarter_to_other_buffers() {
        let budget = Budget::new(16 * BLOCK);
        let mut stores: Vec<_> = (0..40).map(|_| Store::new(1 << 20)).collect();
        let room = |store: &mut Store| {
            store.use_budget(&budget);
            store.make_room(StreamPos(5), StreamPos(6))
        };
        assert_eq!(stores.iter_mut().map(room).filter(|found| *found).count(), 12);
        assert_eq!(budget.free(), 4 * BLOCK);
        assert!(Share::of(&budget).take(2 * BLOCK));
    }

    #[test]
    fn nothing_is_stored_without_memory() {
        let mut store = Store::new(1 << 20);
        store.use_budget(&Budget::new(2 * BLOCK));
        assert!(store.make_room(StreamPos(5), StreamPos(10)));
        assert!(!store.make_room(StreamPos(10), StreamPos(BLOCK as u64 + 1)));
        store.clear();
        assert!(!store.is_used() && store.make_room(StreamPos(BLOCK as u64), StreamPos(60_000)));
    }
}
