//! The translation and protection table: regions by key, and the one place that checks access to them.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::Access;

use crate::memory::PageMap;

/// Regions of a function.
pub const MAX_MR: u32 = 1 << 17;
const CHUNK: usize = 1024;

/// A region.
#[derive(Debug)]
pub struct Mr {
    /// Its key: index and instance.
    pub key: u32,
    /// Its PD.
    pub pdn: u32,
    access: Access,
    iova: u64,
    length: u64,
    /// What `iova` has below the page size: the offset of the region in its first page.
    offset: u64,
    map: PageMap,
}

/// A checked piece of a region.
#[derive(Debug)]
pub struct Window {
    mr: Guard<Option<Arc<Mr>>>,
    offset: u64,
}

/// Why an access was refused; the order is that of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The key names no region.
    NoRegion = 1,
    /// The key is of an earlier instance.
    Stale = 2,
    /// The region belongs to another PD.
    ForeignPd = 3,
    /// The range leaves the region or wraps.
    Bounds = 4,
    /// The region does not grant the right.
    Rights = 5,
    /// The guest's memory is not there.
    Memory = 6,
}

impl Denied {
    /// The status of the work request when the segment was its own.
    #[must_use]
    pub const fn local_status(self) -> Status {
        Status::LocProtErr
    }

    /// The status at the requester when the segment was the responder's.
    #[must_use]
    pub const fn remote_status(self) -> Status {
        match self {
            Self::Memory => Status::RemOpErr,
            _ => Status::RemAccessErr,
        }
    }
}

impl Mr {
    /// A region of `length` bytes at `iova`, which lies `offset` bytes into the map's first page.
    #[must_use]
    pub fn new(
        key: u32,
        pdn: u32,
        access: Access,
        (iova, length, offset): (u64, u64, u64),
        map: PageMap,
    ) -> Self {
        Self { key, pdn, access, iova, length, offset, map }
    }

    fn check(&self, key: u32, pdn: u32, addr: u64, len: u64, need: Access) -> Result<u64, Denied> {
        if self.key != key {
            return Err(Denied::Stale);
        }
        if self.pdn != pdn {
            return Err(Denied::ForeignPd);
        }
        let start = addr.checked_sub(self.iova).ok_or(Denied::Bounds)?;
        if start > self.length || len > self.length - start {
            return Err(Denied::Bounds);
        }
        if !self.access.contains(need) {
            return Err(Denied::Rights);
        }
        Ok(start)
    }
}

impl Window {
    /// The guest address of byte `at` of the window, and the bytes that follow without a gap, up to
    /// `len`.
    #[inline]
    #[must_use]
    pub fn resolve(&self, at: u64, len: u64) -> Option<(u64, u64)> {
        let mr = self.mr.as_ref()?;
        mr.map.resolve(self.offset + at, len)
    }
}

/// The table. Look-ups take no lock.
#[derive(Debug)]
pub struct Tpt {
    chunks: Box<[OnceLock<Box<[Entry]>>]>,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Entry {
    mr: ArcSwapOption<Mr>,
    instance: AtomicU8,
}

#[derive(Debug, Default)]
struct Free {
    /// Indices given back, the longest unused first.
    list: std::collections::VecDeque<u32>,
    /// The first index never used.
    fresh: u32,
}

impl Default for Tpt {
    fn default() -> Self {
        let chunks = (0..MAX_MR as usize / CHUNK).map(|_| OnceLock::new()).collect();
        // Index 0 stays unused: a zero key is never valid.
        Self { chunks, free: Mutex::new(Free { fresh: 1, ..Free::default() }) }
    }
}

impl Tpt {
    fn entry(&self, index: u32) -> Option<&Entry> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }

    /// Adds a region that learns its key from `make`; `None` when the table is full.
    ///
    /// # Errors
    /// What `make` returns; the table is unchanged then.
    pub fn insert<E>(&self, make: impl FnOnce(u32) -> Result<Mr, E>) -> Result<Option<u32>, E> {
        let index = {
            let mut free = self.free.lock();
            if free.fresh < MAX_MR {
                free.fresh += 1;
                free.fresh - 1
            } else if let Some(index) = free.list.pop_front() {
                index
            } else {
                return Ok(None);
            }
        };
        let chunk = self.chunks.get(index as usize / CHUNK);
        chunk.map(|chunk| chunk.get_or_init(|| (0..CHUNK).map(|_| Entry::default()).collect()));
        let Some(entry) = self.entry(index) else { return Ok(None) };
        let instance = entry.instance.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let key = index << 8 | u32::from(instance);
        match make(key) {
            Ok(mr) => {
                entry.mr.store(Some(Arc::new(mr)));
                Ok(Some(key))
            }
            Err(error) => {
                self.free.lock().list.push_back(index);
                Err(error)
            }
        }
    }

    /// Removes a region and waits until the last access to it has ended. `None` when there is none of
    /// this key.
    pub fn remove(&self, key: u32) -> Option<Arc<Mr>> {
        let entry = self.entry(key >> 8)?;
        let current = entry.mr.load_full().filter(|mr| mr.key == key)?;
        let old = entry.mr.compare_and_swap(&current, None);
        if !old.as_ref().is_some_and(|old| Arc::ptr_eq(old, &current)) {
            return None;
        }
        drop(old);
        wait_for_readers(&current);
        self.free.lock().list.push_back(key >> 8);
        Some(current)
    }

    /// Removes all regions and waits until the last access has ended.
    pub fn clear(&self) {
        for entry in self.chunks.iter().filter_map(OnceLock::get).flatten() {
            if let Some(mr) = entry.mr.swap(None) {
                wait_for_readers(&mr);
                self.free.lock().list.push_back(mr.key >> 8);
            }
        }
    }

    /// The one check of every access: `len` bytes at `addr` of the region `key`, by an object of PD
    /// `pdn`, with the rights `need`.
    ///
    /// # Errors
    /// The first check that failed.
    #[inline]
    pub fn check(
        &self,
        key: u32,
        pdn: u32,
        addr: u64,
        len: u64,
        need: Access,
    ) -> Result<Window, Denied> {
        let entry = self.entry(key >> 8).ok_or(Denied::NoRegion)?;
        let mr = entry.mr.load();
        let found = mr.as_ref().ok_or(Denied::NoRegion)?;
        let start = found.check(key, pdn, addr, len, need)?;
        let offset = found.offset + start;
        Ok(Window { mr, offset })
    }
}

fn wait_for_readers(mr: &Arc<Mr>) {
    while Arc::strong_count(mr) > 1 {
        std::hint::spin_loop();
        std::thread::yield_now();
    }
}
