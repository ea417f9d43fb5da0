//! The workers' side of a function: doorbells, turns of QPs, events that were held back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::uar;

use crate::datapath::requester;
use crate::datapath::responder;
use crate::datapath::send_queue::{self, BATCH, Turn};
use crate::datapath::sgl::{LONG_TURN, TURN};
use crate::datapath::wqe_fetch::Batch;
use crate::function::Function;
use crate::host::Host;
use crate::objects::cq::Cq;
use crate::objects::doorbell::{self, Owner, Uar};
use crate::objects::qp::Qp;
use crate::objects::srq::Srq;
use crate::scheduling::recent_doorbells::Hot;
use crate::scheduling::schedule::Schedule;
use crate::scheduling::worker_state::Bench;
use crate::stats::Counter;

/// Interval at which a QP in the error state is checked for receives to flush, because posting one
/// rings no bell: at first, and at most.
const FLUSH_POLL_NS: u64 = 1_000_000;
const FLUSH_POLL_MAX_NS: u64 = 128_000_000;
/// Interval at which held events are tried again.
const HELD_POLL_NS: u64 = 1_000_000;
/// Most turns of QPs in one poll.
const TURNS: usize = 64;

/// Result of a poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, std::cmp::Eq)]
pub struct Polled {
    /// True if anything was done; poll again soon.
    pub busy: bool,
    /// When to poll again even if nothing rings, on [`Host::now`]'s clock.
    pub deadline: Option<u64>,
}

impl<H: Host> Function<H> {
    /// Returns whether a doorbell has rung or work waits; for the look between arming and sleeping.
    /// A doorbell of another worker counts: it must be awake before this one sleeps.
    #[must_use]
    pub fn has_work(&self, worker: usize) -> bool {
        let rung = |uar: &Arc<Uar<H>>| self.host().bar_load64(summary(uar)) != 0;
        self.shards.get(worker).is_some_and(|shard| shard.has_mail())
            || self.objects.active_uars.read().iter().any(rung)
    }

    /// Does a bounded amount of the work of `worker`. One thread at a time does any; another that
    /// calls meanwhile returns with nothing done, and shall come again: it has not learned the
    /// deadline.
    pub fn poll(self: &Arc<Self>, worker: usize) -> Polled {
        let Some(shard) = self.shards.get(worker) else { return Polled::default() };
        let Some(mut bench) = shard.bench.try_lock() else {
            return Polled { busy: true, deadline: None };
        };
        let Bench { schedule, batch, hot, uars } = &mut *bench;
        let mut busy = hot.look(self.host(), schedule);
        if busy {
            self.turns(schedule, batch);
        }
        self.objects.look_at_uars(uars);
        busy |= self.doorbells(shard.groups, uars, (schedule, hot));
        busy |= shard.fetch_mail(schedule);
        busy |= schedule.run_timers(|| self.host().now());
        busy |= self.turns(schedule, batch);
        let (released, held) = self.release_events();
        let held = held.then(|| self.host().now() + HELD_POLL_NS);
        let moderated = self.moderation.look(|| self.host().now(), |cq| self.fire(cq));
        let deadline = schedule.deadline().into_iter().chain(held).chain(moderated).min();
        Polled { busy: busy | released | schedule.has_active(), deadline }
    }

    /// Takes the summaries' bits in `mask` and looks at what rang.
    #[inline]
    fn doorbells(
        &self,
        mask: u64,
        (version, uars): &(u64, Vec<Arc<Uar<H>>>),
        (schedule, hot): (&mut Schedule<H>, &mut Hot<H>),
    ) -> bool {
        let mut busy = false;
        for uar in uars {
            let rung = self.host().bar_load64(summary(uar));
            if rung == 0 {
                continue;
            }
            if rung & !mask != 0 {
                self.rouse(rung & !mask);
            }
            if rung & mask != 0 {
                busy = true;
                let groups = self.host().bar_take64(summary(uar), mask);
                if self.objects.has_uars(*version) {
                    self.look(uar, groups, (schedule, hot));
                } else if let Some(uar) = self.objects.uars.get(uar.number) {
                    // The number may be another's by now, who rang.
                    self.look(&uar, groups, (schedule, hot));
                }
            }
        }
        busy
    }

    /// Wakes the workers whose doorbells these are.
    fn rouse(&self, groups: u64) {
        for (worker, shard) in self.shards.iter().enumerate() {
            if shard.groups & groups != 0 {
                self.host().wake(worker);
            }
        }
    }

