// SPDX-License-Identifier: GPL-2.0
//! The memory of a region, and its pages that the adapter has.

use abi::{
    Key,
    admin::{MAP_PAGES_MAX, MapFlags, MapPages, PageRequest, UnmapPages, command},
};
use kernel::{
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
};

use super::PAGE;
use crate::{
    paging::Paging,
    quiesce::Liveness,
    rdma::{
        Device,
        memory::mr::UserRegion,
        memory::page_list::PageList,
        memory::paged_umem::{self, PagedUmem, Unmap},
    },
    verbs::Verbs,
};

/// Pages of a part of a region that has all addresses of a process.
const PART: u64 = 4096;

/// The region as the adapter knows it.
pub(super) struct Owner {
    /// The region's key, once there is one. No page is present before.
    key: Atomic<u32>,
    liveness: Arc<Liveness>,
}

impl Owner {
    /// Returns a region of this adapter that does not exist yet.
    pub(super) fn new(liveness: Arc<Liveness>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { key: Atomic::new(0), liveness }, GFP_KERNEL_ACCOUNT)?)
    }

    /// Sets the key of the region, which exists now.
    pub(super) fn begin(&self, key: Key) {
        self.key.store(key.get(), Relaxed);
    }

    /// Returns the state of the adapter.
    pub(super) fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    fn key(&self) -> Key {
        Key::new(self.key.load(Relaxed))
    }

    /// Marks a page as one that cannot be had.
    pub(super) fn fail(&self, first: u64) -> Result {
        let flags = MapFlags::FAILED.bits().into();
        let params = MapPages {
            key: self.key(),
            count: 1.into(),
            first: first.into(),
            list: 0.into(),
            flags,
        };
        self.liveness.execute::<command::MapPages>(&params).map(|_| ())
    }

    /// Ends the last request, and returns the next one.
    pub(super) fn next(&self) -> Result<PageRequest> {
        let flags = MapFlags::NEXT.bits().into();
        self.liveness.execute::<command::MapPages>(&MapPages {
            key: self.key(),
            flags,
            ..MapPages::default()
        })
    }

    /// Gives the pages of a list to the adapter, from page `first` on, and empties the list.
    fn give(&self, list: &PageList, first: u64) -> Result {
        if list.len() == 0 {
            return Ok(());
        }
        let params = MapPages {
            key: self.key(),
            count: list.len().into(),
            first: first.into(),
            list: list.dma_address().into(),
            flags: 0.into(),
        };
        list.clear();
        self.liveness.execute::<command::MapPages>(&params).map(|_| ())
    }
}

/// What takes pages of a memory away, whose first page is page `base` of the region.
pub(super) struct Taker {
    owner: Arc<Owner>,
    base: u64,
}

impl Unmap for Taker {
    fn unmap(&self, first: u64, count: u64) {
        let params = UnmapPages {
            key: self.owner.key(),
            first: (self.base + first).into(),
            count: count.into(),
            ..UnmapPages::default()
        };
        let liveness = &self.owner.liveness;
        let result = if paged_umem::frees_memory() {
            liveness.execute_urgently::<command::UnmapPages>(&params)
        } else {
            liveness.execute::<command::UnmapPages>(&params)
        };
        match result {
            Ok(_) => {}
            // Without its region the adapter uses no page.
            Err(error) if error == ENOENT => {}
            // The kernel uses the pages otherwise as soon as this returns.
            Err(_) => liveness.silence(),
        }
    }
}

/// A part of all addresses of a process.
struct Part {
    memory: PagedUmem<Taker>,
    /// True if the adapter was given a page of it.
    used: bool,
}

/// The memory of a region.
enum Kind {
    /// A range of the process.
    Range(PagedUmem<Taker>),
    /// All addresses of the process, and the parts of them that messages have needed.
    All(PagedUmem<Taker>, RBTree<u64, Part>),
}

/// The memory of a region, and what gives its pages to the adapter.
pub(super) struct Memory {
    kind: Kind,
    owner: Arc<Owner>,
    paging: Arc<Paging>,
}

impl Memory {
    /// Returns memory of the calling process.
    pub(super) fn new(
        device: &Device<Verbs>,
        wanted: &UserRegion,
        owner: Arc<Owner>,
        paging: Arc<Paging>,
    ) -> Result<Self> {
        let kind = if is_all(wanted) {
            Kind::All(PagedUmem::anchor(device, wanted.access)?, RBTree::new())
        } else {
            let taker = Arc::new(Taker { owner: owner.clone(), base: 0 }, GFP_KERNEL_ACCOUNT)?;
            let UserRegion { start, length, access, .. } = *wanted;
            Kind::Range(PagedUmem::new(device, start, length, access, taker)?)
        };
        Ok(Self { kind, owner, paging })
    }

