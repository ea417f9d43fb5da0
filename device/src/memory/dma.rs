//! The guest's physical memory that the device may access: the ranges that the VMM maps with
//! DMA_MAP.
//!
//! Each worker has a copy of the list of ranges ([`Lane`]) and holds its lock for a turn, as a
//! [`DmaView`]. A change replaces one copy after the other. It returns when no thread uses the old
//! list any more, so no access to a range follows the reply to the VMM that has unmapped it. A
//! change locks only one copy at a time, and no view is taken for writing, so no cycle of waits can
//! arise.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, RwLock};
use rustix::fs::SealFlags;
use vrnic_adapter::host::Lane;

use super::fault::{MAX_RANGES, MapError};
use super::mapping::{HUGETLBFS, Mapping};
use super::sigbus::MAPPINGS_MAX;
use super::view::{DmaView, Entry, Reach};

/// Limits for the mappings of a VMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRules {
    /// Maximum number of ranges with memory.
    pub ranges: usize,
    /// Maximum number of bytes in these ranges.
    pub bytes: u64,
    /// True if files of any file system are accepted. An access to a slow or remote file system
    /// delays a worker.
    pub any_file: bool,
}

impl MapRules {
    /// Returns the limits for each of this many adapters. Each gets an equal share of the process's
    /// address space and mappings, so that no adapter can take the share of another.
    #[must_use]
    pub fn share(adapters: usize) -> Self {
        let ranges = (RANGES / adapters.max(1)).min(MAX_RANGES);
        Self { ranges, bytes: Self::most(adapters).min(BYTES_MAX), any_file: false }
    }

    /// Returns the maximum number of bytes for each of this many adapters.
    #[must_use]
    pub fn most(adapters: usize) -> u64 {
        ADDRESSES / adapters.max(1) as u64
    }
}

/// Bytes of address space for the memory of all guests: half of what a process has.
const ADDRESSES: u64 = 1 << 46;
/// Maximum number of bytes of a guest, unless the settings differ.
const BYTES_MAX: u64 = 1 << 42;
/// Number of mappings for all guests. The others are for doorbell memory.
const RANGES: usize = MAPPINGS_MAX - 2048;

/// Type of the file system of memfds and of shared memory (statfs(2)).
const TMPFS: libc::c_long = 0x01021994;

/// A range to map.
#[derive(Debug)]
pub struct DmaRange {
    /// First guest address.
    pub iova: u64,
    /// Length in bytes.
    pub size: u64,
    /// True if the device may read.
    pub readable: bool,
    /// True if the device may write.
    pub writable: bool,
    /// Offset in `file`.
    pub offset: u64,
    /// The memory. A range without memory (a ROM, or a BAR of another device) cannot be accessed.
    pub file: Option<File>,
}

/// All memory that has an address.
#[derive(Debug, Default)]
struct Map {
    /// The VMM's ranges, sorted by address, without overlap.
    ranges: Arc<[Entry]>,
    /// The adapter's own memory, which no VMM maps.
    device: Option<Entry>,
    /// The bus-master bit.
    bus_master: bool,
}

impl Map {
    /// Returns the ranges that the workers can access. A VMM maps the BARs of all devices as ranges
    /// without memory, and device memory replaces a part of them. Memory of the VMM takes
    /// precedence over device memory.
    fn reach(&self) -> Reach {
        let (ranges, bus_master) = (Arc::clone(&self.ranges), self.bus_master);
        let Some(device) = &self.device else { return Reach { ranges, bus_master } };
        let meets = |entry: &Entry| entry.first <= device.last && device.first <= entry.last;
        if ranges.iter().any(|entry| meets(entry) && entry.memory.is_some()) {
            return Reach { ranges, bus_master };
        }
        let mut all = Vec::with_capacity(ranges.len() + 2);
        for entry in ranges.iter() {
            if !meets(entry) {
                all.push(entry.clone());
                continue;
            }
            if let Some(last) = device.first.checked_sub(1).filter(|last| entry.first <= *last) {
                all.push(Entry { last, ..entry.clone() });
            }
            if let Some(first) = device.last.checked_add(1).filter(|first| *first <= entry.last) {
                all.push(Entry { first, ..entry.clone() });
            }
        }
        let at = all.partition_point(|entry| entry.last < device.first);
        all.insert(at, device.clone());
        Reach { ranges: all.into(), bus_master }
    }
}

