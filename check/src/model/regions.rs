//! Memory regions, and the segments that are in them.

use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use crate::bytes::Range;
use crate::stack::Place;

/// A segment as the program has posted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sge {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) key: u32,
}

/// Where the bytes of a region are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Memory of the process, from this address on.
    Memory(u64),
    /// Memory of a device, or unknown.
    Elsewhere,
}

/// A memory region.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) device: usize,
    /// The base of its domain.
    pub(crate) domain: usize,
    pub(crate) key: u32,
    /// The first address that requests use.
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) access: u32,
    pub(crate) backing: Backing,
    pub(crate) made: Place,
    /// Number of segments of outstanding requests.
    pub(crate) users: AtomicU32,
    pub(crate) ended: Mutex<Option<Place>>,
}

impl Region {
    /// Returns whether a segment is within the region.
    pub(crate) fn contains(&self, sge: &Sge) -> bool {
        // A region of all addresses, on demand.
        if self.start == 0 && self.length == u64::MAX {
            return true;
        }
        let offset = sge.address.wrapping_sub(self.start);
        let end = offset.checked_add(u64::from(sge.length));
        sge.address >= self.start && end.is_some_and(|end| end <= self.length)
    }

    /// Returns where a segment is in the memory of this process.
    pub(crate) fn range(&self, sge: &Sge) -> Option<Range> {
        let Backing::Memory(start) = self.backing else { return None };
        if !self.contains(sge) {
            return None;
        }
        let address = start.wrapping_add(sge.address.wrapping_sub(self.start));
        Some(Range {
            address: usize::try_from(address).ok()?,
            length: usize::try_from(sge.length).ok()?,
        })
    }

    /// Returns the region's name in reports.
    pub(crate) fn name(&self) -> String {
        format!(
            "the region of {} bytes at {:#x} (local key {:#x})",
            self.length, self.start, self.key
        )
    }
}