    /// Returns the memory whose pages have the numbers that they have in the region.
    pub(super) fn whole(&self) -> &PagedUmem<Taker> {
        match &self.kind {
            Kind::Range(memory) | Kind::All(memory, _) => memory,
        }
    }

    /// Returns what gives pages to the adapter.
    pub(super) fn paging(&self) -> &Arc<Paging> {
        &self.paging
    }

    /// Gives those pages to the adapter that are present in the process. Returns the first page
    /// that is not; pages behind it may be missing as well. Waits for nothing that the process may
    /// delay.
    ///
    /// # Errors
    ///
    /// If the adapter cannot have the first page, even if it is present.
    pub(super) fn give(&mut self, first: u64, count: u64) -> Result<Option<u64>> {
        let end = first.checked_add(count).ok_or(EFAULT)?;
        let mut at = first;
        while at < end {
            let some = |limit: u64| (limit - at).min(MAP_PAGES_MAX.into());
            let (given, count) = match &mut self.kind {
                Kind::Range(memory) => {
                    (give_some(&self.owner, &self.paging, memory, 0, at, some(end)), some(end))
                }
                Kind::All(anchor, parts) => {
                    let base = at / PART * PART;
                    let count = some(end.min(base + PART));
                    let part = part(&self.owner, anchor, parts, at)?;
                    let given = give_some(&self.owner, &self.paging, &part.memory, base, at, count);
                    part.used |= given.is_ok_and(|absent| absent != Some(at));
                    (given, count)
                }
            };
            match given {
                Ok(None) => at += count,
                // A later page may be one that the message does not need.
                Err(_) if at > first => return Ok(Some(at)),
                other => return other,
            }
        }
        Ok(None)
    }

    /// Removes the part of a page that cannot be had, if it has given no page: it may be that the
    /// process has no memory there.
    pub(super) fn forget(&mut self, page: u64) {
        if let Kind::All(_, parts) = &mut self.kind {
            let number = page / PART;
            if parts.get(&number).is_some_and(|part| !part.used) {
                parts.remove(&number);
            }
        }
    }

    /// Returns whether a page is in a part that no message has needed yet.
    pub(super) fn is_new(&self, page: u64) -> bool {
        match &self.kind {
            Kind::Range(_) => false,
            Kind::All(_, parts) => parts.get(&(page / PART)).is_none(),
        }
    }
}

/// Returns whether a region has all addresses of its process.
pub(super) fn is_all(wanted: &UserRegion) -> bool {
    wanted.start == 0 && wanted.length == u64::MAX
}

/// Gives pages of one memory to the adapter, no more than a list has room for. Returns the first
/// page that is absent.
fn give_some(
    owner: &Owner,
    paging: &Paging,
    memory: &PagedUmem<Taker>,
    base: u64,
    first: u64,
    count: u64,
) -> Result<Option<u64>> {
    let locked = memory.lock(first - base, count)?;
    let list = paging.list();
    list.clear();
    let (mut run, mut absent) = (first, None);
    for page in first..first + count {
        match locked.page(page - base) {
            Ok(address) => list.push(address)?,
            Err(error) if page == first && error != EAGAIN => return Err(error),
            Err(_) => {
                owner.give(&list, run)?;
                run = page + 1;
                absent = absent.or(Some(page));
            }
        }
    }
    owner.give(&list, run)?;
    Ok(absent)
}

/// Returns the part of all addresses with this page.
fn part<'a>(
    owner: &Arc<Owner>,
    anchor: &PagedUmem<Taker>,
    parts: &'a mut RBTree<u64, Part>,
    page: u64,
) -> Result<&'a mut Part> {
    let number = page / PART;
    if parts.get(&number).is_none() {
        let base = number * PART;
        let taker = Arc::new(Taker { owner: owner.clone(), base }, GFP_KERNEL)?;
        let memory = anchor.part(base * PAGE, PART * PAGE, taker)?;
        parts.insert(RBTreeNode::new(number, Part { memory, used: false }, GFP_KERNEL)?);
    }
    parts.get_mut(&number).ok_or(EFAULT)
}
