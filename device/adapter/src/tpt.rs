//! The translation and protection table: regions by key, and the one place that checks access to them.
//!
//! An entry is a cache line of atomic words under a sequence count, its pages stand in the address
//! translation table ([`crate::att`]): a look-up writes nothing. What it found is used while the guest's
//! memory is held ([`Host::memory`]), and a removal waits for all who hold it ([`Host::drain`]).

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use parking_lot::Mutex;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::Access;

use crate::att::{Att, Table};
#[cfg(doc)]
use crate::host::Host;

/// Regions of a function.
pub const MAX_MR: u32 = 1 << 20;
const CHUNK: usize = 1024;
/// Looks at an entry that changes at that moment.
const LOOKS: u32 = 4;

/// A region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mr {
    /// Its key: index and instance.
    pub key: u32,
    /// Its PD.
    pub pdn: u32,
    /// What it allows.
    pub access: Access,
    /// Address of its first byte, as work requests name it.
    pub iova: u64,
    /// Length in bytes.
    pub length: u64,
    /// Where its first byte lies in its first page.
    pub offset: u64,
    /// Its pages.
    pub table: Table,
}

/// A checked piece of a region, for as long as the guest's memory is held.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    table: Table,
    offset: u64,
    att: &'a Att,
    held: PhantomData<&'a ()>,
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

impl Window<'_> {
    /// The guest address of byte `at` of the window, and the bytes that follow without a gap, up to
    /// `len`.
    #[inline]
    #[must_use]
    pub fn resolve(&self, at: u64, len: u64) -> Option<(u64, u64)> {
        self.att.resolve(&self.table, self.offset.checked_add(at)?, len)
    }
}

/// The table. Look-ups take no lock.
#[derive(Debug)]
pub struct Tpt {
    chunks: Box<[OnceLock<Box<[Entry]>>]>,
    att: Att,
    free: Mutex<Free>,
}

/// An entry, a cache line long.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Entry {
    /// Odd while the entry changes.
    sequence: AtomicU32,
    instance: AtomicU8,
    /// Page shift and depth of the table.
    shape: [AtomicU8; 2],
    /// Zero without a region.
    key: AtomicU32,
    pdn: AtomicU32,
    access: AtomicU32,
    iova: AtomicU64,
    length: AtomicU64,
    offset: AtomicU64,
    root: AtomicU64,
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    /// The region, if there is one.
    #[inline]
    fn load(&self) -> Option<Mr> {
        let order = Ordering::Relaxed;
        for _ in 0..LOOKS {
            let sequence = self.sequence.load(Ordering::Acquire);
            let [shift, depth] = &self.shape;
            let mr = Mr {
                key: self.key.load(order),
                pdn: self.pdn.load(order),
                access: Access::from_bits_retain(self.access.load(order)),
                iova: self.iova.load(order),
                length: self.length.load(order),
                offset: self.offset.load(order),
                table: Table {
                    shift: shift.load(order),
                    depth: depth.load(order),
                    root: self.root.load(order),
                },
            };
            fence(Ordering::Acquire);
            if sequence & 1 == 0 && self.sequence.load(order) == sequence {
                return (mr.key != 0).then_some(mr);
            }
        }
        // It comes or goes at this moment; that it has not come yet, or has gone, is as true.
        None
    }

    /// Stores a region. The caller is the only one that changes the entry: it took the index, or the key.
    fn store(&self, mr: &Mr) {
        let order = Ordering::Relaxed;
        let sequence = self.sequence.load(order);
        self.sequence.store(sequence.wrapping_add(1), order);
        fence(Ordering::Release);
        self.key.store(mr.key, order);
        self.pdn.store(mr.pdn, order);
        self.access.store(mr.access.bits(), order);
        self.iova.store(mr.iova, order);
        self.length.store(mr.length, order);
        self.offset.store(mr.offset, order);
        let [shift, depth] = &self.shape;
        shift.store(mr.table.shift, order);
        depth.store(mr.table.depth, order);
        self.root.store(mr.table.root, order);
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// Makes the entry of `key` invalid and returns what it held; `None` when it holds another, or somebody
    /// else was first.
    fn take(&self, key: u32) -> Option<Mr> {
        let mr = self.load().filter(|mr| mr.key == key)?;
        self.key.compare_exchange(key, 0, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        Some(mr)
    }
}

#[derive(Debug, Default)]
struct Free {
    /// Indices given back, the longest unused first.
    list: VecDeque<u32>,
    /// The first index never used.
    fresh: u32,
}

impl Default for Tpt {
    fn default() -> Self {
        let chunks = (0..MAX_MR as usize / CHUNK).map(|_| OnceLock::new()).collect();
        // Index 0 stays unused: a zero key is never valid.
        let free = Mutex::new(Free { fresh: 1, ..Free::default() });
        Self { chunks, att: Att::default(), free }
    }
}

impl Tpt {
    #[inline]
    fn entry(&self, index: u32) -> Option<&Entry> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }

    /// The pages of its regions.
    #[must_use]
    pub fn att(&self) -> &Att {
        &self.att
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
                entry.store(&Mr { key, ..mr });
                Ok(Some(key))
            }
            Err(error) => {
                self.free.lock().list.push_back(index);
                Err(error)
            }
        }
    }

    /// Removes a region, waits by `drain` until the last access to it has ended, and gives its pages back.
    /// `None` when there is none of this key.
    pub fn remove(&self, key: u32, drain: impl FnOnce()) -> Option<Mr> {
        let mr = self.entry(key >> 8)?.take(key)?;
        drain();
        self.give_back(&mr);
        Some(mr)
    }

    /// Removes all regions and waits by `drain` until the last access has ended.
    pub fn clear(&self, drain: impl FnOnce()) {
        let entries = self.chunks.iter().filter_map(OnceLock::get).flatten();
        let take = |entry: &Entry| entry.take(entry.key.load(Ordering::Relaxed));
        let removed: Vec<Mr> = entries.filter_map(take).collect();
        drain();
        removed.iter().for_each(|mr| self.give_back(mr));
    }

    fn give_back(&self, mr: &Mr) {
        self.att.free(&mr.table);
        self.free.lock().list.push_back(mr.key >> 8);
    }

    /// The one check of every access: `len` bytes at `addr` of the region `key`, by an object of PD
    /// `pdn`, with the rights `need`. The answer holds as long as `_held`, the guest's memory, is held.
    ///
    /// # Errors
    /// The first check that failed.
    #[inline]
    pub fn check<'a, M>(
        &'a self,
        _held: &'a M,
        (key, pdn): (u32, u32),
        (addr, len): (u64, u64),
        need: Access,
    ) -> Result<Window<'a>, Denied> {
        let entry = self.entry(key >> 8).ok_or(Denied::NoRegion)?;
        let mr = entry.load().ok_or(Denied::NoRegion)?;
        let start = mr.check(key, pdn, addr, len, need)?;
        let offset = mr.offset.checked_add(start).ok_or(Denied::Bounds)?;
        Ok(Window { table: mr.table, offset, att: &self.att, held: PhantomData })
    }
}
