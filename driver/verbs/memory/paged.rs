// SPDX-License-Identifier: GPL-2.0
//! Memory of regions that is not pinned (on-demand paging).
//!
//! The adapter has no pages of such a region at first. When a message needs some, the adapter
//! raises an event. A work item then passes the addresses of those that are present to the adapter,
//! while the memory's lock keeps the kernel from taking them away, and lets absent ones be faulted
//! in ([`Fault`]). When the kernel takes pages away, a callback removes them from the adapter under
//! the same lock. This callback takes no lock of a [`Region`] and allocates nothing.
//!
//! The process decides how long a fault takes. So nothing waits for one, except for the process
//! itself when it advises: not the work item, and not the end of a region.

use abi::{
    Key, Pdn,
    admin::{MAP_PAGES_MAX, PAGED_MAX, Pages, RegMr},
    qp::Access,
};
use kernel::{
    new_condvar, new_mutex, new_spinlock,
    page::PAGE_SHIFT,
    prelude::*,
    sync::{Arc, CondVar, CondVarTimeoutResult, Mutex, SpinLock},
    time::msecs_to_jiffies,
    workqueue::{Work, WorkItem, impl_has_work, new_work},
};

use self::memory::{Memory, Owner};
use crate::verbs::{Ctx, Verbs};
use crate::{
    hw::turns::take_some,
    listeners::{PageEvents, PageLink, Prefetch},
    paging::Paging,
    rdma::{
        Device,
        memory::fault::{Fault, Faulted},
        memory::mr::{Advice, UserRegion},
    },
    workqueue::OwnQueue,
};

mod memory;

/// `IB_ACCESS_ON_DEMAND`.
pub(in crate::verbs) const ON_DEMAND: u32 = 1 << 6;
/// Bytes of a page.
const PAGE: u64 = 1 << PAGE_SHIFT;
/// Requests, or parts of them, that are served before other regions get their turn.
const TURN: u32 = 32;
/// Pages that are given at once.
// CAST: to the wider type.
const CHUNK: u64 = MAP_PAGES_MAX as u64;
/// Milliseconds after which a process that waits for a fault looks whether its region still exists.
const LOOK_MS: u32 = 50;
/// How often pages are looked for that were faulted in, but are absent again.
const TRIES: u32 = 16;

/// Returns whether regions of an adapter may be registered on demand.
pub(in crate::verbs) fn is_offered(ctx: &Ctx<'_>) -> bool {
    ctx.adapter.paging().is_some()
}

/// Gives pages of a region to the adapter, as a program advises.
pub(in crate::verbs) fn prefetch(ctx: &Ctx<'_>, pdn: Pdn, advice: &Advice) -> Result {
    if !is_offered(ctx) {
        return Err(EOPNOTSUPP);
    }
    let &Advice { lkey, address, length, write, fault, waits } = advice;
    let region = ctx.adapter.listeners().regions.get(Key::new(lkey)).ok_or(EINVAL)?;
    region.0.prefetch(&Prefetch { pdn, address, length: length.into(), write, fault, waits })
}

/// A process or a work item to which the result of a fault is told.
#[pin_data]
struct Waiter {
    /// The work item, if it is one.
    work: Option<(Arc<Region>, Arc<Paging>)>,
    #[pin]
    result: SpinLock<Option<Result>>,
    #[pin]
    changed: CondVar,
}

