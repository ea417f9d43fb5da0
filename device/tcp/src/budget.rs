//! A shared amount of memory for the buffers of several connections.
//!
//! A buffer grows only if at least as much as it then has is left for all others. Buffers that a
//! peer can fill leave a part of the budget to other buffers ([`Rest`]), because many connections
//! of one peer could otherwise use up the budget together.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a block ([`Budget`]).
pub const BLOCK: usize = 32 << 10;
/// Maximum number of blocks that are kept for the next connection that needs one.
const SPARE: usize = 32;

/// An amount of memory, and blocks that are not in use.
#[derive(Debug)]
pub struct Budget {
    bytes: usize,
    free: AtomicUsize,
    spare: Mutex<Vec<Block>>,
}

/// The part of a budget that a buffer does not touch, however few bytes it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// For bytes of the peer that were acknowledged, and wait for others.
    Eighth,
    /// For bytes of the peer that can be dropped, because the peer sends them again.
    Quarter,
}

/// Bytes of a block.
pub(crate) type Block = Box<[u8]>;

/// The part of a budget that a buffer has taken. Without a budget it may be of any size.
#[derive(Debug, Default)]
pub struct Share {
    budget: Option<Arc<Budget>>,
    used: usize,
    /// Number of bytes of the budget that the share does not touch.
    rest: usize,
}

impl Budget {
    /// Creates a budget of this number of bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, free: AtomicUsize::new(bytes), spare: Mutex::new(Vec::new()) })
    }

    /// Returns the number of bytes that no buffer has taken.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }

    /// Keeps a block for later, if few are kept.
    fn keep(&self, block: Block) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE && spare.try_reserve(1).is_ok() {
            spare.push(block);
        }
    }

    fn kept(&self) -> Option<Block> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

impl Share {
    /// Creates an empty share of a budget.
    #[must_use]
    pub fn of(budget: &Arc<Budget>) -> Self {
        Self { budget: Some(Arc::clone(budget)), used: 0, rest: 0 }
    }

    /// Creates an empty share of a budget that does not touch a part of it.
    #[must_use]
    pub fn leaving(rest: Rest, budget: &Arc<Budget>) -> Self {
        let rest = match rest {
            Rest::Eighth => budget.bytes / 8,
            Rest::Quarter => budget.bytes / 4,
        };
        Self { budget: Some(Arc::clone(budget)), used: 0, rest }
    }

    /// Returns the number of bytes that were taken.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Takes bytes. Returns whether the budget allows this many.
    #[must_use]
    pub fn take(&mut self, bytes: usize) -> bool {
        let wanted = self.used.saturating_add(bytes);
        if let Some(budget) = &self.budget {
            let least = wanted.max(self.rest);
            let taken = budget.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                free.checked_sub(bytes).filter(|left| *left >= least)
            });
            if taken.is_err() {
                return false;
            }
        }
        self.used = wanted;
        true
    }

    /// Takes more, so that the share has `bytes` bytes. Returns whether the budget allows this
    /// many.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.used);
        more == 0 || self.take(more)
    }

    /// Takes over what another share of the same budget has taken, also if the budget would not
    /// allow so much at once: it is in use already.
    pub fn merge(&mut self, mut other: Self) {
        self.used = self.used.saturating_add(std::mem::take(&mut other.used));
        self.budget = self.budget.take().or_else(|| other.budget.take());
    }

    /// Gives bytes back.
    pub fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.used);
        self.used -= bytes;
        if let Some(budget) = &self.budget {
            budget.free.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Gives all bytes back.
    pub fn give_all_back(&mut self) {
        self.give_back(self.used);
    }

    /// Takes a block, whose contents are not defined.
    pub(crate) fn take_block(&mut self) -> Option<Block> {
        if !self.take(BLOCK) {
            return None;
        }
        let block = self.budget.as_ref().and_then(|budget| budget.kept()).or_else(block);
        if block.is_none() {
            self.give_back(BLOCK);
        }
        block
    }

    /// Gives a block back.
    pub(crate) fn give_block_back(&mut self, block: Block) {
        self.give_back(BLOCK);
        if let Some(budget) = &self.budget {
            budget.keep(block);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_all_back();
    }
}

/// Allocates a block, if the system has memory.
fn block() -> Option<Block> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(BLOCK).ok()?;
    bytes.resize(BLOCK, 0);
    Some(bytes.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_leaves_as_much_as_it_has() {
        let budget = Budget::new(100);
        let mut first = Share::of(&budget);
        assert!(first.take(30) && first.take(20) && !first.take(1));
        let mut second = Share::of(&budget);
        assert!(!second.take(51) && second.grow(25) && second.grow(25) && !second.grow(26));
        assert_eq!((first.used(), second.used(), budget.free()), (50, 25, 25));
        drop(first);
        assert!(second.grow(50));
        second.give_back(500);
        assert_eq!(budget.free(), 100);
    }

    #[test]
    fn shares_that_become_one_have_what_both_had() {
        let budget = Budget::new(100);
        let [mut first, mut second] = [(); 2].map(|()| Share::of(&budget));
        assert!(first.take(30) && second.take(30));
        first.merge(second);
        assert_eq!((first.used(), budget.free()), (60, 40));
        let mut empty = Share::default();
        empty.merge(first);
        empty.give_back(50);
        assert_eq!((empty.used(), budget.free()), (10, 90));
        drop(empty);
        assert_eq!(budget.free(), 100);
    }

    /// Shows: tcp: memory for buffers, of which each connection leaves some to others
    #[test]
    fn many_shares_leave_room_for_another_one() {
        let budget = Budget::new(1000);
        let mut shares: Vec<Share> = (0..9).map(|_| Share::of(&budget)).collect();
        for _ in 0..1000 {
            for share in &mut shares {
                let _as_far_as_there_is_room = share.take(1);
            }
        }
        assert_eq!(budget.free(), 100);
        assert!(Share::of(&budget).take(50));
    }

    /// Each of many connections has one block, so none of them has more than is left.
    #[test]
    fn shares_with_little_each_leave_their_rest() {
        let budget = Budget::new(64 * BLOCK);
        let fill = |rest| {
            let mut shares: Vec<_> = (0..100).map(|_| Share::leaving(rest, &budget)).collect();
            shares.retain_mut(|share| share.take(BLOCK));
            shares
        };
        let stores = fill(Rest::Quarter);
        assert_eq!((stores.len(), budget.free()), (48, 16 * BLOCK));
        let parts = fill(Rest::Eighth);
        assert_eq!((parts.len(), budget.free()), (8, 8 * BLOCK));
        assert!(Share::of(&budget).take(4 * BLOCK));
        drop(stores);
        assert_eq!(fill(Rest::Quarter).len(), 40);
    }

    #[test]
    fn the_last_bytes_are_not_taken() {
        let budget = Budget::new(100);
        let mut shares: Vec<_> = (0..100).map(|_| Share::of(&budget)).collect();
        shares.retain_mut(|share| share.take(10));
        assert_eq!((shares.len(), budget.free()), (9, 10));
    }

    #[test]
    fn blocks_that_were_given_back_are_used_again() {
        let budget = Budget::new(2 * BLOCK);
        let mut share = Share::of(&budget);
        let block = share.take_block().expect("memory");
        let place = block.as_ptr();
        assert!(share.take_block().is_none(), "half of the budget is left");
        share.give_block_back(block);
        assert_eq!(budget.free(), 2 * BLOCK);
        let again = share.take_block().expect("memory");
        assert_eq!(again.as_ptr(), place);
    }
}
