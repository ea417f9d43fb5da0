//! Allocation of BAR2 memory for device-resident send queues: first fit over units of 4 KiB.
//!
//! A process may keep its mapping of a send queue after the QP's end. So what a context gives back
//! goes to the same context again, and to others only when the context itself is gone.

use std::collections::{BTreeMap, HashMap};

use vrnic_abi::uar::{SQ_MEMORY_LEN, SQ_MEMORY_OFFSET, SQ_MEMORY_UNIT};

/// Free memory of the adapter, and of each context.
#[derive(Debug)]
pub struct SqMemory {
    common: Ranges,
    contexts: HashMap<u32, Ranges>,
}

/// Start to length, in bytes from the start of BAR2; ranges never touch each other.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ranges(BTreeMap<u64, u64>);

impl Default for SqMemory {
    fn default() -> Self {
        let common = Ranges(BTreeMap::from([(SQ_MEMORY_OFFSET, SQ_MEMORY_LEN)]));
        Self { common, contexts: HashMap::new() }
    }
}

impl SqMemory {
    /// Takes `len` bytes, rounded up to units, for a context; returns their offset in BAR2.
    pub fn take(&mut self, context: u32, len: u64) -> Option<u64> {
        let len = units(len)?;
        let own = self.contexts.get_mut(&context).and_then(|ranges| ranges.take(len));
        own.or_else(|| self.common.take(len))
    }

    /// Gives back what [`Self::take`] gave for the same context and `len`.
    pub fn give(&mut self, context: u32, start: u64, len: u64) {
        if let Some(len) = units(len) {
            self.contexts.entry(context).or_default().give(start, len);
        }
    }

    /// Bytes that are taken, or kept for contexts that gave them back.
    #[must_use]
    pub fn used(&self) -> u64 {
        SQ_MEMORY_LEN.saturating_sub(self.common.0.values().sum())
    }

    /// The context is gone: all that it gave back is for others now.
    pub fn release(&mut self, context: u32) {
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

    #[test]
    fn ranges_join_again() {
        let mut memory = SqMemory::default();
        let taken: Vec<u64> = (0..8).filter_map(|n| memory.take(1, 1 << (9 + n))).collect();
        assert_eq!(taken.len(), 8);
        for (n, start) in taken.iter().enumerate().rev() {
            memory.give(1, *start, 1 << (9 + n));
        }
        assert!(memory.used() > 0);
        memory.release(1);
        assert_eq!(memory.used(), 0);
        assert_eq!(memory.common, SqMemory::default().common);
    }

    #[test]
    fn freed_memory_stays_with_its_context() {
        let mut memory = SqMemory::default();
        let first = memory.take(1, 4096);
        memory.give(1, first.unwrap_or_default(), 4096);
        assert_ne!(memory.take(2, 4096), first);
        assert_eq!(memory.take(1, 4096), first);
    }

    #[test]
    fn a_full_memory_says_so() {
        let mut memory = SqMemory::default();
        assert_eq!(memory.take(1, SQ_MEMORY_LEN), Some(SQ_MEMORY_OFFSET));
        assert_eq!(memory.take(1, 1), None);
        assert_eq!(memory.take(1, u64::MAX), None);
    }
}
