//! Event queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use parking_lot::Mutex;
use vrnic_abi::admin::EqRecord;
use vrnic_abi::doorbell::Doorbell;
use vrnic_abi::eq::{Eqe, Kind};
use vrnic_abi::{Cqn, Eqn};
use vrnic_faults::Site;
use zerocopy::IntoBytes;

use crate::host::{DoorbellBar, HeldMemory, Host, Interrupts};
use crate::memory::pages::Ring;
use crate::objects::context::Caller;
use crate::objects::faults::injection::EventPlace;
use crate::objects::held_events::{HeldEvent, HeldEvents, Oldest, Subject};
use crate::stats::Counter;

/// Maximum number of held events that are moved in one poll.
const EVENTS_PER_POLL: usize = 64;

/// An event queue.
#[derive(Debug)]
pub struct EventQueue {
    /// The number of the event queue; 0 is the asynchronous one.
    pub eqn: Eqn,
    /// The MSI-X vector of the event queue.
    pub vector: u16,
    /// The address of its doorbell, in UAR 0.
    pub doorbell: Doorbell,
    /// The number of CQs bound to it.
    pub users: AtomicU32,
    ring: Ring,
    inner: Mutex<Inner>,
    holding: AtomicBool,
    /// Set together with `holding`, so that one flag covers all queues of the adapter.
    any_holding: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Inner {
    pi: u32,
    /// For each place of the ring, the CQ whose completion event was last written there, or zero.
    cqns: Vec<Cqn>,
    held: HeldEvents,
    /// True after the end of the queue: no event is written or held any more.
    ended: bool,
}

impl EventQueue {
    /// Creates an empty queue, which sets `any_holding` when it holds events.
    #[must_use]
    pub fn new(
        eqn: Eqn,
        vector: u16,
        doorbell: Doorbell,
        ring: Ring,
        any_holding: Arc<AtomicBool>,
    ) -> Self {
        let inner = Inner { cqns: vec![Cqn::default(); ring.size() as usize], ..Inner::default() };
        Self {
            eqn,
            vector,
            doorbell,
            users: AtomicU32::new(0),
            ring,
            inner: Mutex::new(inner),
            holding: AtomicBool::new(false),
            any_holding,
        }
    }

    /// Reports an event, now or as soon as there is room and its interrupt may be raised.
    pub fn push<H: Host>(&self, caller: &Caller<'_, H>, kind: Kind, id: u32) {
        if self.is_taken(caller, kind, id) {
            return;
        }
        let mut inner = self.inner.lock();
        if inner.ended || inner.held.is_empty() && self.write(caller, &mut inner, kind, id) {
            return;
        }
        if inner.held.push(kind, id) {
            self.hold(caller.host);
        } else {
            caller.warn(|| {
                tracing::warn!(
                    eqn = %self.eqn,
                    ?kind,
                    id,
                    "an event was dropped, because the guest does not read its event queue"
                );
            });
        }
    }

    /// Reports a completion event of CQ `cqn`, unless its last one, at `position`, has not been
    /// consumed. Returns the position of the event by which the guest learns of the completion.
    pub fn push_completion<H: Host>(
        &self,
        caller: &Caller<'_, H>,
        cqn: Cqn,
        position: Option<u32>,
    ) -> Option<u32> {
        if self.is_taken(caller, Kind::Completion, cqn.get()) {
            return None;
        }
        let mut inner = self.inner.lock();
        if inner.ended {
            return None;
        }
        // The guest publishes its index before it checks the CQ, and the CQE was written before
        // this point. So at least one of the two sees the other's store.
        fence(Ordering::SeqCst);
        let ci = caller.host.bar_load32(self.doorbell.eq_ci());
        if let Some(position) = position
            && self.waits(&inner, position, ci, cqn)
        {
            return Some(position);
        }
        if inner.held.is_empty() {
            let position = inner.pi;
            if self.write(caller, &mut inner, Kind::Completion, cqn.get()) {
                return Some(position);
            }
        }
        if inner.held.push_completion(cqn) {
            self.hold(caller.host);
        }
        None
    }

    /// Returns whether a rule for faults has taken the event away, or holds it back.
    #[inline]
    fn is_taken<H: Host>(&self, caller: &Caller<'_, H>, kind: Kind, id: u32) -> bool {
        let faults = caller.faults_at(Site::Event);
        let place = EventPlace { eqn: self.eqn, vector: self.vector };
        faults.is_some_and(|(injection, here)| injection.takes_event(here, place, kind, id))
    }

