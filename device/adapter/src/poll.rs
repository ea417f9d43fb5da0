//! The workers' side of an adapter: doorbells, turns of QPs, events that were held back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;

use crate::adapter::Adapter;
use crate::datapath::requester;
use crate::datapath::responder;
use crate::datapath::send_queue::{self, BATCH, Turn};
use crate::datapath::sgl::{LONG_TURN, TURN};
use crate::datapath::transport::wire;
use crate::datapath::turn::Allowance;
use crate::datapath::wqe_fetch::Batch;
use crate::ethernet::Frame;
use crate::host::{Host, Lane};
use crate::objects::cq::Cq;
use crate::objects::held_events::Subject;
use crate::objects::moderation::Fired;
use crate::objects::qp::Qp;
use crate::objects::srq::Srq;
use crate::objects::uar::{Owner, Uar, UarList};
use crate::scheduling::recent_doorbells::RecentDoorbells;
use crate::scheduling::schedule::Schedule;
use crate::scheduling::worker_state::{DoorbellPlace, Scratch};
use crate::slice::{Slice, cost};
use crate::stats::Counter;

/// Interval at which a QP in the error state is checked for receives to flush, because posting one
/// rings no bell: at first, and at most.
const FLUSH_POLL_NS: u64 = 1_000_000;
const FLUSH_POLL_MAX_NS: u64 = 128_000_000;
/// Interval at which held events are tried again.
const HELD_POLL_NS: u64 = 1_000_000;
/// Most frames that are taken in one poll. The answers to them leave together.
const FRAMES: usize = 64;
/// Most turns of QPs in one poll.
const TURNS: usize = 64;
/// Lots of QPs that end, or of events that have waited, in one poll.
const ROUNDS: usize = 4;
/// Groups of doorbells that are looked at between two looks at the slice.
const GROUPS: usize = 4;

/// Result of a poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// True if anything was done, or is left to do because the slice was over; poll again soon.
    pub busy: bool,
    /// When to poll again even if nothing rings, on the host's clock.
    pub deadline: Option<u64>,
}

/// The doorbells that a worker looks at.
struct Doorbells<'a> {
    /// The groups of each UAR.
    mask: u64,
    /// The place to begin at; where to go on is left here when the slice is over.
    resume: &'a mut DoorbellPlace,
}

/// Result of moving events that were held back.
#[derive(Clone, Copy, Default)]
struct Released {
    /// True if any was moved.
    any: bool,
    /// True if some are held still.
    held: bool,
}

impl<H: Host> Adapter<H> {
    /// Returns whether a doorbell has rung or work waits; for the look between arming and sleeping.
    /// A doorbell of another worker counts: it must be awake before this one sleeps.
    #[must_use]
    pub fn has_work(&self, worker: usize) -> bool {
        let rung = |uar: &Arc<Uar<H>>| self.host().bar_load64(uar.number.summary()) != 0;
        self.core().has_mail(worker)
            || self.core().failing.any()
            || self.objects.active_uars.read().iter().any(rung)
    }

    /// Does some of the work of `worker`, which is the calling thread (see [`Lane`]): for a slice
    /// of its time, though a little of each kind in any case. One thread at a time does any;
    /// another that calls meanwhile returns with nothing done, and shall come again: it has not
    /// learned the deadline.
    pub fn poll(self: &Arc<Self>, worker: usize) -> Polled {
        let Some(state) = self.workers.get(worker) else { return Polled::default() };
        let Some(mut scratch) = state.scratch.try_lock() else {
            return Polled { busy: true, deadline: None };
        };
        let slice = Slice::new(self.host(), Lane::worker(worker));
        let Scratch { schedule, batch, recent, uars, resume, frames } = &mut *scratch;
        let mut busy = recent.look(self.host(), schedule);
        if busy {
            self.turns(schedule, batch, &slice);
        }
        self.objects.look_at_uars(uars);
        let doorbells = Doorbells { mask: state.groups, resume: &mut resume.doorbell };
        busy |= self.doorbells(doorbells, uars, (schedule, recent), &slice);
        busy |= self.fetch_mail(worker, schedule);
        busy |= self.receive(worker, frames, schedule);
        busy |= schedule.run_timers(|| self.host().now());
        busy |= self.turns(schedule, batch, &slice);
        busy |= rounds(&slice, || self.fail_feeders(&slice));
        let released = self.release_events(&mut resume.eq, &slice);
        let held = released.held.then(|| self.host().now() + HELD_POLL_NS);
        let mut moderated = None;
        let fired = rounds(&slice, || {
            let fired = self.fire_moderated(&slice);
            moderated = fired.next;
            fired.any
        });
        busy |= released.any | fired | schedule.has_active();
        let deadline = schedule.deadline().into_iter().chain(held).chain(moderated).min();
        Polled { busy, deadline }
    }

