//! The poll of a worker: doorbells, turns of QPs, held events.
//!
//! | module | contents |
//! | --- | --- |
//! | `backlog` | the work that a poll rarely finds |
//! | `last_turns` | the last turns of a QP that a command destroys |

mod backlog;
mod last_turns;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vrnic_abi::qp::State;
use vrnic_faults::Site;
use vrnic_packet::Nanos;

use crate::adapter::Adapter;
use crate::datapath::constants::MAX_FRAMES;
use crate::datapath::requester;
use crate::datapath::responder;
use crate::datapath::send_queue::{self, BATCH, Turn};
use crate::datapath::sgl::{LONG_TURN, TURN};
use crate::datapath::space::Space;
use crate::datapath::transport::wire;
use crate::datapath::turn::Allowance;
use crate::ethernet::Classified;
use crate::host::{Host, Lane};
use crate::objects::cq::Cq;
use crate::objects::faults::trace::Step;
use crate::objects::held_events::Subject;
use crate::objects::moderation::Fired;
use crate::objects::qp::Qp;
use crate::objects::srq::Srq;
use crate::objects::uar::{Owner, Uar, UarList};
use crate::scheduling::recent_doorbells::RecentDoorbells;
use crate::scheduling::schedule::Schedule;
use crate::scheduling::worker_state::{DoorbellPlace, Scratch};
use crate::slice::{ClockInterval, SLICE, Slice, cost};
use crate::stats::Counter;

/// Interval at which a QP in the error state is checked for receives to flush, because posting a
/// receive rings no doorbell: at first, and at most, in milliseconds.
const FLUSH_POLL: u8 = 1;
const FLUSH_POLL_MAX: u8 = 128;
/// Maximum number of turns of QPs in one poll.
const TURNS: usize = 64;
/// Maximum number of batches of QPs to end, or of waiting events, in one poll.
const ROUNDS: usize = 4;
/// Number of groups of doorbells that are checked between two checks of the slice, and of a short
/// one.
const GROUPS: usize = 4;
const SHORT_GROUPS: usize = 1;

/// The result of a poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// True if work was done, or is left because the slice was over. The caller must poll again
    /// soon.
    pub busy: bool,
    /// The time of the next poll even if no doorbell is rung, on the host's clock.
    pub deadline: Option<Nanos>,
    /// The duration of what was done in nanoseconds, by estimate if it was short.
    pub spent: u64,
}

/// The doorbells that a worker polls.
struct Doorbells<'a> {
    /// The groups of each UAR.
    mask: u64,
    /// The place to begin at. If the slice ends, it is set to the place to continue at.
    resume: &'a mut DoorbellPlace,
}

impl<H: Host> Adapter<H> {
    /// Returns whether a doorbell has been rung or work waits, for the check between arming and
    /// sleeping. A doorbell of another worker counts: that worker must be awake before this one
    /// sleeps.
    #[must_use]
    pub fn has_work(&self, worker: usize) -> bool {
        if self.paused(worker).is_some() {
            return false;
        }
        let rung = |uar: &Arc<Uar<H>>| self.host().bar_load64(uar.number.summary()) != 0;
        self.core().has_mail(worker)
            || self.core().failing.any()
            || self.core().resuming.any()
            || self.objects.active_uars.read().iter().any(rung)
    }

    /// Does work of `worker` for a slice of [`SLICE`]; see [`Self::poll_for`].
    pub fn poll(self: &Arc<Self>, worker: usize) -> Polled {
        self.poll_for(worker, SLICE)
    }

    /// Does work of `worker`, which is the calling thread (see [`Lane`]), for a slice of its time,
    /// but a little of each kind in any case. Only one thread at a time does work for a worker. A
    /// concurrent call by another thread returns at once as busy, because it does not know the
    /// deadline.
    #[inline]
    pub fn poll_for(self: &Arc<Self>, worker: usize, length: Duration) -> Polled {
        let Some(state) = self.workers.get(worker) else { return Polled::default() };
        let Some(mut scratch) = state.scratch.try_lock() else {
            return Polled { busy: true, ..Polled::default() };
        };
        if let Some(until) = self.paused(worker) {
            return Polled { deadline: Some(until), ..Polled::default() };
        }
        let Scratch { schedule, space, recent, uars, resume, frames, interval } = &mut *scratch;
        let slice = Slice::lasting(self.host(), Lane::worker(worker), length, *interval);
        let mut busy = recent.schedule_posted(self.host(), schedule);
        if busy {
            self.turns(schedule, space, &slice);
        }
        self.objects.look_at_uars(uars);
        let doorbells = Doorbells { mask: state.groups, resume: &mut resume.doorbell };
        busy |= self.doorbells(doorbells, uars, schedule, recent, &slice);
        busy |= self.fetch_mail(worker, schedule, &slice);
        self.core().take_frames(worker, frames, MAX_FRAMES);
        let arrived = (!frames.is_empty()).then(|| self.receive(worker, frames, schedule, &slice));
        busy |= arrived.is_some();
        busy |= schedule.run_timers(&slice);
        busy |= schedule.has_active() && self.turns(schedule, space, &slice);
        let mut held = None;
        if self.has_backlog() {
            let worked = self.work_on_backlog(&mut resume.eq, &slice);
            busy |= worked.any;
            held = worked.next;
        }
        let mut moderated = None;
        let fired = rounds(&slice, || {
            let fired = self.fire_moderated(&slice);
            moderated = fired.next;
            fired.any
        });
        busy |= fired | schedule.has_active();
        *interval = if busy { slice.interval() } else { ClockInterval::default() };
        let deadline = earlier(schedule.deadline(), earlier(held, moderated));
        Polled { busy, deadline, spent: slice.spent() + arrived.unwrap_or(0) }
    }

