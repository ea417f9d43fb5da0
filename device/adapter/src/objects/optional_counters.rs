//! Counters that the guest's administrator switches on, because they cost time at each work
//! request. All are off after a reset.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use vrnic_abi::admin::{Counter, OPTIONAL_NAMES, OptionalCounter};

/// Number of counters.
const COUNTERS: usize = OPTIONAL_NAMES.len();

const _: () = assert!(COUNTERS <= 32);

/// The counters of a function.
#[derive(Debug, Default)]
pub(crate) struct OptionalCounters {
    /// The counters that are on, as bits.
    on: AtomicU32,
    values: [AtomicU64; COUNTERS],
}

impl OptionalCounters {
    /// Returns whether any is on.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.on.load(Ordering::Relaxed) != 0
    }

    /// Counts a work request of `length` bytes that begins. `begun` is its counter in
    /// [`vrnic_abi::admin::Stats`]; requests that move no message are not counted.
    #[cold]
    pub(crate) fn count(&self, begun: Counter, length: u64) {
        let bytes = match begun {
            Counter::TxSendReq => Some(OptionalCounter::TxSendBytes),
            Counter::TxWriteReq => Some(OptionalCounter::TxWriteBytes),
            Counter::TxReadReq => Some(OptionalCounter::TxReadBytes),
            Counter::TxAtomicReq => None,
            _ => return,
        };
        if let Some(bytes) = bytes {
            self.add(bytes, length);
        }
        self.add(class(length), 1);
    }

    /// Switches a counter on or off. One that was off counts from zero.
    ///
    /// # Errors
    /// [`Missing`] if there is no counter of this index.
    pub(crate) fn switch(&self, index: u32, on: bool) -> Result<(), Missing> {
        let value = self.values.get(index as usize).ok_or(Missing)?;
        let bit = 1 << index;
        if !on {
            self.on.fetch_and(!bit, Ordering::Relaxed);
        } else if self.on.load(Ordering::Relaxed) & bit == 0 {
            // A turn that has begun while it was on earlier may still add to it.
            value.store(0, Ordering::Relaxed);
            self.on.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the values, in the form for the guest. Those that are off are zero.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let on = self.on.load(Ordering::Relaxed);
        let value = |(nth, value): (usize, &AtomicU64)| match on & 1 << nth {
            0 => 0,
            _ => value.load(Ordering::Relaxed),
        };
        self.values.iter().enumerate().map(value).flat_map(u64::to_le_bytes).collect()
    }

    /// Switches all off.
    pub(crate) fn clear(&self) {
        self.on.store(0, Ordering::Relaxed);
    }

    fn add(&self, counter: OptionalCounter, amount: u64) {
        let index = counter as usize;
        if self.on.load(Ordering::Relaxed) & 1 << index != 0
            && let Some(value) = self.values.get(index)
        {
            value.fetch_add(amount, Ordering::Relaxed);
        }
    }
}

/// There is no such counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing;

/// Returns the counter of messages of this length.
fn class(length: u64) -> OptionalCounter {
    match length {
        0..=0x100 => OptionalCounter::TxMsgs256,
        0x101..=0x1000 => OptionalCounter::TxMsgs4k,
        0x1001..=0x1_0000 => OptionalCounter::TxMsgs64k,
        0x1_0001..=0x10_0000 => OptionalCounter::TxMsgs1m,
        _ => OptionalCounter::TxMsgsLarge,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_by_their_length() {
        for (length, counter) in [
            (0, OptionalCounter::TxMsgs256),
            (256, OptionalCounter::TxMsgs256),
            (257, OptionalCounter::TxMsgs4k),
            (4096, OptionalCounter::TxMsgs4k),
            (4097, OptionalCounter::TxMsgs64k),
            (65_536, OptionalCounter::TxMsgs64k),
            (65_537, OptionalCounter::TxMsgs1m),
            (1 << 20, OptionalCounter::TxMsgs1m),
            ((1 << 20) + 1, OptionalCounter::TxMsgsLarge),
            (u64::MAX, OptionalCounter::TxMsgsLarge),
        ] {
            assert_eq!(class(length), counter, "{length} bytes");
        }
    }
}