impl Waiter {
    fn new(work: Option<(Arc<Region>, Arc<Paging>)>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                work,
                result <- new_spinlock!(None, "vrnic::Waiter"),
                changed <- new_condvar!("vrnic::Waiter"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the result, if there is one.
    fn result(&self) -> Option<Result> {
        *self.result.lock()
    }

    /// Waits for the result, up to [`LOOK_MS`].
    ///
    /// # Errors
    ///
    /// `EINTR` if a signal has come.
    fn wait(&self) -> Result<Option<Result>> {
        let mut result = self.result.lock();
        if result.is_none() {
            let time = msecs_to_jiffies(LOOK_MS);
            let woken = self.changed.wait_interruptible_timeout(&mut result, time);
            if matches!(woken, CondVarTimeoutResult::Signal { .. }) {
                return Err(EINTR);
            }
        }
        Ok(*result)
    }
}

impl Faulted for Waiter {
    fn faulted(&self, result: Result) {
        *self.result.lock() = Some(result);
        match &self.work {
            Some((region, paging)) => region.clone().requested(paging.queue()),
            None => self.changed.notify_all(),
        }
    }
}

/// A request of the adapter.
struct Request {
    /// The first page of the request. If this cannot be had, the message fails.
    first: u64,
    /// The first page that is not given yet.
    at: u64,
    end: u64,
    /// What makes this page present.
    fault: Option<Fault<Waiter>>,
}

/// What the work on a region needs.
struct State {
    request: Option<Request>,
    memory: Memory,
}

/// A region whose memory is not pinned.
#[pin_data]
pub(in crate::verbs) struct Region {
    pdn: Pdn,
    /// The region as the process names it.
    wanted: UserRegion,
    owner: Arc<Owner>,
    writable: bool,
    /// None after the end. Nobody who has the lock waits for a fault.
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
    pub(in crate::verbs) fn new(
        ctx: &Ctx<'_>,
        device: &Device<Verbs>,
        pdn: Pdn,
        wanted: &UserRegion,
    ) -> Result<Arc<Self>> {
        let paging = ctx.adapter.paging().ok_or(EOPNOTSUPP)?.clone();
        let owner = Owner::new(ctx.adapter.liveness())?;
        let all = memory::is_all(wanted);
        if all && wanted.iova != 0 {
            return Err(EINVAL);
        }
        let memory = Memory::new(device, wanted, owner.clone(), paging)?;
        let mut wanted = *wanted;
        if all {
            wanted.length = PAGED_MAX * PAGE;
        }
        Arc::pin_init(
            pin_init!(Self {
                pdn,
                wanted,
                owner,
                writable: memory.whole().is_writable(),
                state <- new_mutex!(Some(State { request: None, memory }), "vrnic::Region"),
                work <- new_work!("vrnic::Region"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the parameters with which the adapter creates it.
    pub(in crate::verbs) fn params(&self, rights: u32) -> RegMr {
        let UserRegion { iova, length, .. } = self.wanted;
        // CAST: a small constant.
        RegMr::new(self.pdn, rights, iova, length, Pages::new(0, PAGE_SHIFT as u8, 0))
    }

    /// Serves the requests of the adapter, which has created the region with this key.
    pub(in crate::verbs) fn start(self: &Arc<Self>, ctx: &Ctx<'_>, key: Key) -> Result {
        self.owner.begin(key);
        ctx.adapter.listeners().regions.add(key, self.link())?;
        // An event before this has found no listener.
        if let Some(paging) = ctx.adapter.paging() {
            self.clone().requested(paging.queue());
        }
        Ok(())
    }

    /// Ends the use of the memory. `remove` removes the region from the adapter. Until it has, no
    /// other code names the key, which may soon be that of another region.
    pub(in crate::verbs) fn end(
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
        // This gives up a fault that goes on.
        drop(state);
        Ok(())
    }

    fn link(self: &Arc<Self>) -> PageLink {
        PageLink(self.clone())
    }

    /// Asks the adapter for its next request.
    fn next(&self) -> Option<Request> {
        let request = self.owner.next().ok()?;
        let (first, count) = (request.first.get(), u64::from(request.count.get()));
        let UserRegion { iova, length, .. } = self.wanted;
        let pages = (iova % PAGE).checked_add(length)?.div_ceil(PAGE);
        let good = count != 0 && first < pages && count <= pages - first;
        good.then_some(Request { first, at: first, end: first + count, fault: None })
    }

    /// Serves the request of the state, or the next one. Returns false if there is none, or if its
    /// pages are being faulted in.
    fn serve(self: &Arc<Self>, state: &mut State) -> bool {
        let Some(mut request) = state.request.take().or_else(|| self.next()) else { return false };
        let faulted = request.fault.as_ref().map(|fault| fault.user().result());
        if faulted == Some(None) {
            state.request = Some(request);
            return false;
        }
        let count = (request.end - request.at).min(CHUNK);
        let given = state.memory.give(request.at, count);
        let absent = match (given, faulted.flatten()) {
            (Ok(None), _) => {
                request.at += count;
                request.fault = None;
                state.request = (request.at < request.end).then_some(request);
                return true;
            }
            (Ok(Some(page)), _) if page > request.at => page,
            // The process changes its mappings.
            (Err(error), None) if error == EBUSY => request.at,
            (Ok(_), None) => request.at,
            // The page was present, but is absent again; the message asks again.
            (Ok(_), Some(Ok(()))) => return true,
            (_, Some(Err(error))) | (Err(error), _) => {
                self.refuse(state, &request, error);
                return true;
            }
        };
        request.at = absent;
        match self.fault(state, &request) {
            Ok(fault) => {
                request.fault = Some(fault);
                state.request = Some(request);
                false
            }
            Err(error) => {
                self.refuse(state, &request, error);
                true
            }
        }
    }

    /// Lets pages of a request be faulted in, from the first absent one on.
    fn fault(self: &Arc<Self>, state: &State, request: &Request) -> Result<Fault<Waiter>> {
        let waiter = Waiter::new(Some((self.clone(), state.memory.paging().clone())))?;
        let count = (request.end - request.at).min(CHUNK);
        Fault::start(state.memory.whole(), request.at, count, waiter)
    }

    /// Ends a request whose page cannot be had. If this is not its first page, the message may not
    /// need it, or asks for it again.
    fn refuse(&self, state: &mut State, request: &Request, error: Error) {
        state.memory.forget(request.at);
        let passes = error == EBUSY || error == EAGAIN || error == EINTR;
        if request.at == request.first && !passes {
            // If the adapter has no room for the mark, it knows.
            let _ = self.owner.fail(request.first);
        }
    }

    /// Gives pages to the adapter, and waits until absent ones are present, if `fault` is true. The
    /// wait ends with the region, and when the driver leaves the adapter.
    fn advise(&self, mut at: u64, end: u64, fault: bool) -> Result {
        let mut tries = 0;
        while at < end {
            if current!().signal_pending() {
                return Err(EINTR);
            }
            // So many pages are in one part of all addresses.
            let next = end.min((at / CHUNK + 1) * CHUNK);
            let given = {
                let mut guard = self.state.lock();
                let Some(state) = &mut *guard else { return Err(EINVAL) };
                if !fault && state.memory.is_new(at) {
                    Ok(None)
                } else {
                    state.memory.give(at, next - at)
                }
            };
            match given {
                Ok(Some(page)) if fault && page > at => (at, tries) = (page, 0),
                Err(error) if fault && error != EBUSY => return self.unavailable(at, error),
                Ok(Some(_)) | Err(_) if fault => {
                    if tries == TRIES {
                        return Err(EBUSY);
                    }
                    tries += 1;
                    if let Err(error) = self.wait(at, next - at) {
                        return self.unavailable(at, error);
                    }
                }
                _ => (at, tries) = (next, 0),
            }
        }
        Ok(())
    }

    /// Forgets a page that cannot be had.
    fn unavailable(&self, page: u64, error: Error) -> Result {
        if let Some(state) = &mut *self.state.lock() {
            state.memory.forget(page);
        }
        Err(error)
    }

    /// Waits until pages were faulted in.
    fn wait(&self, first: u64, count: u64) -> Result {
        let waiter = Waiter::new(None)?;
        let start =
            |state: &State| Fault::start(state.memory.whole(), first, count, waiter.clone());
        let _fault = self.state.lock().as_ref().map(start).ok_or(EINVAL)??;
        loop {
            if let Some(result) = waiter.wait()? {
                return result;
            }
            if self.owner.liveness().is_left() || self.state.lock().is_none() {
                return Err(EIO);
            }
        }
    }
}

impl WorkItem for Region {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // The lock is given up after each request, so that the region can be removed.
        let serve = || match &mut *this.state.lock() {
            Some(state) => this.serve(state),
            None => false,
        };
        if !take_some(TURN, serve) {
            return;
        }
        if let Some(state) = &*this.state.lock() {
            this.clone().requested(state.memory.paging().queue());
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
        let given = self.advise(at / PAGE, (at + length).div_ceil(PAGE), fault);
        if waits { given } else { Ok(()) }
    }
}