    /// Moves QPs for which other threads have requested a turn to the worker's schedule. Returns
    /// whether there were any.
    #[inline]
    fn fetch_mail(&self, worker: usize, schedule: &mut Schedule<H>, slice: &Slice<'_, H>) -> bool {
        self.core().fetch_mail(worker, slice, |qpn| {
            if let Some(qp) = self.qp(qpn) {
                schedule.adopt(qp);
            }
        })
    }

    /// Takes frames that have arrived for QPs of the worker, and schedules these QPs. Returns the
    /// duration in nanoseconds. This has a slice of its own, because the answers to frames would be
    /// late if the turns of many QPs used up the slice of the poll.
    fn receive(
        &self,
        worker: usize,
        frames: &mut VecDeque<Classified>,
        schedule: &mut Schedule<H>,
        slice: &Slice<'_, H>,
    ) -> u64 {
        let (lane, length) = (Lane::worker(worker), slice.for_arrivals());
        let slice = Slice::lasting(self.host(), lane, length, slice.interval());
        let traces = self.core().injection.looks_at(Site::Packet);
        while let Some(frame) = frames.pop_front() {
            if traces {
                wire::trace(self.network(), &frame);
            }
            if let Some(qp) = wire::arrive(self.network(), &frame, &slice) {
                schedule.activate(&qp);
            }
            if slice.is_over() {
                break;
            }
        }
        slice.spent()
    }

