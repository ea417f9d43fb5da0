//! Completion queues.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arrayvec::ArrayVec;
use parking_lot::Mutex;
use vrnic_abi::admin::CqRecord;
use vrnic_abi::cq::Status;
use vrnic_abi::doorbell::{Doorbell, arm_of};
use vrnic_abi::uar;
use vrnic_abi::{ContextId, Cqn, Qpn};
use vrnic_packet::Nanos;
use zerocopy::IntoBytes;

use crate::domain::Domain;
use crate::host::{DoorbellBar, HeldMemory, Host};
use crate::memory::pages::Ring;
use crate::objects::completion::Completion;
use crate::objects::context::{Caller, QueueContext};
use crate::objects::eq::EventQueue;
use crate::stats::Counter;

/// Distance in entries of the entry that is prefetched when one is written. The user reads the next
/// entry again and again while it waits for it.
const FETCHED_AHEAD: u32 = 4;

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    /// Its number.
    pub cqn: Cqn,
    /// The function to which it belongs.
    pub domain: Domain,
    /// Its context.
    pub context: ContextId,
    /// The address of its doorbell.
    pub doorbell: Doorbell,
    /// The number of QPs that complete here. A QP counts once for each of its queues.
    pub users: AtomicU32,
    /// The event queue for its events.
    pub eq: Arc<EventQueue>,
    inner: Mutex<Inner>,
    /// Numbers of the QPs that complete here.
    feeders: Mutex<BTreeSet<Qpn>>,
}

#[derive(Debug)]
struct Inner {
    ring: Ring,
    pi: u32,
    /// The user's consumer index as last read. It must be between its previous value and
    /// [`Self::pi`]; any other value is an error.
    ci: u32,
    armed: u32,
    arm_seen: u32,
    /// The index after the last solicited entry.
    solicited: Option<u32>,
    event: Option<u32>,
    failed: bool,
    /// True if it has been destroyed. Neither entries nor events are written any more.
    ended: bool,
    moderation: Moderation,
    held: Option<HeldEvent>,
    /// The time under which the adapter's list of waiting events contains this CQ, if it does.
    listed: Option<Nanos>,
}

/// The moderation of a queue's events.
#[derive(Clone, Copy, Debug, Default)]
struct Moderation {
    /// Number of completions that raise an event.
    count: u32,
    /// Maximum time for which an event waits for them.
    period: Duration,
}

/// An event that waits for more completions.
#[derive(Clone, Copy, Debug)]
struct HeldEvent {
    /// Number of completions so far.
    count: u32,
    /// The time at which the event is due in any case.
    until: Nanos,
}

/// Says whether a completion raises an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// No.
    No,
    /// Yes; [`Cq::fire`] reports it.
    Now,
    /// The event waits for more completions, and must be added to the list of waiting events.
    Later {
        /// The time at which it is due.
        due: Nanos,
        /// The time under which the list contains the CQ already.
        listed: Option<Nanos>,
    },
}

/// The state of a waiting event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It waits until this time.
    Until(Nanos),
    /// It is due.
    Due,
    /// It has been reported.
    Gone,
}

/// The queue has no room for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// This entry is the first one without room.
    Now,
    /// It has failed at an earlier entry.
    Earlier,
}

impl Cq {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(
        cqn: Cqn,
        domain: Domain,
        context: ContextId,
        doorbell: Doorbell,
        eq: Arc<EventQueue>,
        ring: Ring,
    ) -> Self {
        Self {
            cqn,
            domain,
            context,
            doorbell,
            users: AtomicU32::new(0),
            eq,
            inner: Mutex::new(Inner::new(ring)),
            feeders: Mutex::default(),
        }
    }

    /// Records that a QP completes here.
    pub fn attach(&self, qpn: Qpn) {
        self.feeders.lock().insert(qpn);
    }

    /// Records that a QP does not complete here any more.
    pub fn detach(&self, qpn: Qpn) {
        self.feeders.lock().remove(&qpn);
    }

