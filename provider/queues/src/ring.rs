// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A ring: a power of two of entries, addressed by free-running 32-bit indices.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::heap::Shared;
use crate::mapping::{Area, Mapping, Words};

/// Number and length of a ring's entries, as powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// log2 of the number of entries.
    pub log_size: u8,
    /// log2 of the bytes of an entry.
    pub log_stride: u8,
}

impl Shape {
    /// Returns the smallest ring of at least `entries` entries of `stride` bytes (a power of two);
    /// `None` if there are more than `2^log_max` of them, or none.
    #[must_use]
    pub fn holding(entries: u32, stride: u32, log_max: u32) -> Option<Self> {
        if entries == 0 || entries > 1u32.checked_shl(log_max)? {
            return None;
        }
        let log_size = u8::try_from(entries.next_power_of_two().trailing_zeros()).ok()?;
        let log_stride = u8::try_from(stride.trailing_zeros()).ok()?;
        Some(Self { log_size, log_stride })
    }

    /// Returns the number of bytes of the whole ring.
    #[must_use]
    pub fn bytes(self) -> usize {
        1 << (self.log_size + self.log_stride)
    }

    /// Returns the number of bytes of an entry.
    #[must_use]
    pub fn stride(self) -> u32 {
        1 << self.log_stride
    }
}

/// The entries in memory. Clones share them.
#[derive(Clone, Debug)]
pub struct Ring {
    words: Words,
    mask: u32,
    log_words: u32,
}

impl Ring {
    /// Returns the ring at the start of `memory`.
    ///
    /// # Errors
    /// `EIO` if the memory is too short or the entries are not made of whole words; `ENOMEM`.
    pub fn new(memory: Mapping, shape: Shape) -> Result<Self, Errno> {
        let log_words = u32::from(shape.log_stride).checked_sub(3).ok_or(Errno::IO)?;
        if shape.bytes() > memory.len() {
            return Err(Errno::IO);
        }
        Ok(Self { words: Words::new(memory)?, mask: (1 << shape.log_size) - 1, log_words })
    }

    /// Returns the ring at a byte offset of `memory`; `None` if it does not lie inside or the
    /// entries are not made of whole words.
    #[must_use]
    pub fn within(memory: &Shared<Mapping>, offset: u32, shape: Shape) -> Option<Self> {
        let log_words = u32::from(shape.log_stride).checked_sub(3)?;
        let words = Words::within(memory, offset, shape.bytes())?;
        Some(Self { words, mask: (1 << shape.log_size) - 1, log_words })
    }

    /// Returns the number of entries.
    #[must_use]
    #[inline]
    pub fn size(&self) -> u32 {
        self.mask.wrapping_add(1)
    }

    /// Returns log2 of the number of entries.
    pub(crate) fn log_size(&self) -> u8 {
        // CAST: at most 32.
        self.mask.trailing_ones() as u8
    }

    /// Returns the number of bytes of an entry.
    pub(crate) fn stride(&self) -> u32 {
        8 << self.log_words
    }

    /// Returns the place of the memory that contains the entries, of which the first is at the
    /// start unless the ring was made by [`Self::within`].
    pub(crate) fn area(&self) -> Area {
        self.words.mapping().area()
    }

    /// Returns the memory of all entries.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> Words {
        self.words.clone()
    }

    /// Returns the words of the entry with this index.
    #[must_use]
    #[inline]
    pub fn entry(&self, index: u32) -> &[AtomicU64] {
        let start = ((index & self.mask) as usize) << self.log_words;
        // The mask keeps the range inside, so the empty slice is never used.
        self.words.get(start..start + (1 << self.log_words)).unwrap_or_default()
    }
}

/// Stores `words` at the start of `entry`, in order, until the entry is full.
#[inline]
pub(crate) fn store(entry: &[AtomicU64], words: &[u64]) {
    for (to, from) in entry.iter().zip(words) {
        to.store(*from, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_round_up_and_respect_the_limit() {
        let shape = Shape::holding(100, 64, 15).expect("fits");
        assert_eq!(shape, Shape { log_size: 7, log_stride: 6 });
        assert_eq!(shape.bytes(), 128 * 64);
        assert_eq!(Shape::holding(1, 32, 15).map(|s| s.log_size), Some(0));
        assert_eq!(Shape::holding(1 << 15, 32, 15).map(|s| s.log_size), Some(15));
        assert_eq!(Shape::holding((1 << 15) + 1, 32, 15), None);
        assert_eq!(Shape::holding(u32::MAX, 32, 15), None);
        assert_eq!(Shape::holding(0, 32, 15), None);
    }

    #[test]
    fn indices_wrap() {
        let shape = Shape { log_size: 2, log_stride: 6 };
        let ring = Ring::new(Mapping::anonymous(4096).expect("mmap"), shape).expect("fits");
        assert_eq!(ring.size(), 4);
        store(ring.entry(u32::MAX), &[7]);
        assert_eq!(ring.entry(3).len(), 8);
        assert_eq!(ring.entry(3)[0].load(Ordering::Relaxed), 7);
        assert_eq!(ring.entry(0)[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn rings_share_memory() {
        let memory = Shared::new(Mapping::anonymous(4096).expect("mmap")).expect("memory");
        let shape = Shape { log_size: 2, log_stride: 6 };
        let ring = Ring::within(&memory, 256, shape).expect("fits");
        store(ring.entry(5), &[7]);
        assert_eq!(memory.words()[32 + 8].load(Ordering::Relaxed), 7);
        assert!(Ring::within(&memory, 4096 - 128, shape).is_none(), "it lies half outside");
    }

    #[test]
    fn short_memory_is_refused() {
        let shape = Shape { log_size: 7, log_stride: 6 };
        let short = Ring::new(Mapping::anonymous(4096).expect("mmap"), shape);
        assert_eq!(short.err(), Some(Errno::IO));
    }
}