    /// Takes the bits of the summaries, a few at a time, and checks the doorbells of their groups.
    #[inline]
    fn doorbells(
        &self,
        Doorbells { mask, resume }: Doorbells<'_>,
        UarList { version, uars }: &UarList<H>,
        schedule: &mut Schedule<H>,
        recent: &mut RecentDoorbells<H>,
        slice: &Slice<'_, H>,
    ) -> bool {
        let at_once = if slice.is_short() { SHORT_GROUPS } else { GROUPS };
        let start = std::mem::take(resume);
        let start = if start.uar < uars.len() { start } else { DoorbellPlace::default() };
        // Groups before the first one are checked in the next poll.
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
                let groups = lowest(mine, at_once);
                mine &= !groups;
                let groups = self.host().bar_take64(uar.number.summary(), groups);
                if self.objects.has_uars(*version) {
                    self.check_groups(uar, groups, schedule, recent, slice);
                } else if let Some(uar) = self.objects.uars.get(uar.number) {
                    // The number may have been reused for another UAR since the doorbell was rung.
                    self.check_groups(&uar, groups, schedule, recent, slice);
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

    /// Wakes the workers that poll these groups.
    fn rouse(&self, groups: u64) {
        for (worker, state) in self.workers.iter().enumerate() {
            if state.groups & groups != 0 {
                self.host().wake(worker);
            }
        }
    }

    /// Checks the slots of groups whose summary bits were set.
    #[inline]
    fn check_groups(
        &self,
        uar: &Uar<H>,
        mut groups: u64,
        schedule: &mut Schedule<H>,
        recent: &mut RecentDoorbells<H>,
        slice: &Slice<'_, H>,
    ) {
        let injection = &self.core().injection;
        while groups != 0 {
            slice.charge(cost::GROUP);
            let group = groups.trailing_zeros();
            groups &= groups - 1;
            let any = uar.group(group, |owner| match owner {
                Owner::Qp(qp) if qp.flushes_sends() => schedule.activate(qp),
                // Receives of such a QP ring, too: they open the window.
                Owner::Qp(qp) if qp.kind.info().rings_receives => schedule.activate(qp),
                Owner::Qp(qp) if qp.has_posted(self.host()) || qp.is_marked(self.host()) => {
                    if injection.looks_at(Site::Turn) {
                        injection.trace(self.core().here(), qp.qpn, Step::Doorbell);
                    }
                    schedule.activate(qp);
                    recent.note(qp);
                }
                Owner::Qp(_) => {}
                Owner::Cq(cq) => {
                    if cq.check_arm(&self.core().caller(slice.lane())) {
                        slice.charge(cost::EVENT);
                    }
                    if cq.holds() {
                        self.core().resuming.add(cq);
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
        space: &mut Space,
        slice: &Slice<'_, H>,
    ) -> bool {
        let mut any = false;
        for _ in 0..TURNS {
            let Some(qp) = schedule.next() else { break };
            let injection = &self.core().injection;
            if (injection.may_pause() || injection.looks_at(Site::Turn)) && self.pauses(&qp) {
                schedule.activate(&qp);
                break;
            }
            any = true;
            slice.charge(cost::TURN);
            let budget = if schedule.has_active() { TURN } else { LONG_TURN };
            match requester::run(self.network(), &qp, space, &Allowance { budget, slice }) {
                Turn::Idle => {}
                Turn::More => schedule.activate(&qp),
                Turn::Wait(at) => schedule.set_timer(at, qp),
                Turn::Failed => self.flush(schedule, space, qp, slice),
                Turn::FailedUntil(at) => {
                    schedule.set_timer(at, Arc::clone(&qp));
                    self.flush(schedule, space, qp, slice);
                }
            }
            if slice.is_over() {
                break;
            }
        }
        any
    }

    /// Returns the time until which a worker pauses because of a rule for faults, if it does.
    #[inline]
    fn paused(&self, worker: usize) -> Option<Nanos> {
        let injection = &self.core().injection;
        if injection.may_pause() { injection.paused(worker, self.host().now()) } else { None }
    }

    /// Returns whether the worker of a QP pauses because of a rule for faults. Rules do not count a
    /// turn without a new work request, such as the turn at the end of an old timer.
    #[cold]
    fn pauses(&self, qp: &Qp<H>) -> bool {
        let (injection, here) = (&self.core().injection, self.core().here());
        injection.paused(qp.worker(), here.now).is_some()
            || injection.looks_at(Site::Turn)
                && qp.has_posted(self.host())
                && injection.pauses(here, qp.qpn, qp.worker())
    }

    /// Completes the posted requests of a QP in the error state with a flush error.
    fn flush(
        self: &Arc<Self>,
        schedule: &mut Schedule<H>,
        space: &mut Space,
        qp: Arc<Qp<H>>,
        slice: &Slice<'_, H>,
    ) {
        self.core().injection.end_orders(qp.qpn);
        let sends = send_queue::flush(self.core(), &qp, &mut space.batch, slice);
        let receives = responder::outcome::flush(self.core(), &qp, slice);
        if sends >= BATCH || receives >= BATCH || slice.is_over() {
            return schedule.activate(&qp);
        }
        if qp.state() != State::Err || qp.rq.is_none() {
            // Posting a send rings a doorbell, so no timer is necessary.
            return;
        }
        let mut responder = qp.responder.lock();
        responder.flush_pause = match receives {
            0 => responder.flush_pause.saturating_mul(2).clamp(FLUSH_POLL, FLUSH_POLL_MAX),
            _ => FLUSH_POLL,
        };
        let pause = Duration::from_millis(responder.flush_pause.into());
        let at = self.host().now().plus(pause);
        drop(responder);
        schedule.set_timer(at, qp);
    }

    /// Removes a QP that is destroyed from timers and held events.
    pub(crate) fn forget_qp(&self, qp: &Qp<H>) {
        // Checked first, because the lock is rarely free while the worker spins.
        if qp.timer.load(Ordering::SeqCst) != 0
            && let Some(state) = self.workers.get(qp.worker())
        {
            state.scratch.lock().schedule.clear_timer(qp);
        }
        if qp.recent.load(Ordering::SeqCst) {
            // The worker drops its reference to the QP, its rings and its CQs at its next poll.
            self.host().wake(qp.worker());
        }
        if let Some(eq) = self.core().asynchronous.read().as_ref() {
            eq.forget(Subject::Qp(qp.qpn));
        }
        self.core().injection.forget_qp(qp.qpn);
    }

    /// Drops the events of a CQ that is destroyed.
    pub(crate) fn forget_cq(&self, cq: &Cq) {
        self.core().moderation.forget(cq);
        self.core().resuming.forget(cq);
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

    /// Reports some of the events that have waited long enough.
    #[inline]
    fn fire_moderated(&self, slice: &Slice<'_, H>) -> Fired {
        let fire = |cq: &Cq| {
            slice.charge(cost::EVENT);
            cq.fire(&self.core().caller(slice.lane()));
        };
        self.core().moderation.fire_due(|| self.host().now(), fire)
    }
}

/// Does work in batches, at least one and at most [`ROUNDS`] of them. Returns whether there was
/// any.
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

/// Returns the earlier of two times, if there is any.
#[inline]
fn earlier(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
    one.map_or(other, |one| Some(other.map_or(one, |other| other.min(one))))
}

/// Returns the `count` lowest bits of a word.
#[inline]
fn lowest(word: u64, count: usize) -> u64 {
    let rest = (0..count).fold(word, |rest, _| rest & rest.wrapping_sub(1));
    word & !rest
}
