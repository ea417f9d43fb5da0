//! CQs that have failed, and the QPs that must end because of it. There may be tens of thousands,
//! so each poll ends a few of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;
use parking_lot::Mutex;

use crate::objects::cq::Cq;
use vrnic_abi::Qpn;

/// Maximum number of QPs that are ended between two checks of the slice.
pub(crate) const MAX_FEEDERS: usize = 4;

/// A failed CQ, and the numbers of some QPs that use it.
type Feeders = (Arc<Cq>, ArrayVec<Qpn, MAX_FEEDERS>);

/// The CQs of an adapter that have failed, each with the number of the next QP to end.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    queue: Mutex<VecDeque<(Arc<Cq>, Qpn)>>,
    any: AtomicBool,
}

impl Failing {
    /// Adds a CQ, so that the QPs that use it are ended.
    pub(crate) fn add(&self, cq: &Arc<Cq>) {
        self.queue.lock().push_back((Arc::clone(cq), Qpn::default()));
        self.any.store(true, Ordering::Release);
    }

    /// Returns whether there are more QPs to end.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Returns the next QPs to end, at most `count`.
    pub(crate) fn take(&self, count: usize) -> Option<Feeders> {
        let mut queue = self.queue.lock();
        let (cq, next) = queue.front_mut()?;
        let qpns: ArrayVec<Qpn, MAX_FEEDERS> = cq.feeders(*next, count);
        let cq = Arc::clone(cq);
        match qpns.last() {
            Some(last) if qpns.len() == count => *next = Qpn::new(last.get() + 1),
            _ => drop(queue.pop_front()),
        }
        self.any.store(!queue.is_empty(), Ordering::Release);
        Some((cq, qpns))
    }

    /// Removes all CQs.
    pub(crate) fn clear(&self) {
        let mut queue = self.queue.lock();
        queue.clear();
        self.any.store(false, Ordering::Release);
    }
}
