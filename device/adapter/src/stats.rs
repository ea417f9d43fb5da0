//! Counters of a function, and its limit of warnings.

use std::sync::atomic::{AtomicU64, Ordering};

use vrnic_abi::admin::STAT_NAMES;

use crate::limiter::Limiter;

/// Counters, in the order of [`vrnic_abi::admin::Stats`].
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Counter {
    SendWqes,
    RecvWqes,
    ReadWqes,
    WriteWqes,
    AtomicWqes,
    BytesSent,
    BytesReceived,
    Cqes,
    CompletionEvents,
    Interrupts,
    RnrNakSent,
    RnrNakReceived,
    RemoteAccessErrors,
    RemoteInvalidRequests,
    LocalErrors,
    FlushedWqes,
    RetryExceeded,
    BadDoorbells,
    CqOverflows,
    Kicks,
    AdminCommands,
    AdminErrors,
    RegWqes,
    LocalInvWqes,
    BindWqes,
    CommandWqes,
    RemoteInvalidations,
    MemoryOpErrors,
    MessagesDropped,
}

/// The counters.
#[derive(Debug)]
pub struct Counters {
    cells: [AtomicU64; STAT_NAMES.len()],
    /// For warnings about the guest.
    pub limiter: Limiter,
}

impl Default for Counters {
    fn default() -> Self {
        Self { cells: std::array::from_fn(|_| AtomicU64::new(0)), limiter: Limiter::default() }
    }
}

impl Counters {
    /// Adds to a counter.
    #[inline]
    pub fn add(&self, counter: Counter, value: u64) {
        self.add_at(counter as usize, value);
    }

    /// Adds to the counter with this number.
    #[inline]
    pub(crate) fn add_at(&self, index: usize, value: u64) {
        if let Some(cell) = self.cells.get(index) {
            cell.fetch_add(value, Ordering::Relaxed);
        }
    }

    /// Steps a counter.
    #[inline]
    pub fn step(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// The value of a counter.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.cells.get(counter as usize).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    /// All values, in the order of [`STAT_NAMES`].
    pub fn values(&self) -> impl Iterator<Item = u64> {
        self.cells.iter().map(|cell| cell.load(Ordering::Relaxed))
    }

    /// All values as the guest sees them: an array of little-endian 64-bit words.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.values().flat_map(u64::to_le_bytes).collect()
    }

    /// Zeroes all.
    pub fn clear(&self) {
        self.cells.iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
    }
}
