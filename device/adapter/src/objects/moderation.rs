//! Interrupt moderation: events of CQs that wait for more completions, or for their time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use parking_lot::Mutex;

use crate::objects::cq::{Cq, Held};
use vrnic_abi::Cqn;

/// CQs that are looked at between two looks at the slice.
const FEW: usize = 16;
/// [`Moderation::first`] when none waits.
const NEVER: u64 = u64::MAX;

/// The CQs of an adapter with an event that waits.
#[derive(Debug)]
pub(crate) struct Moderation {
    /// By the time at which to look at them, and number.
    waiting: Mutex<Waiting>,
    /// When the first is due, for a look without the lock.
    first: AtomicU64,
}

/// Result of a look at the events that wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fired {
    /// True if there was one whose time had come.
    pub(crate) any: bool,
    /// When the next is due.
    pub(crate) next: Option<u64>,
}

type Waiting = BTreeMap<(u64, Cqn), Arc<Cq>>;

impl Default for Moderation {
    fn default() -> Self {
        Self { waiting: Mutex::default(), first: AtomicU64::new(NEVER) }
    }
}

impl Moderation {
    /// An event of `cq` waits until `due`; it stood in the list with the time `listed`, if any.
    pub(crate) fn add(&self, cq: &Arc<Cq>, due: u64, listed: Option<u64>) {
        let mut waiting = self.waiting.lock();
        if let Some(listed) = listed {
            waiting.remove(&(listed, cq.cqn));
        }
        waiting.insert((due, cq.cqn), Arc::clone(cq));
        self.note_first(&waiting);
    }

    /// Calls `fire` for CQs whose time has come, a few of them.
    #[inline]
    pub(crate) fn look(&self, now: impl FnOnce() -> u64, mut fire: impl FnMut(&Cq)) -> Fired {
        let first = self.first.load(Ordering::Relaxed);
        if first == NEVER {
            return Fired::default();
        }
        let now = now();
        if now < first {
            return Fired { any: false, next: Some(first) };
        }
        // Not under the lock: an event may take long, and other workers have some to add.
        self.take(now).iter().for_each(|cq| fire(cq));
        let next = Some(self.first.load(Ordering::Relaxed)).filter(|first| *first != NEVER);
        Fired { any: true, next }
    }

    /// Takes out those whose events are due, a few of them.
    fn take(&self, now: u64) -> ArrayVec<Arc<Cq>, FEW> {
        let mut waiting = self.waiting.lock();
        let mut due = ArrayVec::new();
        for _ in 0..FEW {
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

    /// Drops the event of a CQ that is destroyed.
    pub(crate) fn forget(&self, cq: &Cq) {
        let mut waiting = self.waiting.lock();
        if let Some(listed) = cq.unlist() {
            waiting.remove(&(listed, cq.cqn));
            self.note_first(&waiting);
        }
    }

    /// Drops all.
    pub(crate) fn clear(&self) {
        let mut waiting = self.waiting.lock();
        waiting.clear();
        self.note_first(&waiting);
    }

    fn note_first(&self, waiting: &Waiting) {
        let first = waiting.first_key_value().map_or(NEVER, |((due, _), _)| *due);
        self.first.store(first, Ordering::Release);
    }
}
