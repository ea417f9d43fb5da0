//! The guest's physical memory as the device may use it: the ranges that the VMM maps with DMA_MAP.
//!
//! Readers take a snapshot of the table, which an unmap replaces. An unmap returns when the last reader of
//! the old snapshot has gone, so that no access to the range follows the reply to the VMM.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::fault::{CopyFault, Fault, FaultKind, MAX_RANGES, MapError};
use super::mapping::Mapping;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustix::fs::SealFlags;

/// Longest piece that one snapshot is held for, so that an unmap never waits for a whole message.
const PIECE: usize = 1 << 20;
/// How long an unmap pauses between looks at the readers of the old snapshot.
const DRAIN_PAUSE: Duration = Duration::from_micros(20);

/// A range to map.
#[derive(Debug)]
pub struct DmaRange {
    /// First guest address.
    pub iova: u64,
    /// Length in bytes.
    pub size: u64,
    /// Whether the device may read.
    pub readable: bool,
    /// Whether the device may write.
    pub writable: bool,
    /// Offset in `file`.
    pub offset: u64,
    /// The memory; ranges without are known but cannot be reached (ROMs, BARs of other devices).
    pub file: Option<File>,
}

/// What an access wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Read only.
    Read,
    /// Write, or read and write.
    Write,
}

/// A mapped range; `last` is inclusive.
#[derive(Clone, Debug)]
struct Entry {
    first: u64,
    last: u64,
    readable: bool,
    memory: Option<Arc<Mapping>>,
}

/// Ranges sorted by address, without overlap.
type Ranges = Vec<Entry>;

/// The table of a function.
#[derive(Debug)]
pub struct DmaTable {
    /// Prefix of log lines: the function's name.
    name: String,
    ranges: ArcSwap<Ranges>,
    /// Serialises changes.
    change: Mutex<()>,
    bus_master: AtomicBool,
}

