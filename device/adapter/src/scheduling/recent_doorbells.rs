//! The QPs whose doorbells were rung last. A worker checks these doorbells first.
//!
//! Ringing a doorbell is two stores: to the QP's slot, and then to the summary, which shows the
//! slots to check. For a QP whose doorbell is likely to be rung again, the worker sees the first
//! store at once. The cache line of the summary, which must move between the processors twice more,
//! is handled after the work.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;

use crate::host::Host;
use crate::objects::qp::Qp;
use crate::scheduling::schedule::Schedule;

/// Number of these QPs. Each costs an idle worker a load of a cached line.
const RECENT: usize = 4;

/// The QPs whose doorbells were rung last.
#[derive(Debug)]
pub(crate) struct RecentDoorbells<H: Host> {
    qps: ArrayVec<Arc<Qp<H>>, RECENT>,
    /// The one that is replaced next.
    oldest: usize,
}

impl<H: Host> Default for RecentDoorbells<H> {
    fn default() -> Self {
        Self { qps: ArrayVec::new(), oldest: 0 }
    }
}

impl<H: Host> RecentDoorbells<H> {
    /// Records that a QP's doorbell was found by its summary.
    #[inline]
    pub(crate) fn note(&mut self, qp: &Arc<Qp<H>>) {
        if self.qps.iter().any(|recent| Arc::ptr_eq(recent, qp)) {
            return;
        }
        qp.recent.store(true, Ordering::SeqCst);
        if !self.qps.is_full() {
            self.qps.push(Arc::clone(qp));
        } else if let Some(place) = self.qps.get_mut(self.oldest) {
            *place = Arc::clone(qp);
            self.oldest = (self.oldest + 1) % RECENT;
        }
    }

    /// Schedules the QPs with new work. Returns whether there is one.
    #[inline]
    pub(crate) fn schedule_posted(&mut self, host: &H, schedule: &mut Schedule<H>) -> bool {
        let mut any = false;
        let mut dead = false;
        for qp in &self.qps {
            if qp.dead.load(Ordering::Relaxed) {
                dead = true;
            } else if qp.has_posted(host) && qp.may_send() || qp.is_marked(host) {
                schedule.activate(qp);
                any = true;
            }
        }
        if dead {
            self.qps.retain(|qp| !qp.dead.load(Ordering::Relaxed));
            self.oldest = 0;
        }
        any
    }

    /// Removes all QPs.
    pub(crate) fn clear(&mut self) {
        self.qps.clear();
    }
}
