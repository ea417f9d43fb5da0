//! Bytes of an address range.

use vrnic_abi::direct::RANGE_LEN;

/// Number of words with a bit for each byte.
const WORDS: usize = RANGE_LEN as usize / 64;

/// A set of bytes of a range, which are named by their offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteSet([u64; WORDS]);

impl ByteSet {
    /// A set without bytes.
    pub(super) const EMPTY: Self = Self([0; WORDS]);

    /// Adds `len` bytes from `at` on. Returns the number of those that are new.
    pub(super) fn insert(&mut self, at: u32, len: u32) -> u32 {
        let mut fresh = 0;
        self.words(at, len, |word, mask| {
            fresh += (mask & !*word).count_ones();
            *word |= mask;
        });
        fresh
    }

    /// Removes `len` bytes from `at` on.
    pub(super) fn remove(&mut self, at: u32, len: u32) {
        self.words(at, len, |word, mask| *word &= !mask);
    }

    /// Returns how many of `len` bytes from `at` on are in the set.
    pub(super) fn count(&mut self, at: u32, len: u32) -> u32 {
        let mut count = 0;
        self.words(at, len, |word, mask| count += (mask & *word).count_ones());
        count
    }

    /// Returns whether no byte is in the set.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Calls `each` with the words of `len` bytes from `at` on, and the bits of these bytes in
    /// them. Bytes beyond a range are left out.
    fn words(&mut self, at: u32, len: u32, mut each: impl FnMut(&mut u64, u64)) {
        let end = at.saturating_add(len).min(RANGE_LEN);
        let mut at = at;
        while at < end
            && let Some(word) = self.0.get_mut(at as usize / 64)
        {
            let bits = (64 - at % 64).min(end - at);
            each(word, u64::MAX >> (64 - bits) << (at % 64));
            at += bits;
        }
    }
}
