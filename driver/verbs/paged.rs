// SPDX-License-Identifier: GPL-2.0
//! Memory of regions that is not pinned (on-demand paging).
//!
//! The adapter has no pages of such a region at first. When a message needs some, the adapter
//! raises an event. A work item then has them faulted in, and passes their addresses to the
//! adapter, while the memory's lock keeps the kernel from taking them away. When the kernel takes
//! pages away, a callback removes them from the adapter under the same lock. This callback takes no
//! lock of a [`Region`] and allocates nothing.

use abi::{
    Key, Pdn,
    admin::{DeviceFeatures, MAP_PAGES_MAX, MapFlags, MapPages, PAGED_MAX, PageRequest, Pages},
    admin::{RegMr, UnmapPages, command},
    qp::Access,
};
use kernel::{
    new_mutex,
    page::PAGE_SHIFT,
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
    sync::{
        Arc, Mutex,
        atomic::{Atomic, Relaxed},
    },
    workqueue::{Work, WorkItem, impl_has_work, new_work},
};

use super::{Ctx, Verbs};
use crate::{
    listeners::{PageEvents, PageLink, Prefetch},
    quiesce::Liveness,
    rdma::{
        Device,
        mr::{Advice, UserRegion},
        page_list::PageList,
        paged_umem::{self, PagedUmem, Unmap},
    },
    workqueue::OwnQueue,
};

/// `IB_ACCESS_ON_DEMAND`.
pub(super) const ON_DEMAND: u32 = 1 << 6;
/// Bytes of a page.
const PAGE: u64 = 1 << PAGE_SHIFT;
/// Pages of a part of a region that has all addresses of a process.
const PART: u64 = 4096;

/// Returns whether regions of an adapter may be registered on demand.
pub(super) fn is_offered(ctx: &Ctx<'_>) -> bool {
    ctx.adapter.caps().has(DeviceFeatures::PAGED) && paged_umem::is_available()
}

/// Gives pages of a region to the adapter, as a program advises.
pub(super) fn prefetch(ctx: &Ctx<'_>, pdn: Pdn, advice: &Advice) -> Result {
    if !is_offered(ctx) {
        return Err(EOPNOTSUPP);
    }
    let &Advice { lkey, address, length, write, fault, waits } = advice;
    let region = ctx.adapter.listeners().regions.get(Key::new(lkey)).ok_or(EINVAL)?;
    region.0.prefetch(&Prefetch { pdn, address, length: length.into(), write, fault, waits })
}

/// The region as the adapter knows it.
struct Owner {
    /// Its key, once there is one. No page is present before.
    key: Atomic<u32>,
    liveness: Arc<Liveness>,
}

impl Owner {
    fn key(&self) -> Key {
        Key::new(self.key.load(Relaxed))
    }

