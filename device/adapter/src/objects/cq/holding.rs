//! The operations of a holding CQ: QPs wait for room, and continue when there is some.

use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use vrnic_abi::Qpn;
use vrnic_abi::eq::Kind;
use vrnic_abi::uar::CqState;

use super::hold::{QPS_PER_CHECK, is_solicited};
use super::{Cq, Due, Inner, Overflow};
use crate::host::{DoorbellBar, Host};
use crate::objects::context::QueueContext;

/// Number of entries that were held back and are written between two checks of the slice.
const ENTRIES_PER_CHECK: usize = 16;

/// The events that are due, and the QPs to schedule, after entries that were held back have been
/// written.
#[derive(Debug, Default)]
pub struct Resumed {
    /// The events of the entries.
    pub due: ArrayVec<Due, ENTRIES_PER_CHECK>,
    /// QPs that have waited and must be scheduled.
    pub qpns: ArrayVec<Qpn, QPS_PER_CHECK>,
    /// True if there is more to do.
    pub more: bool,
}

impl Cq {
    /// Tells the guest that a holding CQ is full, unless it has been told.
    pub(super) fn tell_full<'a, H: Host + 'a>(
        &self,
        turn: &impl QueueContext<'a, H>,
        inner: &mut Inner,
    ) {
        if let Some(hold) = inner.hold.as_mut().filter(|hold| !hold.told_full) {
            hold.told_full = true;
            turn.report(Kind::CqFull, self.cqn);
        }
    }

    /// Drops the entries that are held back.
    pub(super) fn drop_held(&self, inner: &mut Inner) {
        if let Some(hold) = &mut inner.hold {
            hold.clear();
        }
        self.holds.store(false, Ordering::Release);
    }

    /// Returns whether it is a holding CQ.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.inner.lock().hold.is_some()
    }

    /// Returns whether entries are held back.
    #[inline]
    #[must_use]
    pub fn holds(&self) -> bool {
        self.holds.load(Ordering::Acquire)
    }

    /// Lets a QP wait for room, if entries are held back. It is scheduled when there is room.
    /// Returns false if there is room.
    #[must_use]
    pub fn wait(&self, qpn: Qpn) -> bool {
        if !self.holds() {
            return false;
        }
        let mut inner = self.inner.lock();
        let Some(hold) = inner.hold.as_mut().filter(|hold| hold.any()) else { return false };
        hold.wait(qpn);
        true
    }

    /// Drops the entries of a QP that has ended, if they are held back. Returns whether there may
    /// be room for others.
    #[must_use]
    pub fn forget(&self, qpn: Qpn) -> bool {
        if !self.holds() {
            return false;
        }
        if let Some(hold) = &mut self.inner.lock().hold {
            hold.forget(qpn);
        }
        true
    }

    /// Writes some of the entries that are held back, if there is room for them. When none is left,
    /// returns QPs that have waited.
    ///
    /// # Errors
    /// Returns an error if the consumer index is bad or the memory is not accessible.
    pub fn resume<'a, H: Host + 'a>(
        &self,
        turn: &impl QueueContext<'a, H>,
    ) -> Result<Resumed, Overflow> {
        let mut guard = self.inner.lock();
        let (inner, mut resumed) = (&mut *guard, Resumed::default());
        if inner.failed || inner.hold.is_none() {
            return Ok(resumed);
        }
        if self.holds() {
            if !inner.consumed(turn.host().bar_load32(self.doorbell.cq_ci())) {
                return Err(self.fail(turn, inner));
            }
            while !resumed.due.is_full()
                && inner.used() < inner.ring.size()
                && let Some(entry) = inner.hold.as_ref().and_then(|hold| hold.front(inner.pi))
            {
                let Some(due) = inner.write(turn, &entry, is_solicited(&entry)) else {
                    return Err(self.fail(turn, inner));
                };
                resumed.due.push(due);
                inner.hold.as_mut().into_iter().for_each(|hold| hold.pop());
            }
            if inner.hold.as_ref().is_some_and(|hold| hold.any()) {
                resumed.more = inner.used() < inner.ring.size();
                if !resumed.more {
                    self.tell_full(turn, inner);
                }
                return Ok(resumed);
            }
            self.holds.store(false, Ordering::Release);
            turn.host().bar_store32(self.doorbell.cq_state(), CqState::Room as u32);
            inner.set_limit();
        }
        if let Some(hold) = &mut inner.hold {
            resumed.qpns = hold.take_waiting();
            resumed.more = hold.has_waiting();
        }
        Ok(resumed)
    }

    /// Tells the guest again when few entries are left or the queue is full.
    pub fn rearm(&self, host: &impl DoorbellBar) {
        let mut inner = self.inner.lock();
        let Some(hold) = &mut inner.hold else { return };
        (hold.told_few, hold.told_full) = (false, false);
        let any = hold.any();
        inner.set_limit();
        if !any && !inner.failed {
            host.bar_store32(self.doorbell.cq_state(), CqState::Room as u32);
        }
    }
}
