//! Interrupt moderation: events of CQs that wait for more completions, or for their time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::objects::cq::{Cq, Held};

/// The CQs of a function with an event that waits.
#[derive(Debug, Default)]
pub(crate) struct Moderation {
    waiting: Mutex<Vec<Arc<Cq>>>,
    any: AtomicBool,
}

impl Moderation {
    /// An event of `cq` waits from now on.
    pub(crate) fn add(&self, cq: &Arc<Cq>) {
        self.waiting.lock().push(Arc::clone(cq));
        self.any.store(true, Ordering::Release);
    }

    /// Calls `fire` for the CQs whose time has come; returns when the next will be due.
    #[inline]
    pub(crate) fn look(&self, now: impl FnOnce() -> u64, fire: impl FnMut(&Cq)) -> Option<u64> {
        if self.any.load(Ordering::Relaxed) { self.look_closely(now(), fire) } else { None }
    }

    fn look_closely(&self, now: u64, mut fire: impl FnMut(&Cq)) -> Option<u64> {
        let mut waiting = self.waiting.lock();
        let mut next: Option<u64> = None;
        waiting.retain(|cq| match cq.release(now) {
            Held::Until(at) => {
                next = Some(next.map_or(at, |earliest| earliest.min(at)));
                true
            }
            Held::Due => {
                fire(cq);
                false
            }
            Held::Gone => false,
        });
        self.any.store(!waiting.is_empty(), Ordering::Release);
        next
    }

    /// Drops the event of a CQ that is destroyed.
    pub(crate) fn forget(&self, cqn: u32) {
        self.waiting.lock().retain(|cq| cq.cqn != cqn);
    }

    /// Drops all.
    pub(crate) fn clear(&self) {
        self.waiting.lock().clear();
    }
}
