//! The schedule of a worker: QPs with work, and QPs that wait for a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::host::Host;
use crate::objects::qp::Qp;
use crate::slice::{Slice, cost};
use vrnic_abi::Qpn;
use vrnic_packet::Nanos;

/// Maximum number of timers that are handled in one poll.
const MAX_TIMERS: usize = 16;

/// A worker's own list of work. Its lock is held during a poll.
#[derive(Debug)]
pub(crate) struct Schedule<H: Host> {
    active: VecDeque<Arc<Qp<H>>>,
    /// Timers by time and QP number. A QP has at most one timer ([`Qp::timer`]).
    timers: BTreeMap<(Nanos, Qpn), Arc<Qp<H>>>,
}

impl<H: Host> Default for Schedule<H> {
    fn default() -> Self {
        Self { active: VecDeque::new(), timers: BTreeMap::new() }
    }
}

impl<H: Host> Schedule<H> {
    /// Schedules a QP, unless it is scheduled already.
    #[inline]
    pub(crate) fn activate(&mut self, qp: &Arc<Qp<H>>) {
        if !qp.queued.swap(true, Ordering::AcqRel) {
            self.active.push_back(Arc::clone(qp));
        }
    }

    /// Adds a QP that another thread has marked as queued.
    pub(crate) fn adopt(&mut self, qp: Arc<Qp<H>>) {
        if qp.queued.load(Ordering::Acquire) {
            self.active.push_back(qp);
        }
    }

    /// Returns the next QP, and removes it. A doorbell that is rung from now on schedules it again.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Arc<Qp<H>>> {
        let qp = self.active.pop_front()?;
        qp.queued.store(false, Ordering::Release);
        Some(qp)
    }

    /// Schedules a QP at the time `at`, unless its timer expires earlier.
    pub(crate) fn set_timer(&mut self, at: Nanos, qp: Arc<Qp<H>>) {
        let set = qp.timer.load(Ordering::Relaxed);
        if set != 0 && Nanos(set) <= at {
            return;
        }
        self.timers.remove(&(Nanos(set), qp.qpn));
        let at = at.max(Nanos(1));
        // Sequentially consistent, like the load of the thread that destroys the QP: either that
        // thread sees the timer, or this one sees that the QP is dead.
        qp.timer.store(at.0, Ordering::SeqCst);
        if qp.dead.load(Ordering::SeqCst) {
            qp.timer.store(0, Ordering::Relaxed);
            return;
        }
        self.timers.insert((at, qp.qpn), qp);
    }

    /// Removes the timer of a QP.
    pub(crate) fn clear_timer(&mut self, qp: &Qp<H>) {
        let set = qp.timer.swap(0, Ordering::Relaxed);
        self.timers.remove(&(Nanos(set), qp.qpn));
    }

    /// Schedules some of the QPs whose timers have expired, at least one. Returns whether there
    /// were any.
    #[inline]
    pub(crate) fn run_timers(&mut self, slice: &Slice<'_, H>) -> bool {
        !self.timers.is_empty() && self.run_expired(slice)
    }

    fn run_expired(&mut self, slice: &Slice<'_, H>) -> bool {
        let now = slice.now();
        let mut expired = false;
        for _ in 0..MAX_TIMERS {
            let Some(entry) = self.timers.first_entry().filter(|entry| entry.key().0 <= now) else {
                break;
            };
            let qp = entry.remove();
            qp.timer.store(0, Ordering::Relaxed);
            self.activate(&qp);
            expired = true;
            slice.charge(cost::TIMER);
            if slice.is_over() {
                break;
            }
        }
        expired
    }

    /// Returns the time of the first timer.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Returns whether a QP is scheduled.
    pub(crate) fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Removes all QPs.
    pub(crate) fn clear(&mut self) {
        self.active.clear();
        self.timers.clear();
    }
}
