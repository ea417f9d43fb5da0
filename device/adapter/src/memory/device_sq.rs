//! Send queues in device memory: the addresses of their entries in BAR2, and the allocation of that
//! memory, first fit in units of 4 KiB.
//!
//! A process may keep its mapping of a send queue after the QP's end. So memory that a context
//! frees is only reused by the same context, and by others after the end of the context.

use std::collections::{BTreeMap, HashMap};

use vrnic_abi::ContextId;
use vrnic_abi::doorbell::{BarRange, BarWord32};
use vrnic_abi::sq::STAMP_OFFSET;
use vrnic_abi::uar::{SQ_MEMORY_LEN, SQ_MEMORY_OFFSET, SQ_MEMORY_UNIT};

/// A send queue in BAR2.
#[derive(Clone, Copy, Debug)]
pub struct DeviceRing {
    start: u64,
    log_size: u8,
    log_stride: u8,
}

impl DeviceRing {
    /// Creates a ring of `1 << log_size` entries of `1 << log_stride` bytes, which begins `start`
    /// bytes into BAR2.
    #[must_use]
    pub const fn new(start: u64, log_size: u8, log_stride: u8) -> Self {
        Self { start, log_size, log_stride }
    }

    /// Returns the number of entries.
    #[inline]
    #[must_use]
    pub const fn size(&self) -> u32 {
        1 << self.log_size
    }

    /// Returns the number of bytes from one entry to the next.
    #[inline]
    #[must_use]
    pub const fn stride(&self) -> usize {
        1 << self.log_stride
    }

    /// Returns the range of the ring in BAR2.
    #[must_use]
    pub const fn range(&self) -> BarRange {
        BarRange { start: self.start, len: 1 << (self.log_size + self.log_stride) }
    }

    /// Returns the number of entries from `index` to the end of the ring.
    #[inline]
    #[must_use]
    pub const fn left(&self, index: u32) -> u32 {
        self.size() - self.place(index)
    }

    /// Returns the range in BAR2 of `count` entries from `index` on. They must not go beyond the
    /// end of the ring: see [`Self::left`].
    #[inline]
    #[must_use]
    pub const fn entries(&self, index: u32, count: u32) -> BarRange {
        let start = self.start + ((self.place(index) as u64) << self.log_stride);
        BarRange { start, len: (count as u64) << self.log_stride }
    }

    /// Returns the word of an entry that shows whether it is posted.
    #[inline]
    #[must_use]
    pub const fn stamp(&self, index: u32) -> BarWord32 {
        self.entries(index, 1).word32(STAMP_OFFSET as u64)
    }

    const fn place(&self, index: u32) -> u32 {
        index & (self.size() - 1)
    }
}

/// Free memory of the adapter, and of each context.
#[derive(Debug)]
pub struct SqMemory {
    common: Ranges,
    contexts: HashMap<ContextId, Ranges>,
}

/// Start and length, in bytes from the start of BAR2. Adjacent ranges are merged.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ranges(BTreeMap<u64, u64>);

impl Default for SqMemory {
    fn default() -> Self {
        let common = Ranges(BTreeMap::from([(SQ_MEMORY_OFFSET, SQ_MEMORY_LEN)]));
        Self { common, contexts: HashMap::new() }
    }
}

impl SqMemory {
    /// Allocates `len` bytes, rounded up to units, for a context. Returns their offset in BAR2.
    pub fn take(&mut self, context: ContextId, len: u64) -> Option<u64> {
        let len = units(len)?;
        let own = self.contexts.get_mut(&context).and_then(|ranges| ranges.take(len));
        own.or_else(|| self.common.take(len))
    }

    /// Frees a range that [`Self::take`] has allocated for the same context.
    pub fn give(&mut self, context: ContextId, range: BarRange) {
        if let Some(len) = units(range.len) {
            self.contexts.entry(context).or_default().give(range.start, len);
        }
    }

    /// Returns the number of bytes that are allocated, or reserved for contexts that have freed
    /// them.
    #[must_use]
    pub fn used(&self) -> u64 {
        SQ_MEMORY_LEN.saturating_sub(self.common.0.values().sum())
    }

    /// Makes all memory that a context has freed available to others, at the end of the context.
    pub fn release(&mut self, context: ContextId) {
        for (start, len) in self.contexts.remove(&context).unwrap_or_default().0 {
            self.common.give(start, len);
        }
    }
}

fn units(len: u64) -> Option<u64> {
    let unit = u64::from(SQ_MEMORY_UNIT);
    len.max(unit).checked_next_multiple_of(unit)
}

impl Ranges {
    fn take(&mut self, len: u64) -> Option<u64> {
        let fits = |(_, size): &(&u64, &u64)| **size >= len;
        let (start, size) = self.0.iter().find(fits).map(|(start, size)| (*start, *size))?;
        self.0.remove(&start);
        if size > len {
            self.0.insert(start + len, size - len);
        }
        Some(start)
    }

    fn give(&mut self, mut start: u64, mut len: u64) {
        if let Some(next) = self.0.remove(&(start + len)) {
            len += next;
        }
        let before = self.0.range(..start).next_back().map(|(start, len)| (*start, *len));
        if let Some((earlier, size)) = before
            && earlier + size == start
        {
            self.0.remove(&earlier);
            start = earlier;
            len += size;
        }
        self.0.insert(start, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ContextId = ContextId::new(1);
    const OTHER: ContextId = ContextId::new(2);

    #[test]
    fn ranges_join_again() {
        let mut memory = SqMemory::default();
        let taken: Vec<u64> = (0..8).filter_map(|n| memory.take(ONE, 1 << (9 + n))).collect();
        assert_eq!(taken.len(), 8);
        for (n, start) in taken.iter().enumerate().rev() {
            memory.give(ONE, BarRange { start: *start, len: 1 << (9 + n) });
        }
        assert!(memory.used() > 0);
        memory.release(ONE);
        assert_eq!(memory.used(), 0);
        assert_eq!(memory.common, SqMemory::default().common);
    }

    #[test]
    fn freed_memory_stays_with_its_context() {
        let mut memory = SqMemory::default();
        let first = memory.take(ONE, 4096);
        memory.give(ONE, BarRange { start: first.unwrap_or_default(), len: 4096 });
        assert_ne!(memory.take(OTHER, 4096), first);
        assert_eq!(memory.take(ONE, 4096), first);
    }

    #[test]
    fn a_full_memory_says_so() {
        let mut memory = SqMemory::default();
        assert_eq!(memory.take(ONE, SQ_MEMORY_LEN), Some(SQ_MEMORY_OFFSET));
        assert_eq!(memory.take(ONE, 1), None);
        assert_eq!(memory.take(ONE, u64::MAX), None);
    }
}
