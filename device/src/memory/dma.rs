//! The guest's physical memory that the device may access: the ranges that the VMM maps with
//! DMA_MAP.
//!
//! Each worker has a copy of the list of ranges ([`Lane`]) and holds its lock for a turn, as a
//! [`DmaView`]. A change replaces one copy after the other. It returns when no thread uses the old
//! list any more, so no access to a range follows the reply to the VMM that has unmapped it. A
//! change locks only one copy at a time, and no view is taken for writing, so no cycle of waits can
//! arise.

use std::fs::File;
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
    /// address space and mappings, so none can take those of another one.
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
}

impl DmaTable {
    /// Creates an empty table for adapter `name` and this many workers.
    #[must_use]
    pub fn new(name: &str, workers: usize, rules: MapRules) -> Self {
        let lanes = (0..Lane::count(workers)).map(|_| CachePadded::default()).collect();
        Self { name: name.to_owned(), rules, map: Mutex::default(), lanes }
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
        Mapping::new(file, offset, len, range.writable).map(Arc::new).map_err(os)
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
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use proptest::prelude::*;
    use rustix::fs::MemfdFlags;

    use super::super::fault::{Fault, FaultKind};
    use super::*;
    use crate::memory::mapping::Order;

    const LEN: u64 = 1 << 16;

    fn memory() -> File {
        let file =
            rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let file = File::from(file.expect("memfd"));
        file.set_len(LEN).expect("length");
        file
    }

    fn range(iova: u64, size: u64, offset: u64, file: Option<File>) -> DmaRange {
        DmaRange { iova, size, readable: true, writable: true, offset, file }
    }

    /// Two pieces of one file, swapped: guest address 0 is the second half.
    fn table() -> DmaTable {
        let table = DmaTable::new("t", 1, MapRules::share(1));
        let file = memory();
        let half = LEN / 2;
        let twin = file.try_clone().expect("dup");
        table.map(range(0, half, half, Some(twin))).expect("first");
        table.map(range(half, half, 0, Some(file))).expect("second");
        table.set_bus_master(true);
        table
    }

    #[test]
    fn copies_cross_from_one_range_into_the_next() {
        let (a, b) = (table(), table());
        let data: Vec<u8> = (0..LEN).map(|i| (i * 7 % 251) as u8).collect();
        a.view(Lane::SHARED).write(0, &data).expect("write");
        let mut back = vec![0; LEN as usize];
        a.view(Lane::SHARED).read(0, &mut back).expect("read");
        assert!(back == data);
        let half = LEN / 2;
        for (from, to, len) in [(half - 3, half - 100, 500), (0, 1, LEN as usize - 1), (9, 9, 0)] {
            let order = Order::LastBytesLast;
            a.view(Lane::SHARED)
                .copy_to(from, &b.view(Lane::SHARED), to, (len, order))
                .expect("copy");
            let mut back = vec![0; len];
            b.view(Lane::SHARED).read(to, &mut back).expect("read");
            assert!(back == data[from as usize..][..len]);
        }
    }

    #[test]
    fn faults_tell_address_and_reason() {
        let table = table();
        let fault = |addr, why| Err(Fault { addr, why });
        assert_eq!(
            table.view(Lane::SHARED).read(LEN - 1, &mut [0; 2]),
            fault(LEN, FaultKind::Unmapped)
        );
        assert_eq!(
            table.view(Lane::SHARED).write(u64::MAX, &[0; 2]),
            fault(u64::MAX, FaultKind::Unmapped)
        );
        table.map(range(1 << 32, 4096, 0, None)).expect("no file");
        assert_eq!(
            table.view(Lane::SHARED).read(1 << 32, &mut [0]),
            fault(1 << 32, FaultKind::NoFile)
        );
        let rom = DmaRange { writable: false, ..range(1 << 33, 4096, 0, Some(memory())) };
        table.map(rom).expect("read-only");
        assert_eq!(
            table.view(Lane::SHARED).write(1 << 33, &[0]),
            fault(1 << 33, FaultKind::ReadOnly)
        );
        table.view(Lane::SHARED).read(1 << 33, &mut [0]).expect("read of read-only memory");
        table.set_bus_master(false);
        assert_eq!(table.view(Lane::SHARED).read(0, &mut [0]), fault(0, FaultKind::NotBusMaster));
    }

    #[test]
    fn atomics_work_on_aligned_words_alone() {
        let table = table();
        let add = |addr, n: u64| table.view(Lane::SHARED).fetch_add(addr, n);
        assert_eq!(add(64, 5), Ok(0));
        assert_eq!(add(64, u64::MAX), Ok(5));
        assert_eq!(add(64, 0), Ok(4));
        assert_eq!(add(65, 1), Err(Fault { addr: 65, why: FaultKind::Unaligned }));
    }

    #[test]
    fn what_a_vmm_may_map_is_bounded() {
        let rules = MapRules { ranges: 2, bytes: LEN, any_file: false };
        let table = DmaTable::new("t", 1, rules);
        let file = || Some(memory());
        table.map(range(0, LEN - 4096, 0, file())).expect("first");
        let refused = table.map(range(1 << 32, 8192, 0, file()));
        assert!(matches!(refused, Err(MapError::TooMuch { limit: LEN, .. })), "{refused:?}");
        table.map(range(1 << 32, 4096, 0, file())).expect("what is left");
        let refused = table.map(range(1 << 33, 4096, 0, file()));
        assert!(matches!(refused, Err(MapError::TooMany)), "{refused:?}");
        table.map(range(1 << 34, 4096, 0, None)).expect("a range without memory");
        table.unmap(1 << 32, 4096).expect("unmap");
        table.map(range(1 << 33, 4096, 0, file())).expect("what has come back");
        for adapters in [1, 7, 256] {
            let MapRules { ranges, bytes, .. } = MapRules::share(adapters);
            assert!(ranges >= 64 && bytes >= 1 << 38, "{adapters} adapters");
            assert!(ranges * adapters < MAPPINGS_MAX && bytes * adapters as u64 <= 1 << 46);
        }
    }

    /// The program that runs this test is a file on some disk, as a rule.
    #[test]
    fn files_that_are_not_memory_need_leave() {
        let program = || File::open("/proc/self/exe").expect("this program");
        if rustix::fs::fstatfs(program()).expect("statfs").f_type == TMPFS {
            return;
        }
        let rom = || DmaRange { writable: false, ..range(0, 4096, 0, Some(program())) };
        let refused = DmaTable::new("t", 1, MapRules::share(1)).map(rom());
        assert!(matches!(refused, Err(MapError::NotMemory { iova: 0 })), "{refused:?}");
        let rules = MapRules { any_file: true, ..MapRules::share(1) };
        DmaTable::new("t", 1, rules).map(rom()).expect("allowed");
    }

    /// A file that is cut short fails the access, and each later one; the process goes on.
    #[test]
    fn memory_that_is_cut_off_is_lost() {
        let table = DmaTable::new("t", 1, MapRules::share(1));
        table.set_bus_master(true);
        let file = memory();
        table.map(range(0, LEN, 0, Some(file.try_clone().expect("dup")))).expect("map");
        let whole = self::table();
        table.view(Lane::SHARED).write(LEN - 8, &[7; 8]).expect("write");
        file.set_len(0).expect("truncate");
        assert!(!table.has_lost(), "nobody has looked");
        table
            .view(Lane::SHARED)
            .copy_to(0, &whole.view(Lane::SHARED), 0, (9000, Order::Any))
            .expect_err("a copy out of nothing");
        assert!(table.has_lost());
        for addr in [0, LEN - 8] {
            let fault = Err(Fault { addr, why: FaultKind::Lost });
            assert_eq!(table.view(Lane::SHARED).read(addr, &mut [0; 8]), fault);
            assert_eq!(table.view(Lane::SHARED).fetch_add(addr, 1).map(|_| ()), fault);
        }
        whole.view(Lane::SHARED).write(0, &[1; 100]).expect("other memory is as it was");
        table.unmap(0, LEN).expect("unmap");
        table.map(range(0, LEN, 0, Some(memory()))).expect("map anew");
        table.view(Lane::SHARED).read(0, &mut [0; 8]).expect("new memory");
    }

    proptest! {
        /// Any mix of maps, unmaps and copies does what it does to a plain array, and never more.
        #[test]
        fn copies_agree_with_a_plain_model(
            pieces in proptest::collection::vec((0u64..16, 0u64..16, any::<bool>()), 1..12),
            accesses in proptest::collection::vec((0u64..LEN, 0usize..9000, any::<u8>()), 1..20),
        ) {
            const PAGE: u64 = LEN / 16;
            let table = DmaTable::new("t", 1, MapRules::share(1));
            table.set_bus_master(true);
            let file = memory();
            // The model: which page of the file stands at each guest page.
            let mut pages = [None; 16];
            let mut model = vec![0u8; LEN as usize];
            for (at, from, map) in pieces {
                let twin = file.try_clone().expect("dup");
                if map {
                    let fits = table.map(range(at * PAGE, PAGE, from * PAGE, Some(twin))).is_ok();
                    prop_assert_eq!(fits, pages[at as usize].is_none());
                    pages[at as usize].get_or_insert(from);
                } else {
                    table.unmap(at * PAGE, PAGE).expect("whole pages");
                    pages[at as usize] = None;
                }
            }
            let place = |addr: u64| {
                let page = pages.get((addr / PAGE) as usize).copied().flatten()?;
                Some((page * PAGE + addr % PAGE) as usize)
            };
            for (addr, len, byte) in accesses {
                let reach = (addr..addr + len as u64).take_while(|at| place(*at).is_some()).count();
                let result = table.view(Lane::SHARED).write(addr, &vec![byte; len]);
                prop_assert_eq!(result.is_ok(), reach == len);
                if let Err(fault) = result {
                    // Whole pieces before the fault are written, the rest is not.
                    prop_assert_eq!(fault.addr, addr + reach as u64);
                }
                (addr..addr + reach as u64).filter_map(place).for_each(|at| model[at] = byte);
                let mut back = vec![0; reach];
                table.view(Lane::SHARED).read(addr, &mut back).expect("what was written can be read");
                let expected: Vec<u8> =
                    (addr..addr + reach as u64).filter_map(place).map(|at| model[at]).collect();
                prop_assert_eq!(back, expected);
            }
        }
    }

    #[test]
    fn device_memory_takes_its_part_of_a_range_without_memory() {
        const BAR: u64 = 1 << 40;
        let table = table();
        let own = Arc::new(Mapping::new(&memory(), 0, LEN as usize, true).expect("mapping"));
        table.map(range(BAR - 4096, LEN + 8192, 0, None)).expect("the BAR as the VMM maps it");
        let read = |addr| table.view(Lane::SHARED).read(addr, &mut [0; 8]);
        let fault = |addr, why| Err(Fault { addr, why });
        assert_eq!(read(BAR), fault(BAR, FaultKind::NoFile));
        table.set_device_memory(Some(BAR), &own);
        assert_eq!(own.write(8, &[7; 8]), Some(()));
        table.view(Lane::SHARED).write(BAR + LEN - 8, &[9; 8]).expect("its last bytes");
        let mut whole = vec![0; LEN as usize];
        table.view(Lane::SHARED).read(BAR, &mut whole).expect("all of it");
        assert_eq!((whole[8], whole[LEN as usize - 1]), (7, 9));
        for addr in [BAR - 8, BAR + LEN] {
            assert_eq!(read(addr), fault(addr, FaultKind::NoFile));
        }
        assert_eq!(table.reachable(), LEN, "guest memory alone");
        // Memory of the VMM hides it, as long as it is there.
        let over = BAR + LEN / 2;
        table.unmap(BAR - 4096, LEN + 8192).expect("unmap");
        table.map(range(over, 4096, 0, Some(memory()))).expect("memory in its place");
        assert_eq!(read(BAR), fault(BAR, FaultKind::Unmapped));
        assert_eq!(read(over), Ok(()));
        table.unmap(over, 4096).expect("unmap");
        assert_eq!(read(BAR), Ok(()));
        table.set_device_memory(Some(u64::MAX - 4095), &own);
        assert_eq!(read(BAR), fault(BAR, FaultKind::Unmapped));
        table.set_device_memory(Some(0), &own);
        assert_eq!(read(8), Ok(()), "of the VMM");
        table.set_device_memory(None, &own);
        assert_eq!(read(0), Ok(()));
    }

    /// An unmap returns only when no thread uses the range any more, on any lane.
    #[test]
    fn unmap_waits_for_users() {
        for lane in [Lane::SHARED, Lane::worker(0)] {
            let table = Arc::new(table());
            let inside = Arc::new(AtomicU64::new(0));
            let (user, seen) = (Arc::clone(&table), Arc::clone(&inside));
            let thread = std::thread::spawn(move || {
                let view = user.view(lane);
                seen.store(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(50));
                // A second view must be had though a change waits for the first.
                let read = user.view(lane).read(0, &mut [0; 8]);
                seen.store(2, Ordering::SeqCst);
                drop(view);
                read
            });
            while inside.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            table.unmap(0, LEN).expect("unmap");
            assert_eq!(inside.load(Ordering::SeqCst), 2);
            assert!(thread.join().expect("user").is_ok());
            assert_eq!(table.reachable(), 0);
        }
    }
}
