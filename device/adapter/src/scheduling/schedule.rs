//! The schedule of a worker: QPs with work, and QPs that wait for a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::host::Host;
use crate::objects::qp::Qp;
use vrnic_abi::Qpn;

/// Timers that are looked at in one poll.
const FEW: usize = 64;

/// The worker's own list of work; its lock is held for the length of a poll.
#[derive(Debug)]
pub(crate) struct Schedule<H: Host> {
    active: VecDeque<Arc<Qp<H>>>,
    /// By time and QP number; a QP has one timer at most ([`Qp::timer`]).
    timers: BTreeMap<(u64, Qpn), Arc<Qp<H>>>,
}

impl<H: Host> Default for Schedule<H> {
    fn default() -> Self {
        Self { active: VecDeque::new(), timers: BTreeMap::new() }
    }
}

impl<H: Host> Schedule<H> {
    /// Gives a QP a turn, unless it waits for one already.
    #[inline]
    pub(crate) fn activate(&mut self, qp: &Arc<Qp<H>>) {
        if !qp.queued.swap(true, Ordering::AcqRel) {
            self.active.push_back(Arc::clone(qp));
        }
    }

    /// Takes over a QP that another thread has marked as queued.
    pub(crate) fn adopt(&mut self, qp: Arc<Qp<H>>) {
        if qp.queued.load(Ordering::Acquire) {
            self.active.push_back(qp);
        }
    }

    /// The QP whose turn it is. What rings from now on queues it again.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Arc<Qp<H>>> {
        let qp = self.active.pop_front()?;
        qp.queued.store(false, Ordering::Release);
        Some(qp)
    }

    /// Gives a QP a turn at `at`, or earlier if its timer says so.
    pub(crate) fn set_timer(&mut self, at: u64, qp: Arc<Qp<H>>) {
        let set = qp.timer.load(Ordering::Relaxed);
        if set != 0 && set <= at {
            return;
        }
        self.timers.remove(&(set, qp.qpn));
        let at = at.max(1);
        // Sequentially consistent, as is the destroyer's look: it finds the timer, or this finds
        // the QP dead.
        qp.timer.store(at, Ordering::SeqCst);
        if qp.dead.load(Ordering::SeqCst) {
            qp.timer.store(0, Ordering::Relaxed);
            return;
        }
        self.timers.insert((at, qp.qpn), qp);
    }

    /// Ends the timer of a QP.
    pub(crate) fn clear_timer(&mut self, qp: &Qp<H>) {
        let set = qp.timer.swap(0, Ordering::Relaxed);
        self.timers.remove(&(set, qp.qpn));
    }

    /// Activates QPs whose time has come, a few of them; whether there was one.
    pub(crate) fn run_timers(&mut self, now: impl FnOnce() -> u64) -> bool {
        if self.timers.is_empty() {
            return false;
        }
        let now = now();
        let mut any = false;
        for _ in 0..FEW {
            let Some(entry) = self.timers.first_entry().filter(|entry| entry.key().0 <= now) else {
                break;
            };
            let qp = entry.remove();
            qp.timer.store(0, Ordering::Relaxed);
            self.activate(&qp);
            any = true;
        }
        any
    }

    /// When the first timer is due.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Returns whether a QP waits for its turn.
    pub(crate) fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.active.clear();
        self.timers.clear();
    }
}
