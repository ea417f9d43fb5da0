//! Completion queues.
//!
//! | module | contents |
//! | --- | --- |
//! | `failing` | CQs that have failed, and the QPs that fail with them |
//! | `hold` | the entries that a full holding CQ holds back, and the QPs that wait |
//! | `holding` | the operations of a holding CQ |
//! | `moderation` | events that wait for more completions |
//! | `resuming` | holding CQs that may have room again |

pub(crate) mod failing;
mod hold;
mod holding;
mod moderation;
pub(crate) mod resuming;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use arrayvec::ArrayVec;
use parking_lot::Mutex;
use vrnic_abi::admin::CqRecord;
use vrnic_abi::cq::{Cqe, Status};
use vrnic_abi::doorbell::{Doorbell, arm_of, stronger_kind};
use vrnic_abi::eq::Kind;
use vrnic_abi::uar::{self, CqState};
use vrnic_abi::{ContextId, Cqn, Qpn};
use vrnic_packet::Nanos;
use zerocopy::IntoBytes;

use self::hold::Hold;
pub use self::holding::Resumed;
pub use self::moderation::{Due, Held};
use self::moderation::{HeldEvent, Moderation};
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
    /// The number of the CQ.
    pub cqn: Cqn,
    /// The function to which it belongs.
    pub domain: Domain,
    /// The context that the CQ belongs to.
    pub context: ContextId,
    /// The address of its doorbell.
    pub doorbell: Doorbell,
    /// The number of QPs that complete here. A QP counts once for each of its queues.
    pub users: AtomicU32,
    /// The event queue for its events.
    pub eq: Arc<EventQueue>,
    /// True while entries are held back. Only changed under the lock of `inner`.
    holds: AtomicBool,
    /// True while it is in the adapter's list of CQs that may have room again.
    pub(crate) resuming: AtomicBool,
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
    /// Once this many entries are unread by that index, the index is read again before each entry.
    limit: u32,
    armed: u32,
    arm_seen: u32,
    /// The index after the last solicited entry.
    solicited: Option<u32>,
    event: Option<u32>,
    failed: bool,
    /// True if it has been destroyed. Neither entries nor events are written any more.
    ended: bool,
    /// True if entries without room are lost.
    loses: bool,
    /// The entries without room, if it is a holding CQ.
    hold: Option<Box<Hold>>,
    moderation: Moderation,
    held: Option<HeldEvent>,
    /// The time under which the adapter's list of waiting events contains this CQ, if it does.
    listed: Option<Nanos>,
}

/// The queue has no room for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// This entry is the first one without room.
    Now,
    /// The queue has failed at an earlier entry.
    Earlier,
}

/// Says whether an entry can be written.
enum Room {
    /// The entry can be written.
    Free,
    /// There is no room, and the entry is held back.
    Full,
    /// There is no room, and the entry is lost.
    None,
    /// The queue fails: it is full, or its consumer index is bad.
    Lost,
}

/// What happens to an entry for which a queue has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The queue fails.
    Fail,
    /// The entry is lost.
    Lose,
    /// The queue holds the entry back until there is room.
    Hold {
        /// The number of free entries at which the guest gets an event; zero for none.
        few: u32,
    },
}

/// Parameters of a queue.
#[derive(Debug)]
pub struct Parts {
    /// The function to which it belongs.
    pub domain: Domain,
    /// The context that the CQ belongs to.
    pub context: ContextId,
    /// The address of its doorbell.
    pub doorbell: Doorbell,
    /// The event queue for its events.
    pub eq: Arc<EventQueue>,
    /// The ring with the CQ's entries.
    pub ring: Ring,
    /// The behaviour when the queue is full.
    pub when_full: WhenFull,
}

impl Cq {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(cqn: Cqn, parts: Parts) -> Self {
        Self {
            cqn,
            domain: parts.domain,
            context: parts.context,
            doorbell: parts.doorbell,
            users: AtomicU32::new(0),
            eq: parts.eq,
            holds: AtomicBool::new(false),
            resuming: AtomicBool::new(false),
            inner: Mutex::new(Inner::new(parts.ring, parts.when_full)),
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
        if let Some(hold) = &mut self.inner.lock().hold {
            hold.leave(qpn);
        }
    }

    /// Returns the numbers of QPs that complete here, from `first` on, in ascending order, at most
    /// `count` of them.
    pub fn feeders<const MAX: usize>(&self, first: Qpn, count: usize) -> ArrayVec<Qpn, MAX> {
        self.feeders.lock().range(first..).take(count.min(MAX)).copied().collect()
    }

    /// Writes an entry. Returns whether an event is due. A holding CQ that is full holds the entry
    /// back, and one that ignores overruns loses it.
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
        if inner.used() >= inner.limit {
            match self.room(turn, &mut inner) {
                Room::Free => {}
                Room::Full => {
                    inner.keep(completion.entry(0, turn.now()));
                    return Ok(Due::No);
                }
                Room::None => return Ok(Due::No),
                Room::Lost => return Err(self.fail(turn, &mut inner)),
            }
        }
        let entry = completion.entry(inner.pi, turn.now());
        let solicited = completion.solicited || completion.status != Status::Success;
        inner.write(turn, &entry, solicited).ok_or_else(|| self.fail(turn, &mut inner))
    }

