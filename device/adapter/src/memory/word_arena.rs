//! Blocks of atomic words that live as long as their arena, so that reading them needs no lock.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use crate::memory::pages::{Charge, PageBudget};
use crate::sync::{AtomicU64, Mutex};

/// log2 of the number of words that are allocated together.
const CHUNK: u32 = if cfg!(loom) { 9 } else { 15 };

/// Blocks of words, all of one size.
#[derive(Debug)]
pub(crate) struct Arena {
    log: u32,
    budget: Arc<PageBudget>,
    chunks: Box<[OnceLock<Box<[AtomicU64]>>]>,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    list: Vec<u64>,
    /// The number of the lowest block that was never used.
    fresh: u64,
    /// The charges of all allocated chunks.
    charges: Vec<Charge>,
}

impl Arena {
    /// Creates an arena of `words` words, charged to `budget`, in blocks of `1 << log` words.
    pub(crate) fn new(log: u32, words: u64, budget: &Arc<PageBudget>) -> Self {
        let chunks = (0..words.div_ceil(1 << CHUNK)).map(|_| OnceLock::new()).collect();
        Self { log, budget: Arc::clone(budget), chunks, free: Mutex::default() }
    }

    /// Allocates a block, which is all zero. Returns `None` if there is none left.
    pub(crate) fn take(&self) -> Option<u64> {
        let mut free = self.free.lock();
        let block = match free.list.pop() {
            Some(block) => block,
            None if free.fresh << self.log < (self.chunks.len() as u64) << CHUNK => {
                if free.fresh << self.log >= (free.charges.len() as u64) << CHUNK {
                    free.charges.push(Charge::new(&self.budget, 1 << CHUNK)?);
                }
                free.fresh += 1;
                free.fresh - 1
            }
            None => return None,
        };
        drop(free);
        let chunk = self.chunks.get(usize::try_from(block << self.log >> CHUNK).ok()?)?;
        chunk.get_or_init(|| (0..1 << CHUNK).map(|_| AtomicU64::new(0)).collect());
        Some(block)
    }

    /// Returns the number of words of the budget that it uses.
    pub(crate) fn charged(&self) -> u64 {
        (self.free.lock().charges.len() as u64) << CHUNK
    }

    /// Returns the number of words in allocated blocks.
    pub(crate) fn used(&self) -> u64 {
        let free = self.free.lock();
        free.fresh.saturating_sub(free.list.len() as u64) << self.log
    }

    /// Returns the words of a block.
    #[inline(always)]
    pub(crate) fn block(&self, block: u64) -> Option<&[AtomicU64]> {
        let word = block.checked_shl(self.log)?;
        let chunk = self.chunks.get(usize::try_from(word >> CHUNK).ok()?)?.get()?;
        chunk.get((word & ((1 << CHUNK) - 1)) as usize..)?.get(..1 << self.log)
    }

    /// Zeroes a block and frees it.
    pub(crate) fn give(&self, block: u64) {
        (0..1 << self.log).for_each(|at| {
            self.store(block, at, 0);
        });
        self.free.lock().list.push(block);
    }

    /// Returns a word of a block.
    #[inline]
    fn word(&self, block: u64, at: u64) -> Option<&AtomicU64> {
        if at >> self.log != 0 {
            return None;
        }
        let word = (block << self.log) + at;
        let chunk = self.chunks.get(usize::try_from(word >> CHUNK).ok()?)?.get()?;
        chunk.get((word & ((1 << CHUNK) - 1)) as usize)
    }

    /// Returns the value of a word, or `None` if it is outside of the block or the arena.
    #[inline]
    pub(crate) fn load(&self, block: u64, at: u64) -> Option<u64> {
        self.word(block, at).map(|word| word.load(Ordering::Relaxed))
    }

    /// Sets a word. Returns `None` if it is outside of the block or the arena.
    pub(crate) fn store(&self, block: u64, at: u64, value: u64) -> Option<()> {
        self.word(block, at).map(|word| word.store(value, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_ends() {
        let budget = Arc::default();
        let arena = Arena::new(9, 1 << CHUNK, &budget);
        let blocks: Vec<u64> = std::iter::from_fn(|| arena.take()).collect();
        assert_eq!(blocks.len(), 64);
        arena.give(blocks[3]);
        assert_eq!(arena.take(), Some(blocks[3]));
        assert_eq!(arena.take(), None);
        assert_eq!((budget.used(), arena.charged()), (1 << CHUNK, 1 << CHUNK));
        drop(arena);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn arenas_share_a_budget() {
        let budget = Arc::default();
        let _most = Charge::new(&budget, crate::limits::MAX_PAGES - (1 << CHUNK)).expect("room");
        let arenas = [(); 2].map(|()| Arena::new(9, 1 << 20, &budget));
        assert!(arenas[0].take().is_some());
        assert_eq!(arenas[1].take(), None);
    }
}
