//! The limits for the mappings of a VMM.

use vrnic_sigbus::MAPPINGS_MAX;

use super::ranges::Entry;

/// Limits for the mappings of a VMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRules {
    /// Maximum number of ranges. Ranges that adjoin in addresses and in memory are one.
    pub ranges: usize,
    /// Maximum number of mappings of files.
    pub mappings: usize,
    /// Maximum number of bytes in these mappings.
    pub bytes: u64,
    /// True if files of any file system are accepted. An access to a slow or remote file system
    /// delays a worker.
    pub any_file: bool,
    /// True if memory without a mapping is reached by messages to the VMM.
    pub messages: bool,
}

impl MapRules {
    /// Returns the limits for each of this many adapters. Each gets an equal share of the process's
    /// address space and mappings, and of the memory for ranges, so that no adapter can take the
    /// share of another.
    #[must_use]
    pub fn share(adapters: usize) -> Self {
        let share = |whole: usize| whole / adapters.max(1);
        let bytes = Self::max_bytes(adapters).min(BYTES_MAX);
        let ranges = share(RANGES_MEMORY).min(RANGES_MEMORY_MAX) / size_of::<Entry>();
        let mappings = share(MAPPINGS).min(MAPPINGS_EACH);
        Self { ranges, mappings, bytes, any_file: false, messages: false }
    }

    /// Returns the maximum number of bytes for each of this many adapters.
    #[must_use]
    pub fn max_bytes(adapters: usize) -> u64 {
        ADDRESSES / adapters.max(1) as u64
    }
}

/// Bytes of address space for the memory of all guests: half of what a process has.
const ADDRESSES: u64 = 1 << 46;
/// Maximum number of bytes of a guest, unless the settings differ.
const BYTES_MAX: u64 = 1 << 42;
/// Number of mappings for all guests. The others are for doorbell memory.
const MAPPINGS: usize = MAPPINGS_MAX - 2048;
/// Maximum number of mappings of a guest. QEMU needs one for each memory backend.
const MAPPINGS_EACH: usize = 4096;
/// Bytes of memory for the ranges of all guests.
const RANGES_MEMORY: usize = 1 << 30;
/// Maximum number of bytes of memory for the ranges of a guest: six million, or 25 GiB in pages
/// that are all apart.
const RANGES_MEMORY_MAX: usize = 1 << 28;