    /// Moves the QPs that other threads have left for the worker to its schedule; returns whether
    /// there was any.
    #[inline]
    fn fetch_mail(&self, worker: usize, schedule: &mut Schedule<H>) -> bool {
        self.core().fetch_mail(worker, |qpn| {
            if let Some(qp) = self.qp(qpn) {
                schedule.adopt(qp);
            }
        })
    }

    /// Takes frames that have arrived for QPs of the worker, and gives these a turn. Returns
    /// whether there was one. This has a slice of its own: the answers to frames are late if the
    /// turns of many QPs use up that of the poll.
    #[inline]
    fn receive(
        &self,
        worker: usize,
        frames: &mut VecDeque<Frame>,
        schedule: &mut Schedule<H>,
    ) -> bool {
        self.core().take_frames(worker, frames, FRAMES);
        if frames.is_empty() {
            return false;
        }
        let slice = Slice::new(self.host(), Lane::worker(worker));
        while let Some(frame) = frames.pop_front() {
            if let Some(qp) = wire::arrive(self.network(), &frame, &slice) {
                schedule.activate(&qp);
            }
            if slice.is_over() {
                break;
            }
        }
        true
    }

    /// Takes the summaries' bits, a few at a time, and looks at what rang.
    #[inline]
    fn doorbells(
        &self,
        Doorbells { mask, resume }: Doorbells<'_>,
        UarList { version, uars }: &UarList<H>,
        (schedule, recent): (&mut Schedule<H>, &mut RecentDoorbells<H>),
        slice: &Slice<'_, H>,
    ) -> bool {
        let start = std::mem::take(resume);
        let start = if start.uar < uars.len() { start } else { DoorbellPlace::default() };
        // Groups before the first one come in the next poll.
        let (mut busy, mut later) = (start.group != 0, !0 << start.group);
        let (before, after) = uars.split_at(start.uar);
        for (nth, uar) in after.iter().chain(before).enumerate() {
            slice.charge(cost::SUMMARY);
            let rung = self.host().bar_load64(uar.number.summary());
            let here = std::mem::replace(&mut later, !0);
            if rung == 0 {
                continue;
            }
            if rung & !mask != 0 {
                self.rouse(rung & !mask);
            }
            let mut mine = rung & mask & here;
            while mine != 0 {
                busy = true;
                let groups = lowest(mine);
                mine &= !groups;
                let groups = self.host().bar_take64(uar.number.summary(), groups);
                if self.objects.has_uars(*version) {
                    self.look(uar, groups, (schedule, recent), slice);
                } else if let Some(uar) = self.objects.uars.get(uar.number) {
                    // The number may be another's by now, who rang.
                    self.look(&uar, groups, (schedule, recent), slice);
                }
                if slice.is_over() {
                    let uar = (start.uar + nth) % uars.len();
                    *resume = match mine {
                        0 => DoorbellPlace { uar: uar + 1, group: 0 },
                        _ => DoorbellPlace { uar, group: mine.trailing_zeros() },
                    };
                    return true;
                }
            }
        }
        busy
    }