    /// Returns the numbers of QPs that complete here, from `first` on, in ascending order, at most
    /// `count` of them.
    pub fn feeders<const MAX: usize>(&self, first: Qpn, count: usize) -> ArrayVec<Qpn, MAX> {
        self.feeders.lock().range(first..).take(count.min(MAX)).copied().collect()
    }

    /// Writes an entry. Returns whether an event is due.
    ///
    /// # Errors
    /// Returns an error if the queue is full, has been full, or its memory is not accessible.
    #[inline]
    pub fn push<'a, H: Host + 'a>(
        &self,
        turn: &impl QueueContext<'a, H>,
        completion: &Completion,
    ) -> Result<Due, Overflow> {
        let mut inner = self.inner.lock();
        if inner.failed {
            return Err(Overflow::Earlier);
        }
        let mut room = inner.used() < inner.ring.size();
        if !room {
            // The user's index is read only when necessary, because its cache line moves between
            // two processors.
            let ci = turn.host().bar_load32(self.doorbell.cq_ci());
            room = inner.consumed(ci) && inner.used() < inner.ring.size();
        }
        let entry = completion.entry(inner.pi, turn.now());
        let addr = inner.ring.addr(inner.pi).filter(|_| room);
        let written = addr.is_some_and(|addr| turn.memory().write(addr, entry.as_bytes()).is_ok());
        if !written {
            inner.failed = true;
            turn.step(Counter::CqOverflows);
            let (pi, ci, size) = (inner.pi, inner.ci, inner.ring.size());
            turn.warn(|name| {
                tracing::warn!(
                    function = name,
                    cqn = %self.cqn,
                    pi,
                    ci,
                    size,
                    "the completion queue has failed: it is full, or its consumer index or its memory is bad"
                );
            });
            return Err(Overflow::Now);
        }
        inner.pi = inner.pi.wrapping_add(1);
        // The user has read the next entries, so their lines are in another processor's cache.
        if let Some(addr) = inner.ring.addr(inner.pi.wrapping_add(FETCHED_AHEAD)) {
            turn.memory().fetch_for_write(addr);
        }
        turn.step(Counter::Cqes);
        let solicited = completion.solicited || completion.status != Status::Success;
        if solicited {
            inner.solicited = Some(inner.pi);
        }
        let due = match inner.armed {
            uar::ARM_NEXT => true,
            uar::ARM_SOLICITED => solicited,
            _ => false,
        };
        if due {
            inner.armed = 0;
        }
        Ok(inner.moderate(due, || turn.now()))
    }

    /// Returns a snapshot for inspection.
    #[must_use]
    pub fn record(&self, host: &impl DoorbellBar) -> CqRecord {
        let inner = self.inner.lock();
        CqRecord {
            cqn: self.cqn,
            context: self.context,
            eqn: self.eq.eqn,
            users: self.users.load(Ordering::Relaxed).into(),
            uar: self.doorbell.uar(),
            slot: self.doorbell.slot(),
            size: inner.ring.size().into(),
            produced: inner.pi.into(),
            consumed: host.bar_load32(self.doorbell.cq_ci()).into(),
            armed: inner.armed.into(),
            failed: u32::from(inner.failed).into(),
            ..CqRecord::default()
        }
    }

    /// Sets the interrupt moderation: see [`vrnic_abi::admin::ModifyCq`].
    pub fn set_moderation(&self, count: u16, period_us: u16) {
        let (count, period) = (count.into(), Duration::from_micros(period_us.into()));
        self.inner.lock().moderation = Moderation { count, period };
    }

    /// Continues in another ring. Returns the index of the first entry there. Returns `None`
    /// without a change if the ring has no room for the entries that wait for the user, or if the
    /// queue has failed.
    pub fn resize(&self, host: &impl DoorbellBar, ring: Ring) -> Option<u32> {
        let mut inner = self.inner.lock();
        let ci = host.bar_load32(self.doorbell.cq_ci());
        if inner.failed || !inner.consumed(ci) || inner.used() > ring.size() {
            return None;
        }
        let old = std::mem::replace(&mut inner.ring, ring);
        let first = inner.pi;
        drop(inner);
        // Dropped without the lock, because the page table of the old ring may be long.
        drop(old);
        Some(first)
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.inner.lock().ring.size()
    }

