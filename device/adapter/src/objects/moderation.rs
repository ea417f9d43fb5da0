//! Interrupt moderation: events of CQs that wait for more completions, or for a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use parking_lot::Mutex;
use vrnic_packet::Nanos;

use crate::objects::cq::{Cq, Held};
use vrnic_abi::Cqn;

/// Number of CQs that are handled between two checks of the slice.
const CQS_PER_CHECK: usize = 16;
/// The value of [`Moderation::first`] if no event waits.
const NEVER: u64 = u64::MAX;

/// The CQs of an adapter with a waiting event.
#[derive(Debug)]
pub(crate) struct Moderation {
    /// The CQs by the time at which to check them, and by number.
    waiting: Mutex<Waiting>,
    /// The time at which the first event is due, for a check without the lock.
    first: AtomicU64,
}

/// The result of a check of the waiting events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fired {
    /// True if one of them was due.
    pub(crate) any: bool,
    /// The time at which the next one is due.
    pub(crate) next: Option<Nanos>,
}

type Waiting = BTreeMap<(Nanos, Cqn), Arc<Cq>>;

impl Default for Moderation {
    fn default() -> Self {
        Self { waiting: Mutex::default(), first: AtomicU64::new(NEVER) }
    }
}

impl Moderation {
    /// Adds `cq`, whose event waits until `due`. `listed` is the time under which it is in the
    /// list, if it is.
    pub(crate) fn add(&self, cq: &Arc<Cq>, due: Nanos, listed: Option<Nanos>) {
        let mut waiting = self.waiting.lock();
        if let Some(listed) = listed {
            waiting.remove(&(listed, cq.cqn));
        }
        waiting.insert((due, cq.cqn), Arc::clone(cq));
        self.note_first(&waiting);
    }

    /// Calls `fire` for some of the CQs whose event is due.
    #[inline]
    pub(crate) fn fire_due(&self, now: impl FnOnce() -> Nanos, mut fire: impl FnMut(&Cq)) -> Fired {
        let first = self.first.load(Ordering::Relaxed);
        if first == NEVER {
            return Fired::default();
        }
        let now = now();
        if now < Nanos(first) {
            return Fired { any: false, next: Some(Nanos(first)) };
        }
        // Called without the lock: an event may take long, and other workers may want to add some.
        self.take(now).iter().for_each(|cq| fire(cq));
        let next = Some(self.first.load(Ordering::Relaxed)).filter(|first| *first != NEVER);
        Fired { any: true, next: next.map(Nanos) }
    }

    /// Removes some of the CQs whose event is due, and returns them.
    fn take(&self, now: Nanos) -> ArrayVec<Arc<Cq>, CQS_PER_CHECK> {
        let mut waiting = self.waiting.lock();
        let mut due = ArrayVec::new();
        for _ in 0..CQS_PER_CHECK {
            let Some(entry) = waiting.first_entry().filter(|entry| entry.key().0 <= now) else {
                break;
            };
            let cq = entry.remove();
            match cq.release(now) {
                Held::Until(at) => drop(waiting.insert((at, cq.cqn), cq)),
                Held::Due => due.push(cq),
                Held::Gone => {}
            }
        }
        self.note_first(&waiting);
        due
    }

    /// Removes a CQ that is destroyed.
    pub(crate) fn forget(&self, cq: &Cq) {
        let mut waiting = self.waiting.lock();
        if let Some(listed) = cq.unlist() {
            waiting.remove(&(listed, cq.cqn));
            self.note_first(&waiting);
        }
    }

    /// Removes all CQs.
    pub(crate) fn clear(&self) {
        let mut waiting = self.waiting.lock();
        waiting.clear();
        self.note_first(&waiting);
    }

    fn note_first(&self, waiting: &Waiting) {
        let first = waiting.first_key_value().map_or(NEVER, |((due, _), _)| due.0);
        self.first.store(first, Ordering::Release);
    }
}