    /// Wakes the workers whose doorbells these are.
    fn rouse(&self, groups: u64) {
        for (worker, state) in self.workers.iter().enumerate() {
            if state.groups & groups != 0 {
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
        (schedule, recent): (&mut Schedule<H>, &mut RecentDoorbells<H>),
        slice: &Slice<'_, H>,
    ) {
        while groups != 0 {
            slice.charge(cost::GROUP);
            let group = groups.trailing_zeros();
            groups &= groups - 1;
            let any = uar.group(group, |owner| match owner {
                Owner::Qp(qp) if qp.flushes_sends() => schedule.activate(qp),
                Owner::Qp(qp) if qp.has_posted(self.host()) => {
                    schedule.activate(qp);
                    recent.note(qp);
                }
                Owner::Qp(_) => {}
                Owner::Cq(cq) => {
                    if cq.look(&self.core().caller(slice.lane())) {
                        slice.charge(cost::EVENT);
                    }
                }
                Owner::Quiet => {}
            });
            if !any {
                self.stats().step(Counter::BadDoorbells);
            }
        }
    }

    fn turns(
        self: &Arc<Self>,
        schedule: &mut Schedule<H>,
        batch: &mut Batch,
        slice: &Slice<'_, H>,
    ) -> bool {
        let mut any = false;
        for _ in 0..TURNS {
            let Some(qp) = schedule.next() else { break };
            any = true;
            slice.charge(cost::TURN);
            let budget = if schedule.has_active() { TURN } else { LONG_TURN };
            match requester::run(self.network(), &qp, batch, &Allowance { budget, slice }) {
                Turn::Idle => {}
                Turn::More => schedule.activate(&qp),
                Turn::Wait(at) => schedule.set_timer(at, qp),
                Turn::Failed => self.flush(schedule, batch, qp, slice),
                Turn::FailedUntil(at) => {
                    schedule.set_timer(at, Arc::clone(&qp));
                    self.flush(schedule, batch, qp, slice);
                }
            }
            if slice.is_over() {
                break;
            }
        }
        any
    }

    /// Completes what is posted to a QP in the error state with a flush error.
    fn flush(
        self: &Arc<Self>,
        schedule: &mut Schedule<H>,
        batch: &mut Batch,
        qp: Arc<Qp<H>>,
        slice: &Slice<'_, H>,
    ) {
        let sends = send_queue::flush(self.core(), &qp, batch, slice);
        let receives = responder::outcome::flush(self.core(), &qp, slice);
        if sends >= BATCH || receives >= BATCH || slice.is_over() {
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
            && let Some(state) = self.workers.get(qp.worker)
        {
            state.scratch.lock().schedule.clear_timer(qp);
        }
        if qp.recent.load(Ordering::SeqCst) {
            // It lets go of the QP, and of its rings and CQs, at its next look.
            self.host().wake(qp.worker);
        }
        if let Some(eq) = self.core().asynchronous.read().as_ref() {
            eq.forget(Subject::Qp(qp.qpn));
        }
    }

    /// Drops the events of a CQ that is destroyed.
    pub(crate) fn forget_cq(&self, cq: &Cq) {
        self.core().moderation.forget(cq);
        cq.eq.forget(Subject::Completions(cq.cqn));
        if let Some(eq) = self.core().asynchronous.read().as_ref() {
            eq.forget(Subject::Cq(cq.cqn));
        }
    }

    /// Drops the events of an SRQ that is destroyed.
    pub(crate) fn forget_srq(&self, srq: &Srq) {
        if let Some(eq) = self.core().asynchronous.read().as_ref() {
            eq.forget(Subject::Srq(srq.srqn));
        }
    }

    /// Reports some events that have waited long enough.
    #[inline]
    fn fire_moderated(&self, slice: &Slice<'_, H>) -> Fired {
        let fire = |cq: &Cq| {
            slice.charge(cost::EVENT);
            cq.fire(&self.core().caller(slice.lane()));
        };
        self.core().moderation.look(|| self.host().now(), fire)
    }

    /// Ends some QPs that feed a CQ that has failed; whether there was such a CQ.
    fn fail_feeders(&self, slice: &Slice<'_, H>) -> bool {
        if !self.core().failing.any() {
            return false;
        }
        let Some((cq, qpns)) = self.core().failing.take() else { return true };
        let feeds =
            |qp: &Arc<Qp<H>>| [&qp.send_cq, &qp.recv_cq].iter().any(|own| Arc::ptr_eq(own, &cq));
        for qp in qpns.into_iter().filter_map(|qpn| self.qp(qpn)).filter(feeds) {
            slice.charge(cost::FAILURE);
            qp.failed(self.core(), Kind::QpFatal);
        }
        true
    }

    /// Moves events that were held back into queues that have room. Begins with the queue number
    /// `first` of the list, and leaves there which comes first next time.
    fn release_events(&self, first: &mut usize, slice: &Slice<'_, H>) -> Released {
        let mut released = Released::default();
        if !self.objects.holding.load(Ordering::Relaxed) {
            return released;
        }
        // A queue that holds an event back from now on sets this again.
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

/// Does work that comes in small lots, at least one and at most [`ROUNDS`] of them; whether there
/// was any.
#[inline]
fn rounds<H: Host>(slice: &Slice<'_, H>, mut work: impl FnMut() -> bool) -> bool {
    let mut any = false;
    for _ in 0..ROUNDS {
        if !work() {
            break;
        }
        any = true;
        if slice.is_over() {
            break;
        }
    }
    any
}

/// The lowest bits of a word, [`GROUPS`] of them.
#[inline]
fn lowest(word: u64) -> u64 {
    let rest = (0..GROUPS).fold(word, |rest, _| rest & rest.wrapping_sub(1));
    word & !rest
}