    /// Checks whether an event still waits.
    #[must_use]
    pub fn release(&self, now: Nanos) -> Held {
        let mut inner = self.inner.lock();
        match inner.held {
            Some(HeldEvent { until, .. }) if until > now => {
                inner.listed = Some(until);
                return Held::Until(until);
            }
            _ => inner.listed = None,
        }
        if inner.held.take().is_some() { Held::Due } else { Held::Gone }
    }

    /// Removes the time under which the adapter's list of waiting events contains this CQ.
    pub fn unlist(&self) -> Option<Nanos> {
        self.inner.lock().listed.take()
    }

    /// Checks the doorbell slot for an arm request. Returns whether there was one.
    pub fn check_arm<H: Host>(&self, caller: &Caller<'_, H>) -> bool {
        let mut inner = self.inner.lock();
        let arm = arm_of(caller.host.bar_load64(self.doorbell.cq_ci_and_arm()));
        if arm == inner.arm_seen {
            return false;
        }
        inner.arm_seen = arm;
        // The guest stores the request after the index that belongs to it.
        let seen = caller.host.bar_load32(self.doorbell.cq_seen());
        let size = inner.ring.size();
        let ahead = |index: u32| (1..=size).contains(&index.wrapping_sub(seen));
        inner.armed = arm & uar::ARM_KIND_MASK;
        let due = match inner.armed {
            uar::ARM_NEXT => ahead(inner.pi),
            uar::ARM_SOLICITED => inner.solicited.is_some_and(ahead),
            _ => false,
        };
        if due {
            inner.armed = 0;
            // This event also covers one that waits.
            inner.held = None;
            drop(inner);
            self.fire(caller);
        }
        true
    }

    /// Ends the queue. On return neither entries nor events are written for it any more, even if
    /// other objects still refer to it.
    pub fn end(&self) {
        let mut inner = self.inner.lock();
        (inner.ended, inner.failed, inner.held) = (true, true, None);
    }

    /// Reports an event that is due.
    pub fn fire<H: Host>(&self, caller: &Caller<'_, H>) {
        let mut inner = self.inner.lock();
        if inner.ended {
            return;
        }
        caller.stats.step(Counter::CompletionEvents);
        inner.event = self.eq.push_completion(caller, self.cqn, inner.event);
    }
}

impl Inner {
    fn new(ring: Ring) -> Self {
        Self {
            ring,
            pi: 0,
            ci: 0,
            armed: 0,
            arm_seen: 0,
            solicited: None,
            event: None,
            failed: false,
            ended: false,
            moderation: Moderation::default(),
            held: None,
            listed: None,
        }
    }

    /// Returns the number of entries that the user has not consumed, by its last known index.
    #[inline]
    fn used(&self) -> u32 {
        self.pi.wrapping_sub(self.ci)
    }

    /// Updates the user's index. Returns false for an invalid one: before the previous index, or
    /// beyond the last written entry.
    #[inline]
    fn consumed(&mut self, ci: u32) -> bool {
        let sound = self.pi.wrapping_sub(ci) <= self.used();
        if sound {
            self.ci = ci;
        }
        sound
    }

    /// Decides what to do after a completion if an event is due or waits already.
    #[inline]
    fn moderate(&mut self, due: bool, now: impl FnOnce() -> Nanos) -> Due {
        let Moderation { count, period } = self.moderation;
        let held = match self.held {
            Some(held) => HeldEvent { count: held.count + 1, ..held },
            None if !due => return Due::No,
            None if count < 2 || period.is_zero() => return Due::Now,
            None => HeldEvent { count: 1, until: now().plus(period) },
        };
        if held.count >= count {
            self.held = None;
            return Due::Now;
        }
        self.held = Some(held);
        let due = held.until;
        match self.listed {
            Some(listed) if listed <= due => Due::No,
            listed => {
                self.listed = Some(due);
                Due::Later { due, listed }
            }
        }
    }
}