    /// Looks at the slots of groups that rang.
    #[inline]
    fn look(
        &self,
        uar: &Uar<H>,
        mut groups: u64,
        (schedule, hot): (&mut Schedule<H>, &mut Hot<H>),
    ) {
        while groups != 0 {
            let group = groups.trailing_zeros();
            groups &= groups - 1;
            let any = uar.group(group, |owner| match owner {
                Owner::Qp(qp) if qp.flushes_sends() => schedule.activate(qp),
                Owner::Qp(qp) if qp.has_posted(self.host()) => {
                    schedule.activate(qp);
                    hot.note(qp);
                }
                Owner::Qp(_) => {}
                Owner::Cq(cq) => {
                    let _armed = cq.look(self.host(), self.stats());
                }
                Owner::Quiet => {}
            });
            if !any {
                self.stats().step(Counter::BadDoorbells);
            }
        }
    }

    fn turns(self: &Arc<Self>, schedule: &mut Schedule<H>, batch: &mut Batch) -> bool {
        let mut any = false;
        for _ in 0..TURNS {
            let Some(qp) = schedule.next() else { break };
            any = true;
            let budget = if schedule.has_active() { TURN } else { LONG_TURN };
            match requester::run(self, &qp, batch, budget) {
                Turn::Idle => {}
                Turn::More => schedule.activate(&qp),
                Turn::Wait(at) => schedule.set_timer(at, qp),
                Turn::Failed => self.flush(schedule, batch, qp),
            }
        }
        any
    }

    /// Completes what is posted to a QP in the error state with a flush error.
    fn flush(self: &Arc<Self>, schedule: &mut Schedule<H>, batch: &mut Batch, qp: Arc<Qp<H>>) {
        let sends = send_queue::flush(self, &qp, batch);
        let receives = responder::outcome::flush(self, &qp);
        if sends >= BATCH || receives >= BATCH {
            return schedule.activate(&qp);
        }
        if qp.state() != State::Err || qp.rq.is_none() {
            // Posting a send rings.
            return;
        }
        let mut responder = qp.responder.lock();
        responder.flush_pause = match receives {
            0 => (responder.flush_pause * 2).clamp(FLUSH_POLL_NS, FLUSH_POLL_MAX_NS),
            _ => FLUSH_POLL_NS,
        };
        let at = self.host().now() + responder.flush_pause;
        drop(responder);
        schedule.set_timer(at, qp);
    }

    /// Ends all waiting of a QP that is destroyed.
    pub(crate) fn forget_qp(&self, qp: &Qp<H>) {
        // The lock is rarely free while the worker spins.
        if qp.timer.load(Ordering::SeqCst) != 0
            && let Some(shard) = self.shards.get(qp.worker)
        {
            shard.bench.lock().schedule.clear_timer(qp);
        }
        if qp.hot.load(Ordering::SeqCst) {
            // It lets go of the QP, and of its rings and CQs, at its next look.
            self.host().wake(qp.worker);
        }
        if let Some(eq) = self.asynchronous.read().as_ref() {
            eq.forget(|kind, id| is_of_qp(kind) && id == qp.qpn);
        }
    }

    /// Drops the events of a CQ that is destroyed.
    pub(crate) fn forget_cq(&self, cq: &Cq) {
        self.moderation.forget(cq.cqn);
        cq.eq.forget(|_, id| id == cq.cqn);
        if let Some(eq) = self.asynchronous.read().as_ref() {
            eq.forget(|kind, id| kind == Kind::CqError && id == cq.cqn);
        }
    }

    /// Drops the events of an SRQ that is destroyed.
    pub(crate) fn forget_srq(&self, srq: &Srq) {
        if let Some(eq) = self.asynchronous.read().as_ref() {
            let of_srq = |kind| matches!(kind, Kind::SrqLimit | Kind::SrqError);
            eq.forget(|kind, id| of_srq(kind) && id == srq.srqn);
        }
    }

    fn release_events(&self) -> (bool, bool) {
        let (mut moved, mut held) = (false, false);
        if !self.objects.holding.load(Ordering::Relaxed) {
            return (moved, held);
        }
        // A queue that holds an event back from now on sets this again.
        self.objects.holding.store(false, Ordering::SeqCst);
        let eqs = self.objects.active_eqs.read();
        for eq in eqs.iter().filter(|eq| eq.holding()) {
            moved |= eq.release(self.host(), self.stats());
            held |= eq.holding();
        }
        if held {
            self.objects.holding.store(true, Ordering::Release);
        }
        (moved, held)
    }
}

/// Returns the offset in BAR2 of a UAR's summary.
#[inline]
fn summary<H: Host>(uar: &Uar<H>) -> u64 {
    doorbell::base(uar.number) + u64::from(uar::SUMMARY_OFFSET)
}

/// Returns whether an event of this kind names a QP.
fn is_of_qp(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::QpFatal
            | Kind::QpRequestError
            | Kind::QpAccessError
            | Kind::CommEstablished
            | Kind::SqDrained
            | Kind::QpLastWqe
    )
}