/// The table of an adapter.
#[derive(Debug)]
pub struct DmaTable {
    /// The adapter's name, as the prefix of log lines.
    name: String,
    rules: MapRules,
    /// The source of the workers' copies. Its lock serialises changes.
    map: Mutex<Map>,
    lanes: Box<[CachePadded<RwLock<Reach>>]>,
    /// The connection of the VMM.
    connection: Mutex<Option<OwnedFd>>,
}

impl DmaTable {
    /// Creates an empty table for adapter `name` and this many workers.
    #[must_use]
    pub fn new(name: &str, workers: usize, rules: MapRules) -> Self {
        let lanes = (0..Lane::count(workers)).map(|_| CachePadded::default()).collect();
        let (map, connection) = (Mutex::default(), Mutex::default());
        Self { name: name.to_owned(), rules, map, lanes, connection }
    }

    /// Returns the memory as it is now, for a thread in `lane`. It does not change while the view
    /// exists. The thread may take views of several tables, or of this one again, but must not
    /// change a table while it holds a view.
    #[inline]
    #[must_use]
    pub fn view(&self, lane: Lane) -> DmaView<'_> {
        let lane = lane.index(self.lanes.len());
        // A waiting change must not block a second view of the same thread, hence a recursive lock.
        DmaView::new(self.lanes[lane].read_recursive())
    }

    /// Waits until all views that exist now have been dropped. The caller holds no view.
    pub fn drain(&self) {
        for lane in &self.lanes {
            drop(lane.write());
        }
    }

    /// Sets the bus-master bit, which allows the device to access guest memory.
    pub fn set_bus_master(&self, on: bool) {
        let mut map = self.map.lock();
        if map.bus_master != on {
            map.bus_master = on;
            self.publish(&map);
        }
    }

    /// Maps the adapter's own memory at a bus address, or nowhere, and waits for accesses to it at
    /// its previous address. An address at which the memory would exceed the address space counts
    /// as nowhere.
    pub fn set_device_memory(&self, at: Option<u64>, memory: &Arc<Mapping>) {
        let mut map = self.map.lock();
        map.device = at.and_then(|first| {
            let last = last_of(first, memory.len() as u64).ok()?;
            Some(Entry { first, last, readable: true, memory: Some(Arc::clone(memory)) })
        });
        self.publish(&map);
    }

    /// Returns whether the bus-master bit is set.
    #[must_use]
    pub fn bus_master(&self) -> bool {
        self.map.lock().bus_master
    }

    /// Adds a range.
    ///
    /// # Errors
    /// See [`MapError`]. The table is unchanged in case of an error.
    pub fn map(&self, range: DmaRange) -> Result<(), MapError> {
        let DmaRange { iova, size, .. } = range;
        let last = last_of(iova, size)?;
        let mut map = self.map.lock();
        let old = &map.ranges;
        if old.len() >= MAX_RANGES {
            return Err(MapError::TooMany);
        }
        let at = old.partition_point(|entry| entry.last < iova);
        if old.get(at).is_some_and(|entry| entry.first <= last) {
            return Err(MapError::Overlap { iova, size });
        }
        if range.file.is_some() {
            self.fits(old, iova, size)?;
        }
        let memory = range.file.as_ref().map(|file| self.open(&range, file)).transpose()?;
        let mut ranges = old.to_vec();
        ranges.insert(at, Entry { first: iova, last, readable: range.readable, memory });
        map.ranges = ranges.into();
        self.publish(&map);
        Ok(())
    }

    /// Removes all ranges inside of `iova` and `size`, and waits for their users. It is not an
    /// error if there are none.
    ///
    /// # Errors
    /// [`MapError::Split`] if a range is only partly inside. The table is then unchanged.
    pub fn unmap(&self, iova: u64, size: u64) -> Result<(), MapError> {
        let last = last_of(iova, size)?;
        let mut map = self.map.lock();
        let outside = |entry: &&Entry| entry.last < iova || entry.first > last;
        let inside = |entry: &Entry| entry.first >= iova && entry.last <= last;
        if map.ranges.iter().any(|entry| !outside(&entry) && !inside(entry)) {
            return Err(MapError::Split { iova, size });
        }
        map.ranges = map.ranges.iter().filter(outside).cloned().collect();
        self.publish(&map);
        Ok(())
    }

    /// Records the connection of a new VMM, whose ranges will be mapped.
    pub fn connect(&self, connection: OwnedFd) {
        *self.connection.lock() = Some(connection);
    }

    /// Removes all ranges, waits for their users, and closes the connection of the VMM.
    pub fn disconnect(&self) {
        self.unmap_all();
        self.connection.lock().take();
    }

    /// Removes all ranges and waits for their users.
    pub fn unmap_all(&self) {
        let mut map = self.map.lock();
        map.ranges = Arc::default();
        self.publish(&map);
    }

    /// Returns the number of bytes of guest memory that can be accessed.
    #[must_use]
    pub fn reachable(&self) -> u64 {
        memories(&self.map.lock().ranges).map(|memory| memory.len() as u64).sum()
    }

    /// Returns whether memory of a range has been lost, as far as this is known without an access.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        let map = self.map.try_lock();
        map.is_some_and(|map| memories(&map.ranges).any(|memory| memory.is_lost()))
    }

    /// Returns whether there is room for one more mapping of `size` bytes.
    fn fits(&self, ranges: &[Entry], iova: u64, size: u64) -> Result<(), MapError> {
        let (mut count, mut bytes) = (0, size);
        for memory in memories(ranges) {
            count += 1;
            bytes = bytes.saturating_add(memory.len() as u64);
        }
        match () {
            () if count >= self.rules.ranges => Err(MapError::TooMany),
            () if bytes > self.rules.bytes => {
                Err(MapError::TooMuch { iova, size, limit: self.rules.bytes })
            }
            () => Ok(()),
        }
    }

    /// Replaces all copies, each one when its user releases it.
    fn publish(&self, map: &Map) {
        let reach = map.reach();
        for lane in &self.lanes {
            *lane.write() = reach.clone();
        }
    }

    /// Checks the file of a range and maps it.
    fn open(&self, range: &DmaRange, file: &File) -> Result<Arc<Mapping>, MapError> {
        let DmaRange { iova, size, offset, .. } = *range;
        let os = |error| MapError::Os { iova, size, error };
        let meta = file.metadata().map_err(os)?;
        if !meta.is_file() {
            return Err(MapError::NotShared { iova });
        }
        // A range beyond the end of the file would raise SIGBUS at its first use.
        let len = meta.size();
        if offset.checked_add(size).is_none_or(|end| end > len) {
            return Err(MapError::BeyondFile { iova, size, len });
        }
        let system = rustix::fs::fstatfs(file).map_err(|error| os(error.into()))?.f_type;
        if !self.rules.any_file && ![TMPFS, HUGETLBFS].contains(&system) {
            return Err(MapError::NotMemory { iova });
        }
        let sealed =
            rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !sealed {
            tracing::debug!(
                function = self.name,
                "the memory file of guest address {iova:#x} is not sealed against shrinking"
            );
        }
        let len = usize::try_from(size).map_err(|_| MapError::BadRange { iova, size })?;
        let mapping = Mapping::new(file, offset, len, range.writable).map_err(os)?;
        if let Some(connection) = &*self.connection.lock() {
            mapping.bind(connection.as_fd());
        }
        Ok(Arc::new(mapping))
    }
}

/// Returns the mappings of the ranges that have memory.
fn memories(ranges: &[Entry]) -> impl Iterator<Item = &Mapping> {
    ranges.iter().filter_map(|entry| entry.memory.as_deref())
}

/// Returns the last address of a range.
fn last_of(iova: u64, size: u64) -> Result<u64, MapError> {
    size.checked_sub(1)
        .and_then(|more| iova.checked_add(more))
        .ok_or(MapError::BadRange { iova, size })
}

#[cfg(test)]
mod tests;
