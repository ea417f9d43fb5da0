//! CQs that take no more entries, and the QPs that end for it: a few in each poll, since there may
//! be tens of thousands.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;
use parking_lot::Mutex;

use crate::objects::cq::Cq;
use vrnic_abi::Qpn;

/// QPs that end between two looks at the slice.
const FEW: usize = 16;

/// A failed CQ, and the numbers of some QPs that feed it.
type Feeders = (Arc<Cq>, ArrayVec<Qpn, FEW>);

/// The CQs of an adapter that have failed, each with the number of the QP that comes next.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    queue: Mutex<VecDeque<(Arc<Cq>, Qpn)>>,
    any: AtomicBool,
}

impl Failing {
    /// The QPs that feed `cq` are to end.
    pub(crate) fn add(&self, cq: &Arc<Cq>) {
        self.queue.lock().push_back((Arc::clone(cq), Qpn::default()));
        self.any.store(true, Ordering::Release);
    }

    /// Returns whether there are more.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Takes the QPs that come next.
    pub(crate) fn take(&self) -> Option<Feeders> {
        let mut queue = self.queue.lock();
        let (cq, next) = queue.front_mut()?;
        let few: ArrayVec<Qpn, FEW> = cq.feeders(*next);
        let cq = Arc::clone(cq);
        match few.last() {
            Some(last) if few.is_full() => *next = Qpn::new(last.get() + 1),
            _ => drop(queue.pop_front()),
        }
        self.any.store(!queue.is_empty(), Ordering::Release);
        Some((cq, few))
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        let mut queue = self.queue.lock();
        queue.clear();
        self.any.store(false, Ordering::Release);
    }
}