    /// Returns whether the entry at `position` is an event of this CQ that has not been consumed.
    /// Indices wrap around; `cqns` distinguishes a position from the same place in an earlier
    /// round.
    fn waits(&self, inner: &Inner, position: u32, ci: u32, cqn: Cqn) -> bool {
        let unread = inner.pi.wrapping_sub(ci);
        let owner = inner.cqns.get(self.place(position));
        unread <= self.ring.size() && position.wrapping_sub(ci) < unread && owner == Some(&cqn)
    }

    /// Returns the place in the ring of an index.
    fn place(&self, index: u32) -> usize {
        (index & (self.ring.size() - 1)) as usize
    }

    /// Moves some held events into the queue while there is room, and drops those that are
    /// obsolete. Returns the number of events moved or dropped.
    pub fn release<H: Host>(&self, caller: &Caller<'_, H>) -> usize {
        if !self.holding.load(Ordering::Acquire) {
            return 0;
        }
        let mut inner = self.inner.lock();
        let mut moved = 0;
        while moved < EVENTS_PER_POLL
            && let Some(Oldest { event: HeldEvent { kind, id }, wanted }) = inner.held.first()
        {
            if wanted && !self.write(caller, &mut inner, kind, id) {
                break;
            }
            inner.held.pop();
            moved += 1;
        }
        self.holding.store(!inner.held.is_empty(), Ordering::Release);
        moved
    }

    /// Drops held events of an object that ends.
    pub fn forget(&self, subject: Subject) {
        if self.holding() {
            self.inner.lock().held.forget(subject);
        }
    }

    /// Ends the queue. On return nothing is written to it any more, even if other objects still
    /// refer to it.
    pub fn end(&self) {
        let mut inner = self.inner.lock();
        *inner = Inner { ended: true, ..Inner::default() };
        self.holding.store(false, Ordering::Release);
    }

    /// Records that events are held, and wakes a worker, which tries again until there is room. All
    /// workers may be asleep, because any thread may have reported the event.
    fn hold(&self, host: &impl Interrupts) {
        self.holding.store(true, Ordering::SeqCst);
        self.any_holding.store(true, Ordering::SeqCst);
        host.wake(0);
    }

    /// Returns a snapshot for inspection.
    #[must_use]
    pub fn record(&self, host: &impl DoorbellBar) -> EqRecord {
        EqRecord {
            eqn: self.eqn,
            vector: u32::from(self.vector).into(),
            cqs: self.users.load(Ordering::Relaxed).into(),
            size: self.ring.size().into(),
            produced: self.inner.lock().pi.into(),
            consumed: host.bar_load32(self.doorbell.eq_ci()).into(),
        }
    }

    /// Returns whether events are held.
    #[must_use]
    pub fn holding(&self) -> bool {
        self.holding.load(Ordering::Acquire)
    }

    /// Writes an entry. Raises the vector if the guest has consumed all entries before it. Returns
    /// false if the queue is full, its memory is not accessible, or the interrupt must wait for the
    /// ceiling of the function.
    ///
    /// Otherwise the guest reads this entry without an interrupt: the guest publishes its index,
    /// with a full barrier, before it checks the next entry, and this function writes the entry,
    /// with a full barrier, before it reads the index.
    fn write<H: Host>(
        &self,
        caller: &Caller<'_, H>,
        inner: &mut Inner,
        kind: Kind,
        id: u32,
    ) -> bool {
        let ci = caller.host.bar_load32(self.doorbell.eq_ci());
        let waits = || caller.pace.next_interrupt(|| caller.host.now()).is_some();
        if inner.pi.wrapping_sub(ci) >= self.ring.size() || ci == inner.pi && waits() {
            return false;
        }
        let eqe = Eqe::new(kind, id, inner.pi);
        let Some(addr) = self.ring.addr(inner.pi) else { return false };
        if let Err(fault) = caller.host.hold(caller.lane).write(addr, eqe.as_bytes()) {
            caller.warn(|| {
                tracing::warn!(eqn = %self.eqn, %fault, "the event queue cannot be written");
            });
            return false;
        }
        let place = self.place(inner.pi);
        if let Some(owner) = inner.cqns.get_mut(place) {
            *owner = if kind == Kind::Completion { Cqn::new(id) } else { Cqn::default() };
        }
        fence(Ordering::SeqCst);
        if caller.host.bar_load32(self.doorbell.eq_ci()) == inner.pi {
            caller.stats.step(Counter::Interrupts);
            caller.pace.count_interrupt(|| caller.host.now());
            caller.raise(self.vector);
        }
        inner.pi = inner.pi.wrapping_add(1);
        true
    }
}
