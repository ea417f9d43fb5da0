//! The work that a poll rarely finds: QPs to end because their CQ has failed, entries that a full
//! CQ has held back, and held events.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vrnic_abi::eq::Kind;
use vrnic_packet::Nanos;

use super::rounds;
use crate::adapter::Adapter;
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::objects::cq::failing::MAX_FEEDERS;
use crate::objects::qp::Qp;
use crate::slice::{Slice, cost};

/// Interval at which held events are tried again.
const HELD_POLL: Duration = Duration::from_millis(1);
/// Number of QPs of a failed CQ that are ended between two checks of a short slice.
const SHORT_FEEDERS: usize = 1;

/// The result of work on the backlog.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worked {
    /// True if there was some.
    pub(super) any: bool,
    /// The time of the next try to move held events, if there are any.
    pub(super) next: Option<Nanos>,
}

/// The result of moving held events.
#[derive(Clone, Copy, Default)]
struct Released {
    /// True if an event was moved.
    any: bool,
    /// True if events are still held.
    held: bool,
}

impl<H: Host> Adapter<H> {
    /// Returns whether there is such work.
    #[inline]
    pub(super) fn has_backlog(&self) -> bool {
        let core = self.core();
        core.failing.any() || core.resuming.any() || self.objects.holding.load(Ordering::Relaxed)
    }

    /// Does some of this work. Begins with the event queue number `first` of the list, and sets it
    /// to the one to begin with next time.
    #[cold]
    pub(super) fn work_on_backlog(&self, first: &mut usize, slice: &Slice<'_, H>) -> Worked {
        let mut any = rounds(slice, || self.fail_feeders(slice));
        any |= rounds(slice, || self.resume_cqs(slice));
        let released = self.release_events(first, slice);
        let next = released.held.then(|| self.held_until());
        Worked { any: any | released.any, next }
    }

    /// Ends some QPs that use a CQ that has failed. Returns whether there was such a CQ.
    fn fail_feeders(&self, slice: &Slice<'_, H>) -> bool {
        if !self.core().failing.any() {
            return false;
        }
        let count = if slice.is_short() { SHORT_FEEDERS } else { MAX_FEEDERS };
        let Some((cq, qpns)) = self.core().failing.take(count) else { return true };
        let feeds =
            |qp: &Arc<Qp<H>>| [&qp.send_cq, &qp.recv_cq].iter().any(|own| Arc::ptr_eq(own, &cq));
        for qp in qpns.into_iter().filter_map(|qpn| self.qp(qpn)).filter(feeds) {
            slice.charge(cost::FAILURE);
            qp.failed(self.core(), Kind::QpFatal);
        }
        true
    }

    /// Writes some of the entries that a holding CQ holds back, or schedules some of the QPs that
    /// have waited for room in it. Returns whether there was such a CQ.
    fn resume_cqs(&self, slice: &Slice<'_, H>) -> bool {
        if !self.core().resuming.any() {
            return false;
        }
        let Some(cq) = self.core().resuming.take() else { return true };
        let tpt = self.tpt();
        let resumed = TurnContext::of_adapter(self.core(), &tpt, slice).resume(&cq);
        slice.charge(cost::REQUEST * resumed.due.len() as u64);
        for qp in resumed.qpns.into_iter().filter_map(|qpn| self.qp(qpn)) {
            slice.charge(cost::TURN);
            qp.schedule(self.core());
        }
        if resumed.more {
            self.core().resuming.add(&cq);
        }
        true
    }

    /// Returns the time at which to try again to write held events.
    fn held_until(&self) -> Nanos {
        let now = self.host().now();
        let full = now.plus(HELD_POLL);
        self.core().pace.next_interrupt(|| now).map_or(full, |next| next.min(full))
    }

    /// Moves held events into queues that have room. Begins with the queue number `first` of the
    /// list, and sets it to the one to begin with next time.
    fn release_events(&self, first: &mut usize, slice: &Slice<'_, H>) -> Released {
        let mut released = Released::default();
        if !self.objects.holding.load(Ordering::Relaxed) {
            return released;
        }
        // A queue that holds an event from now on sets this again.
        self.objects.holding.store(false, Ordering::SeqCst);
        let eqs = self.objects.active_eqs.read();
        let (before, after) = eqs.split_at(*first % eqs.len().max(1));
        for eq in after.iter().chain(before) {
            *first = first.wrapping_add(1);
            if !eq.holding() {
                continue;
            }
            let count = eq.release(&self.core().caller(slice.lane()));
            slice.charge(cost::EVENT * (count as u64 + 1));
            released.any |= count > 0;
            released.held |= eq.holding();
            if slice.is_over() {
                released = Released { any: true, held: true };
                break;
            }
        }
        if released.held {
            self.objects.holding.store(true, Ordering::Release);
        }
        released
    }
}