impl DmaTable {
    /// An empty table for function `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ranges: ArcSwap::default(),
            change: Mutex::new(()),
            bus_master: AtomicBool::new(false),
        }
    }

    /// Lets the device use guest memory, or stops it: the bus-master bit.
    pub fn set_bus_master(&self, on: bool) {
        let _change = self.change.lock();
        if self.bus_master.swap(on, Ordering::AcqRel) && !on {
            let same = Ranges::clone(&self.ranges.load());
            drain(&self.ranges.swap(Arc::new(same)));
        }
    }

    /// Whether the bus-master bit is set.
    #[must_use]
    pub fn bus_master(&self) -> bool {
        self.bus_master.load(Ordering::Acquire)
    }

    /// Adds a range.
    ///
    /// # Errors
    /// See [`MapError`]; the table is unchanged then.
    pub fn map(&self, range: DmaRange) -> Result<(), MapError> {
        let DmaRange { iova, size, .. } = range;
        let last = last_of(iova, size)?;
        let _change = self.change.lock();
        let old = self.ranges.load_full();
        if old.len() >= MAX_RANGES {
            return Err(MapError::TooMany);
        }
        let at = old.partition_point(|entry| entry.last < iova);
        if old.get(at).is_some_and(|entry| entry.first <= last) {
            return Err(MapError::Overlap { iova, size });
        }
        let memory = range.file.as_ref().map(|file| self.open(&range, file)).transpose()?;
        let mut ranges = Ranges::clone(&old);
        ranges.insert(at, Entry { first: iova, last, readable: range.readable, memory });
        self.ranges.store(Arc::new(ranges));
        Ok(())
    }

    /// Removes all ranges inside `iova`, `size` and waits for their users. Nothing there is no error.
    ///
    /// # Errors
    /// [`MapError::Split`] when a range lies only partly inside; the table is unchanged then.
    pub fn unmap(&self, iova: u64, size: u64) -> Result<(), MapError> {
        let last = last_of(iova, size)?;
        let _change = self.change.lock();
        let old = self.ranges.load_full();
        let outside = |entry: &&Entry| entry.last < iova || entry.first > last;
        let inside = |entry: &Entry| entry.first >= iova && entry.last <= last;
        if old.iter().any(|entry| !outside(&entry) && !inside(entry)) {
            return Err(MapError::Split { iova, size });
        }
        let kept: Ranges = old.iter().filter(outside).cloned().collect();
        drop(old);
        drain(&self.ranges.swap(Arc::new(kept)));
        Ok(())
    }

    /// Removes all ranges and waits for their users.
    pub fn unmap_all(&self) {
        let _change = self.change.lock();
        drain(&self.ranges.swap(Arc::default()));
    }

    /// Bytes of guest memory that can be reached.
    #[must_use]
    pub fn reachable(&self) -> u64 {
        let bytes = |entry: &Entry| entry.memory.as_ref().map_or(0, |memory| memory.len() as u64);
        self.ranges.load().iter().map(bytes).sum()
    }

    /// Copies guest memory out.
    ///
    /// # Errors
    /// The first address that cannot be read; bytes before it may have been copied.
    pub fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < into.len() {
            let at = advance(addr, done)?;
            done += self.with(at, into.len() - done, Intent::Read, |memory, offset, len| {
                memory.read(offset, &mut into[done..done + len])
            })?;
        }
        Ok(())
    }

    /// Copies into guest memory, in ascending order and the last bytes last.
    ///
    /// # Errors
    /// The first address that cannot be written; bytes before it may have been copied.
    pub fn write(&self, addr: u64, from: &[u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < from.len() {
            let at = advance(addr, done)?;
            done += self.with(at, from.len() - done, Intent::Write, |memory, offset, len| {
                memory.write(offset, &from[done..done + len])
            })?;
        }
        Ok(())
    }

    /// Copies `len` bytes straight from this guest's memory to that of `to`, the last bytes last.
    ///
    /// # Errors
    /// The side and address that cannot be accessed; bytes before it may have been copied.
    pub fn copy_to(&self, addr: u64, to: &Self, to_addr: u64, len: usize) -> Result<(), CopyFault> {
        let mut done = 0;
        while done < len {
            let at = advance(addr, done).map_err(CopyFault::Source)?;
            let to_at = advance(to_addr, done).map_err(CopyFault::Target)?;
            let mut inner = Ok(0);
            self.with(at, len - done, Intent::Read, |source, offset, len| {
                inner = to.with(to_at, len, Intent::Write, |target, to_offset, len| {
                    Mapping::copy(source, offset, target, to_offset, len)
                });
                Some(())
            })
            .map_err(CopyFault::Source)?;
            done += inner.map_err(CopyFault::Target)?;
        }
        Ok(())
    }

    /// Checks that all of a range can be accessed now.
    ///
    /// # Errors
    /// The first address that cannot.
    pub fn check(&self, addr: u64, len: u64, intent: Intent) -> Result<(), Fault> {
        let mut done = 0u64;
        while done < len {
            let at = addr.checked_add(done).ok_or(Fault::unmapped(addr))?;
            let left = usize::try_from(len - done).unwrap_or(usize::MAX);
            done += self.with_any(at, left, intent, |_, _, len| Some(len))? as u64;
        }
        Ok(())
    }

    /// Runs `access` on the longest piece from `addr` on that lies in one mapping, up to `len`
    /// and 1 MiB, and returns the length of the piece.
    ///
    /// # Errors
    /// A fault of `addr`, also when `access` returns `None`.
    pub fn with(
        &self,
        addr: u64,
        len: usize,
        intent: Intent,
        access: impl FnOnce(&Mapping, usize, usize) -> Option<()>,
    ) -> Result<usize, Fault> {
        self.with_any(addr, len.min(PIECE), intent, |memory, offset, len| {
            access(memory, offset, len).map(|()| len)
        })
    }

    /// Like [`Self::with`], for any result and without the limit.
    ///
    /// # Errors
    /// As [`Self::with`].
    pub fn with_any<T>(
        &self,
        addr: u64,
        len: usize,
        intent: Intent,
        access: impl FnOnce(&Mapping, usize, usize) -> Option<T>,
    ) -> Result<T, Fault> {
        let fault = |why| Fault { addr, why };
        let ranges = self.ranges.load();
        // Looked at under the snapshot: clearing the bit drains snapshots.
        if !self.bus_master() {
            return Err(fault(FaultKind::NotBusMaster));
        }
        let at = ranges.partition_point(|entry| entry.last < addr);
        let entry =
            ranges.get(at).filter(|entry| entry.first <= addr).ok_or(Fault::unmapped(addr))?;
        let memory = entry.memory.as_ref().ok_or(fault(FaultKind::NoFile))?;
        match intent {
            Intent::Read if !entry.readable => return Err(fault(FaultKind::WriteOnly)),
            Intent::Write if !memory.is_writable() => return Err(fault(FaultKind::ReadOnly)),
            Intent::Read | Intent::Write => {}
        }
        let offset = usize::try_from(addr - entry.first).map_err(|_| Fault::unmapped(addr))?;
        let len = len.min(memory.len().saturating_sub(offset));
        access(memory, offset, len).ok_or(fault(FaultKind::Unaligned))
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
        let sealed =
            rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !sealed {
            tracing::warn!(
                function = self.name,
                "memory file of guest address {iova:#x} is not sealed against shrinking; \
                 truncating it would stop the daemon"
            );
        }
        let len = usize::try_from(size).map_err(|_| MapError::BadRange { iova, size })?;
        Mapping::new(file, offset, len, range.writable).map(Arc::new).map_err(os)
    }
}