    /// Fails the queue, as if it were full, because of a rule for faults.
    #[cold]
    pub(crate) fn overflow<'a, H: Host + 'a>(&self, turn: &impl QueueContext<'a, H>) -> Overflow {
        let mut inner = self.inner.lock();
        if inner.failed { Overflow::Earlier } else { self.fail(turn, &mut inner) }
    }

    /// Returns whether there is room for an entry by the user's index, which is read only when
    /// necessary, because its cache line moves between two processors.
    #[inline(never)]
    fn room<'a, H: Host + 'a>(&self, turn: &impl QueueContext<'a, H>, inner: &mut Inner) -> Room {
        if inner.hold.as_ref().is_some_and(|hold| hold.any()) {
            return Room::Full;
        }
        let (host, size) = (turn.host(), inner.ring.size());
        if !inner.consumed(host.bar_load32(self.doorbell.cq_ci())) {
            return Room::Lost;
        }
        if inner.used() < size {
            let unread = inner.used();
            if let Some(hold) = inner.hold.as_mut().filter(|hold| hold.is_few(unread, size)) {
                hold.told_few = true;
                inner.set_limit();
                host.bar_store32(self.doorbell.cq_state(), CqState::Few as u32);
                turn.report(Kind::CqFew, self.cqn);
            }
            return Room::Free;
        }
        if inner.hold.is_none() {
            return if inner.loses { Room::None } else { Room::Lost };
        }
        // From now on the user rings the doorbell when it has stored its index. It may have stored
        // one just before.
        host.bar_store32(self.doorbell.cq_state(), CqState::Full as u32);
        fence(Ordering::SeqCst);
        if !inner.consumed(host.bar_load32(self.doorbell.cq_ci())) {
            return Room::Lost;
        }
        if inner.used() < size {
            host.bar_store32(self.doorbell.cq_state(), CqState::Room as u32);
            return Room::Free;
        }
        self.holds.store(true, Ordering::Release);
        self.tell_full(turn, inner);
        Room::Full
    }

    /// Records that the queue has failed.
    #[cold]
    fn fail<'a, H: Host + 'a>(
        &self,
        turn: &impl QueueContext<'a, H>,
        inner: &mut Inner,
    ) -> Overflow {
        inner.failed = true;
        self.drop_held(inner);
        turn.host().bar_store32(self.doorbell.cq_state(), CqState::Failed as u32);
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
        Overflow::Now
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
            // CAST: each belongs to a work request that has been taken off its queue.
            held: inner.hold.as_ref().map_or(0, |hold| hold.len() as u32).into(),
        }
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
        inner.set_limit();
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
        if !inner.ended {
            // From now on the guest need not repeat this request with the next one.
            caller.host.bar_store32(self.doorbell.cq_taken(), arm);
        }
        // More entries than the ring has may have been consumed since.
        let pi = inner.pi;
        let unseen = pi.wrapping_sub(seen);
        let ahead = |index| unseen.cast_signed() > 0 && pi.wrapping_sub(index) < unseen;
        inner.armed = stronger_kind(inner.armed, arm & uar::ARM_KIND_MASK);
        let due = match inner.armed {
            uar::ARM_NEXT => ahead(pi),
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
        self.drop_held(&mut inner);
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
    fn new(ring: Ring, when_full: WhenFull) -> Self {
        let hold = match when_full {
            WhenFull::Hold { few } => Some(Box::new(Hold::new(few))),
            WhenFull::Fail | WhenFull::Lose => None,
        };
        let limit = hold.as_ref().map_or(ring.size(), |hold| hold.limit(ring.size()));
        Self {
            ring,
            pi: 0,
            ci: 0,
            limit,
            armed: 0,
            arm_seen: 0,
            solicited: None,
            event: None,
            failed: false,
            ended: false,
            loses: when_full == WhenFull::Lose,
            hold,
            moderation: Moderation::default(),
            held: None,
            listed: None,
        }
    }

    /// Writes an entry, for which there is room. Returns whether an event is due, or `None` if the
    /// memory is not accessible.
    #[inline]
    fn write<'a, H: Host + 'a>(
        &mut self,
        turn: &impl QueueContext<'a, H>,
        entry: &Cqe,
        solicited: bool,
    ) -> Option<Due> {
        turn.memory().write(self.ring.addr(self.pi)?, entry.as_bytes()).ok()?;
        self.pi = self.pi.wrapping_add(1);
        // The user has read the next entries, so their lines are in another processor's cache.
        if let Some(addr) = self.ring.addr(self.pi.wrapping_add(FETCHED_AHEAD)) {
            turn.memory().fetch_for_write(addr);
        }
        turn.step(Counter::Cqes);
        if solicited {
            self.solicited = Some(self.pi);
        }
        let due = match self.armed {
            uar::ARM_NEXT => true,
            uar::ARM_SOLICITED => solicited,
            _ => false,
        };
        if due {
            self.armed = 0;
        }
        Some(self.moderate(due, || turn.now()))
    }

    /// Holds an entry back.
    #[cold]
    fn keep(&mut self, entry: Cqe) {
        if let Some(hold) = &mut self.hold {
            hold.push(entry);
        }
        self.limit = 0;
    }

    /// Sets the limit by the size of the ring and by what is held back.
    fn set_limit(&mut self) {
        let size = self.ring.size();
        self.limit = self.hold.as_ref().map_or(size, |hold| hold.limit(size));
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
}