    /// Marks a page as one that cannot be had.
    fn fail(&self, first: u64) -> Result {
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
    fn next(&self) -> Result<PageRequest> {
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
struct Taker {
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
        // Without its region, or after its end, the adapter uses no page.
        let _ = self.owner.liveness.execute::<command::UnmapPages>(&params);
    }
}

/// The memory of a region.
enum Memory {
    /// A range of the process.
    Range(PagedUmem<Taker>),
    /// All addresses of the process, and the parts of them that messages have needed.
    All(PagedUmem<Taker>, RBTree<u64, PagedUmem<Taker>>),
}

/// What the work on a region needs.
struct State {
    memory: Memory,
    list: PageList,
}

/// A region whose memory is not pinned.
#[pin_data]
pub(super) struct Region {
    pdn: Pdn,
    /// The region as the process names it.
    wanted: UserRegion,
    owner: Arc<Owner>,
    writable: bool,
    /// None after the end.
    #[pin]
    state: Mutex<Option<State>>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Region { self.work }
}

impl Region {
    /// Returns a region of the calling process, which the adapter does not know yet.
    pub(super) fn new(
        ctx: &Ctx<'_>,
        device: &Device<Verbs>,
        pdn: Pdn,
        wanted: &UserRegion,
    ) -> Result<Arc<Self>> {
        if !is_offered(ctx) {
            return Err(EOPNOTSUPP);
        }
        let owner = Owner { key: Atomic::new(0), liveness: ctx.adapter.liveness() };
        let owner = Arc::new(owner, GFP_KERNEL)?;
        let access = wanted.access;
        let mut wanted = *wanted;
        let memory = if wanted.start == 0 && wanted.length == u64::MAX {
            if wanted.iova != 0 {
                return Err(EINVAL);
            }
            wanted.length = PAGED_MAX * PAGE;
            Memory::All(PagedUmem::anchor(device, access)?, RBTree::new())
        } else {
            let taker = Arc::new(Taker { owner: owner.clone(), base: 0 }, GFP_KERNEL)?;
            Memory::Range(PagedUmem::new(device, wanted.start, wanted.length, access, taker)?)
        };
        let writable = match &memory {
            Memory::Range(memory) | Memory::All(memory, _) => memory.is_writable(),
        };
        let state = State { memory, list: PageList::new(ctx.dma(), MAP_PAGES_MAX)? };
        Arc::pin_init(
            pin_init!(Self {
                pdn,
                wanted,
                owner,
                writable,
                state <- new_mutex!(Some(state), "vrnic::Region"),
                work <- new_work!("vrnic::Region"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the parameters with which the adapter creates it.
    pub(super) fn params(&self, rights: u32) -> RegMr {
        let UserRegion { iova, length, .. } = self.wanted;
        // CAST: a small constant.
        RegMr::new(self.pdn, rights, iova, length, Pages::new(0, PAGE_SHIFT as u8, 0))
    }

    /// Serves the requests of the adapter, which has created the region with this key.
    pub(super) fn start(self: &Arc<Self>, ctx: &Ctx<'_>, key: Key) -> Result {
        self.owner.key.store(key.get(), Relaxed);
        ctx.adapter.listeners().regions.add(key, self.link())?;
        // An event before this has found no listener.
        <Self as WorkItem>::run(self.clone());
        Ok(())
    }

    /// Ends the use of the memory. `remove` removes the region from the adapter. Until it has, no
    /// other code names the key, which may soon be that of another region.
    pub(super) fn end(
        self: &Arc<Self>,
        ctx: &Ctx<'_>,
        key: Key,
        remove: impl FnOnce() -> Result,
    ) -> Result {
        let mut guard = self.state.lock();
        remove()?;
        ctx.adapter.listeners().regions.remove(key, &self.link());
        let state = guard.take();
        drop(guard);
        drop(state);
        Ok(())
    }

    fn link(self: &Arc<Self>) -> PageLink {
        PageLink(self.clone())
    }

    /// Serves one request. If not all of its pages can be had, the first one is served.
    fn serve(&self, state: &mut State, request: &PageRequest) -> Result {
        let (first, count) = (request.first.get(), u64::from(request.count.get()));
        let UserRegion { iova, length, .. } = self.wanted;
        let pages = (iova % PAGE).checked_add(length).ok_or(EFAULT)?.div_ceil(PAGE);
        if first >= pages || count > pages - first {
            return Err(EFAULT);
        }
        let mut given = self.give(state, first, count, true);
        if given.is_err() && count > 1 {
            given = self.give(state, first, 1, true);
        }
        match given {
            // The message asks again.
            Err(error) if error == EBUSY || error == EAGAIN || error == EINTR => Ok(()),
            Err(_) => self.owner.fail(first),
            Ok(()) => Ok(()),
        }
    }

    /// Gives pages to the adapter: all of these, if `fault` is true, or those that are present in
    /// the process.
    fn give(&self, state: &mut State, first: u64, count: u64, fault: bool) -> Result {
        let State { memory, list } = state;
        let end = first.checked_add(count).ok_or(EFAULT)?;
        let mut at = first;
        while at < end {
            // A work item gets no signals.
            if current!().signal_pending() {
                return Err(EINTR);
            }
            let some = |limit: u64| (limit - at).min(MAP_PAGES_MAX.into());
            match &mut *memory {
                Memory::Range(memory) => {
                    self.give_some(memory, list, 0, at, some(end), fault)?;
                    at += some(end);
                }
                Memory::All(anchor, parts) => {
                    let (number, base) = (at / PART, at / PART * PART);
                    let limit = end.min(base + PART);
                    let known = parts.get(&number).is_some();
                    if !known && !fault {
                        at = limit;
                        continue;
                    }
                    let part = self.part(anchor, parts, at)?;
                    let given = self.give_some(part, list, base, at, some(limit), fault);
                    if given.is_err() && !known {
                        // It may be that the process has no memory there.
                        parts.remove(&number);
                    }
                    given?;
                    at += some(limit);
                }
            }
        }
        Ok(())
    }

    /// Gives pages of one memory to the adapter, no more than a list has room for.
    fn give_some(
        &self,
        memory: &PagedUmem<Taker>,
        list: &PageList,
        base: u64,
        first: u64,
        count: u64,
        fault: bool,
    ) -> Result {
        let locked = memory.lock(first - base, count, fault)?;
        list.clear();
        let (mut run, mut complete) = (first, true);
        for page in first..first + count {
            match locked.page(page - base) {
                Some(address) => list.push(address)?,
                None => {
                    self.owner.give(list, run)?;
                    run = page + 1;
                    complete = false;
                }
            }
        }
        self.owner.give(list, run)?;
        if complete || !fault { Ok(()) } else { Err(EFAULT) }
    }

    /// Returns the part of all addresses with this page.
    fn part<'a>(
        &self,
        anchor: &PagedUmem<Taker>,
        parts: &'a mut RBTree<u64, PagedUmem<Taker>>,
        page: u64,
    ) -> Result<&'a PagedUmem<Taker>> {
        let number = page / PART;
        if parts.get(&number).is_none() {
            let base = number * PART;
            let taker = Arc::new(Taker { owner: self.owner.clone(), base }, GFP_KERNEL)?;
            let memory = anchor.part(base * PAGE, PART * PAGE, taker)?;
            parts.insert(RBTreeNode::new(number, memory, GFP_KERNEL)?);
        }
        parts.get(&number).ok_or(EFAULT)
    }
}

impl WorkItem for Region {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // The lock is given up behind each request, so that the region can be removed.
        loop {
            let mut guard = this.state.lock();
            let Some(state) = &mut *guard else { return };
            let Ok(request) = this.owner.next() else { return };
            if request.count.get() == 0 {
                return;
            }
            // If the adapter has no room for the mark of a page that cannot be had, it knows.
            let _ = this.serve(state, &request);
        }
    }
}

impl PageEvents for Region {
    fn requested(self: Arc<Self>, queue: &OwnQueue) {
        // If it is enqueued already, it has not asked for the requests yet.
        let _ = queue.enqueue::<Arc<Self>, 0>(self);
    }

    fn prefetch(&self, wanted: &Prefetch) -> Result {
        let &Prefetch { pdn, address, length, write, fault, waits } = wanted;
        if pdn != self.pdn {
            return Err(EINVAL);
        }
        if write && !self.writable {
            return Err(EPERM);
        }
        let zero_based = self.wanted.access & Access::ZERO_BASED.bits() != 0;
        let base = if zero_based { 0 } else { self.wanted.iova };
        let at = address.checked_sub(base).filter(|at| *at <= self.wanted.length).ok_or(EFAULT)?;
        if length > self.wanted.length - at {
            return Err(EFAULT);
        }
        if length == 0 {
            return Ok(());
        }
        let at = at + self.wanted.iova % PAGE;
        let (first, end) = (at / PAGE, (at + length).div_ceil(PAGE));
        let mut guard = self.state.lock();
        let Some(state) = &mut *guard else { return Err(EINVAL) };
        let given = self.give(state, first, end - first, fault);
        if waits { given } else { Ok(()) }
    }
}