/// Waits until `old`, which the table no longer holds, has no reader left.
fn drain(old: &Arc<Ranges>) {
    while Arc::strong_count(old) > 1 {
        std::thread::sleep(DRAIN_PAUSE);
    }
}

/// The last address of a range.
fn last_of(iova: u64, size: u64) -> Result<u64, MapError> {
    size.checked_sub(1)
        .and_then(|more| iova.checked_add(more))
        .ok_or(MapError::BadRange { iova, size })
}

/// `addr + done`, or a fault when that wraps.
fn advance(addr: u64, done: usize) -> Result<u64, Fault> {
    addr.checked_add(done as u64).ok_or(Fault::unmapped(addr))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use proptest::prelude::*;
    use rustix::fs::MemfdFlags;

    use super::*;

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
        let table = DmaTable::new("t");
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
        a.write(0, &data).expect("write");
        let mut back = vec![0; LEN as usize];
        a.read(0, &mut back).expect("read");
        assert!(back == data);
        let half = LEN / 2;
        for (from, to, len) in [(half - 3, half - 100, 500), (0, 1, LEN as usize - 1), (9, 9, 0)] {
            a.copy_to(from, &b, to, len).expect("copy");
            let mut back = vec![0; len];
            b.read(to, &mut back).expect("read");
            assert!(back == data[from as usize..][..len]);
        }
    }

    #[test]
    fn faults_tell_address_and_reason() {
        let table = table();
        let fault = |addr, why| Err(Fault { addr, why });
        assert_eq!(table.read(LEN - 1, &mut [0; 2]), fault(LEN, FaultKind::Unmapped));
        assert_eq!(table.write(u64::MAX, &[0; 2]), fault(u64::MAX, FaultKind::Unmapped));
        table.map(range(1 << 32, 4096, 0, None)).expect("no file");
        assert_eq!(table.read(1 << 32, &mut [0]), fault(1 << 32, FaultKind::NoFile));
        let rom = DmaRange { writable: false, ..range(1 << 33, 4096, 0, Some(memory())) };
        table.map(rom).expect("read-only");
        assert_eq!(table.write(1 << 33, &[0]), fault(1 << 33, FaultKind::ReadOnly));
        table.read(1 << 33, &mut [0]).expect("read of read-only memory");
        table.set_bus_master(false);
        assert_eq!(table.read(0, &mut [0]), fault(0, FaultKind::NotBusMaster));
    }

    #[test]
    fn atomics_work_on_aligned_words_alone() {
        let table = table();
        let add = |addr, n: u64| {
            table.with_any(addr, 8, Intent::Write, |memory, at, _| memory.word64(at)?.fetch_add(n))
        };
        assert_eq!(add(64, 5), Ok(0));
        assert_eq!(add(64, u64::MAX), Ok(5));
        assert_eq!(add(64, 0), Ok(4));
        assert_eq!(add(65, 1), Err(Fault { addr: 65, why: FaultKind::Unaligned }));
    }

    proptest! {
        /// Any mix of maps, unmaps and copies does what it does to a plain array, and never more.
        #[test]
        fn copies_agree_with_a_plain_model(
            pieces in proptest::collection::vec((0u64..16, 0u64..16, any::<bool>()), 1..12),
            accesses in proptest::collection::vec((0u64..LEN, 0usize..9000, any::<u8>()), 1..20),
        ) {
            const PAGE: u64 = LEN / 16;
            let table = DmaTable::new("t");
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
                let result = table.write(addr, &vec![byte; len]);
                prop_assert_eq!(result.is_ok(), reach == len);
                if let Err(fault) = result {
                    // Whole pieces before the fault are written, the rest is not.
                    prop_assert_eq!(fault.addr, addr + reach as u64);
                }
                (addr..addr + reach as u64).filter_map(place).for_each(|at| model[at] = byte);
                let mut back = vec![0; reach];
                table.read(addr, &mut back).expect("what was written can be read");
                let expected: Vec<u8> =
                    (addr..addr + reach as u64).filter_map(place).map(|at| model[at]).collect();
                prop_assert_eq!(back, expected);
            }
        }
    }

    /// An unmap returns only when nobody reads the range any more.
    #[test]
    fn unmap_waits_for_users() {
        let table = Arc::new(table());
        let inside = Arc::new(AtomicU64::new(0));
        let (user, seen) = (Arc::clone(&table), Arc::clone(&inside));
        let thread = std::thread::spawn(move || {
            user.with(0, 8, Intent::Read, |_, _, _| {
                seen.store(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(50));
                seen.store(2, Ordering::SeqCst);
                Some(())
            })
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
