//! Holding CQs that may have room for the entries that they hold back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::objects::cq::Cq;

/// These CQs of an adapter, each at most once.
#[derive(Debug, Default)]
pub(crate) struct Resuming {
    queue: Mutex<VecDeque<Arc<Cq>>>,
    any: AtomicBool,
}

impl Resuming {
    /// Adds a CQ, unless it is in the list.
    pub(crate) fn add(&self, cq: &Arc<Cq>) {
        if cq.resuming.swap(true, Ordering::AcqRel) {
            return;
        }
        self.queue.lock().push_back(Arc::clone(cq));
        self.any.store(true, Ordering::Release);
    }

    /// Returns whether there is a CQ.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Removes the next CQ, and returns it. It is added again if it must be looked at once more.
    pub(crate) fn take(&self) -> Option<Arc<Cq>> {
        let mut queue = self.queue.lock();
        let cq = queue.pop_front();
        self.any.store(!queue.is_empty(), Ordering::Release);
        if let Some(cq) = &cq {
            cq.resuming.store(false, Ordering::Release);
        }
        cq
    }

    /// Removes a CQ that is destroyed.
    pub(crate) fn forget(&self, cq: &Cq) {
        if cq.resuming.load(Ordering::Acquire) {
            self.queue.lock().retain(|listed| !std::ptr::eq(&raw const **listed, cq));
        }
    }

    /// Removes all CQs.
    pub(crate) fn clear(&self) {
        let mut queue = self.queue.lock();
        queue.clear();
        self.any.store(false, Ordering::Release);
    }
}
