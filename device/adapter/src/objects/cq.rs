//! Completion queues.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrayvec::ArrayVec;
use parking_lot::Mutex;
use vrnic_abi::admin::CqRecord;
use vrnic_abi::cq::Status;
use vrnic_abi::doorbell::{Doorbell, arm_of};
use vrnic_abi::uar;
use vrnic_abi::{ContextId, Cqn, Qpn};
use zerocopy::IntoBytes;

use crate::host::{DoorbellBar, HeldMemory, Host};
use crate::memory::pages::Ring;
use crate::objects::completion::Completion;
use crate::objects::context::{Caller, QueueContext};
use crate::objects::eq::EventQueue;
use crate::stats::Counter;

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    /// Its number.
    pub cqn: Cqn,
    /// Its context.
    pub context: ContextId,
    /// The place of its doorbell.
    pub doorbell: Doorbell,
    /// QPs that complete here, counted once for each queue.
    pub users: AtomicU32,
    /// The queue of its events.
    pub eq: Arc<EventQueue>,
    inner: Mutex<Inner>,
    /// Numbers of the QPs that complete here.
    feeders: Mutex<BTreeSet<Qpn>>,
}

#[derive(Debug)]
struct Inner {
    ring: Ring,
    pi: u32,
    /// The user's index as last read. It leads from [`Self::ci`] at that time to [`Self::pi`]: what
    /// else the user says is a fault.
    ci: u32,
    armed: u32,
    arm_seen: u32,
    /// One past the last solicited entry.
    solicited: Option<u32>,
    event: Option<u32>,
    failed: bool,
    /// True once it has been destroyed: neither entries nor events are written any more.
    ended: bool,
    moderation: Moderation,
    held: Option<HeldEvent>,
    /// The time with which the adapter's list of waiting events has this CQ, if it does.
    listed: Option<u64>,
}

/// The moderation of a queue's events.
#[derive(Clone, Copy, Debug, Default)]
struct Moderation {
    /// Completions that must come for an event.
    count: u32,
    /// Nanoseconds that the event may wait for them.
    period: u64,
}

/// An event that waits.
#[derive(Clone, Copy, Debug)]
struct HeldEvent {
    /// Completions so far.
    count: u32,
    /// The time when it is due in any case.
    until: u64,
}

/// True if a completion is to raise an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// No.
    No,
    /// Yes; [`Cq::fire`] reports it.
    Now,
    /// It waits for more, and has to be put on the list of those that wait.
    Later {
        /// Until then.
        due: u64,
        /// The time with which the list has the CQ already.
        listed: Option<u64>,
    },
}

/// Result for an event that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It waits until this time.
    Until(u64),
    /// Its time has come.
    Due,
    /// The event has been reported.
    Gone,
}

/// The queue takes no entry any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// Since this entry.
    Now,
    /// Since an earlier one.
    Earlier,
}

impl Cq {
    /// An empty queue.
    #[must_use]
    pub fn new(
        cqn: Cqn,
        context: ContextId,
        doorbell: Doorbell,
        eq: Arc<EventQueue>,
        ring: Ring,
    ) -> Self {
        Self {
            cqn,
            context,
            doorbell,
            users: AtomicU32::new(0),
            eq,
            inner: Mutex::new(Inner::new(ring)),
            feeders: Mutex::default(),
        }
    }

    /// A QP completes here from now on.
    pub fn attach(&self, qpn: Qpn) {
        self.feeders.lock().insert(qpn);
    }

    /// A QP does not complete here any more.
    pub fn detach(&self, qpn: Qpn) {
        self.feeders.lock().remove(&qpn);
    }

    /// Numbers of QPs that complete here, from `first` on in ascending order.
    pub fn feeders<const FEW: usize>(&self, first: Qpn) -> ArrayVec<Qpn, FEW> {
        self.feeders.lock().range(first..).take(FEW).copied().collect()
    }

    /// Writes an entry; tells whether an event is due.
    ///
    /// # Errors
    /// When the queue is full, or was, or its memory is gone.
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
            // The user's index is read when it matters: its line moves between two processors.
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

    /// Sets moderation: see [`vrnic_abi::admin::ModifyCq`].
    pub fn set_moderation(&self, count: u16, period_us: u16) {
        let (count, period) = (count.into(), u64::from(period_us) * 1000);
        self.inner.lock().moderation = Moderation { count, period };
    }

    /// Continues in another ring; returns the index of the first entry there. `None` when more
    /// entries wait for the user than that has room for, or the queue has failed: all is as before
    /// then.
    pub fn resize(&self, host: &impl DoorbellBar, ring: Ring) -> Option<u32> {
        let mut inner = self.inner.lock();
        let ci = host.bar_load32(self.doorbell.cq_ci());
        if inner.failed || !inner.consumed(ci) || inner.used() > ring.size() {
            return None;
        }
        let old = std::mem::replace(&mut inner.ring, ring);
        let first = inner.pi;
        drop(inner);
        // The old one's page table may be long.
        drop(old);
        Some(first)
    }

    /// Looks whether an event waits still.
    #[must_use]
    pub fn release(&self, now: u64) -> Held {
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

    /// Takes the time with which the adapter's list of waiting events has this CQ.
    pub fn unlist(&self) -> Option<u64> {
        self.inner.lock().listed.take()
    }

    /// Looks at the slot for an arm request; returns whether there was one.
    pub fn look<H: Host>(&self, caller: &Caller<'_, H>) -> bool {
        let mut inner = self.inner.lock();
        let arm = arm_of(caller.host.bar_load64(self.doorbell.cq_ci_and_arm()));
        if arm == inner.arm_seen {
            return false;
        }
        inner.arm_seen = arm;
        // The request's store came after that of the index it goes with.
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
            // One that waits is told with this one.
            inner.held = None;
            drop(inner);
            self.fire(caller);
        }
        true
    }

    /// Ends the queue: on return neither entries nor events are written for it any more, even
    /// if other objects still refer to it.
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

    /// Entries that the user has not given back, as far as we know.
    #[inline]
    fn used(&self) -> u32 {
        self.pi.wrapping_sub(self.ci)
    }

    /// Takes the user's index over, unless it is one that there cannot be: behind what it was, or
    /// beyond what was written.
    #[inline]
    fn consumed(&mut self, ci: u32) -> bool {
        let sound = self.pi.wrapping_sub(ci) <= self.used();
        if sound {
            self.ci = ci;
        }
        sound
    }

    /// Decides what to do when an event is due, or waits already, and a completion has come.
    #[inline]
    fn moderate(&mut self, due: bool, now: impl FnOnce() -> u64) -> Due {
        let Moderation { count, period } = self.moderation;
        let held = match self.held {
            Some(held) => HeldEvent { count: held.count + 1, ..held },
            None if !due => return Due::No,
            None if count < 2 || period == 0 => return Due::Now,
            None => HeldEvent { count: 1, until: now().saturating_add(period) },
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
