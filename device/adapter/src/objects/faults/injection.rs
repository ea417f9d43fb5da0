//! Faults that rules inject into an adapter (docs/faults.md): what was decided, and what waits.
//!
//! A turn of a QP asks once whether there is any rule ([`Injection::is_active`]). All other hooks
//! first ask [`Injection::looks_at`], which is one load and a branch. All else runs only while a
//! rule looks at the place of the hook.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `guest` | the rules that a guest sets for its own function |
//! | `delays` | events, interrupts and commands that are delayed or lost |
//! | `order` | the order in which the bytes of messages become visible |

mod delays;
mod guest;
mod order;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use vrnic_abi::{Qpn, cq};
use vrnic_faults::{Action, Concern, Hit, Opcode, Rules, Site, State, Subject};
use vrnic_packet::Nanos;
use vrnic_roce::{Psn, wire};

pub(crate) use self::delays::{CommandFate, DelayedEvent, EventPlace};
use self::delays::{DelayedCommand, DelayedInterrupt};
use self::order::Ordered;
use crate::log_ratelimit::Limiter;
use crate::objects::completion::Completion;
use crate::objects::faults::trace::{Noted, Records, Step, Trace, Traced};
use crate::requests::wqe::SendWqe;

/// The most events, and the most interrupts, that wait. Further ones are lost.
const MAX_LATE: usize = 4096;

/// The faults of an adapter.
#[derive(Debug)]
pub(crate) struct Injection {
    rules: Arc<Rules>,
    /// The places where rules look that may select the function.
    concern: Arc<Concern>,
    /// The trace of a QP, which the same hooks serve.
    trace: Trace,
    /// True if the guest may set rules for its function.
    permits: AtomicBool,
    /// True if `waiting` may have anything.
    any: AtomicBool,
    /// True if a worker pauses.
    pausing: AtomicBool,
    /// True if the order of a message may be known.
    ordering: AtomicBool,
    waiting: Mutex<Waiting>,
    /// A reference for each message of packets whose bytes wait.
    tickets: Arc<()>,
    /// Limits the warnings about orders for which there was no room.
    lost: Limiter,
}

/// The decisions that are still needed, and the things that wait.
#[derive(Debug, Default)]
struct Waiting {
    /// For each QP, the last work request on which rules have decided.
    requests: HashMap<Qpn, Decided>,
    /// For each message that is copied in another order, by QP and index, its ID and its seed.
    orders: BTreeMap<(Qpn, u32), Ordered>,
    /// For each QP without receives, the time until which it has none.
    refusing: HashMap<Qpn, Nanos>,
    events: Vec<DelayedEvent>,
    interrupts: Vec<DelayedInterrupt>,
    command: Option<DelayedCommand>,
    /// For each worker that pauses, the time until which it does.
    pauses: HashMap<usize, Nanos>,
}

/// A work request on which rules have decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decided {
    index: u32,
    wr_id: u64,
    fate: Fate,
}

/// The fate of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The work request begins.
    Begins,
    /// The work request begins at this time.
    Waits(Nanos),
    /// The work request completes with this status.
    Fails(cq::Status),
    /// The QP of the work request fails.
    FailsQp,
}

/// The function that a fault concerns, and the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here<'a> {
    /// The name of the function.
    pub(crate) function: &'a str,
    /// The time.
    pub(crate) now: Nanos,
}

impl<'a> Here<'a> {
    fn subject(self, site: Site) -> Subject<'a> {
        Subject::new(site, self.function)
    }

    fn of_qp(self, site: Site, qpn: Qpn) -> Subject<'a> {
        Subject { qp: wire::Qpn::new(qpn.get()), ..self.subject(site) }
    }
}

impl Injection {
    /// Returns the faults of the adapter of a function by these rules.
    pub(crate) fn new(rules: &Arc<Rules>, function: &str) -> Self {
        let [permits, any, pausing, ordering] = [(); 4].map(|()| AtomicBool::new(false));
        let (concern, rules) = (rules.concern(function), Arc::clone(rules));
        let (trace, waiting) = (Trace::new(&rules, &concern), Mutex::default());
        let (tickets, lost) = (Arc::default(), Limiter::default());
        Self { rules, concern, trace, permits, any, pausing, ordering, waiting, tickets, lost }
    }

    /// Returns whether a rule or the trace looks at this place.
    #[inline]
    pub(crate) fn looks_at(&self, site: Site) -> bool {
        self.concern.look_at(site)
    }

    /// Returns whether any hook of the data path has something to do.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.concern.look_anywhere() || self.ordering.load(Ordering::Relaxed)
    }

    /// Returns whether there is any rule.
    pub(crate) fn has_rules(&self) -> bool {
        self.concern.any()
    }

    /// Begins the trace of a QP. Returns false if another one has not ended.
    pub(crate) fn begin_trace(&self, of: Traced, now: Nanos) -> bool {
        self.trace.begin(of, now)
    }

    /// Takes some records of the trace. Returns `None` if there is no trace.
    pub(crate) fn take_trace(&self, limit: usize, now: Nanos) -> Option<Records> {
        self.trace.take(limit, now)
    }

    pub(crate) fn end_trace(&self) {
        self.trace.end();
    }

    /// Passes a step to the trace, if there is one.
    #[cold]
    pub(crate) fn trace(&self, here: Here<'_>, qpn: Qpn, step: Step) {
        self.trace.record(here.now, qpn, step);
    }

    /// Passes the sequence number of a packet of a work request to the trace, if there is one.
    #[cold]
    pub(crate) fn trace_packet(&self, here: Here<'_>, qpn: Qpn, index: u32, psn: Psn) {
        self.trace.packet(here.now, qpn, index, psn);
    }

    /// Returns the comment of captures on a frame or a message of a QP, if that is traced.
    pub(crate) fn note(&self, here: Here<'_>, qpn: Qpn, of: &Noted<'_>) -> Option<String> {
        self.is_traced().then(|| self.trace.note(here.now, qpn, of)).flatten()
    }

    /// Returns whether a QP of the function is traced.
    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.concern.is_traced()
    }

    /// Forgets what was decided, because all work of the adapter was discarded.
    pub(crate) fn clear(&self) {
        if self.any.swap(false, Ordering::Relaxed) {
            *self.waiting.lock() = Waiting::default();
            self.pausing.store(false, Ordering::Relaxed);
            self.ordering.store(false, Ordering::Relaxed);
        }
    }

    /// Forgets what was decided for a QP that ends.
    pub(crate) fn forget_qp(&self, qpn: Qpn) {
        if self.any.load(Ordering::Relaxed) {
            let mut waiting = self.waiting.lock();
            waiting.requests.remove(&qpn);
            waiting.refusing.remove(&qpn);
        }
        self.end_orders(qpn);
    }

    fn hit(&self, subject: &Subject<'_>, now: Nanos) -> Option<Action> {
        self.rules_hit(subject, now).map(|Hit { action, .. }| action)
    }

    /// Decides on a thing. The hook may have been called only for the trace.
    fn rules_hit(&self, subject: &Subject<'_>, now: Nanos) -> Option<Hit> {
        if self.concern.rules_look_at(subject.site) { self.rules.hit(subject, now) } else { None }
    }

    fn wait(&self, wait: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.waiting.lock();
        wait(&mut waiting);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Decides on a work request before it begins. A request that is passed again gets the same
    /// decision, without being counted again.
    #[cold]
    pub(crate) fn request(&self, here: Here<'_>, qpn: Qpn, send: &SendWqe) -> Fate {
        let (index, wr_id, now) = (send.index, send.wr_id, here.now);
        self.trace(here, qpn, Step::fetch(send));
        if !self.concern.rules_look_at(Site::Request) {
            return Fate::Begins;
        }
        let known = self.waiting.lock().requests.get(&qpn).copied();
        let known = known.filter(|known| (known.index, known.wr_id) == (index, wr_id));
        let fate = known.map_or_else(|| self.decide(here, qpn, send), |known| known.fate);
        let fate = match fate {
            Fate::Waits(until) if until <= now => Fate::Begins,
            fate => fate,
        };
        let decided = Decided { index, wr_id, fate };
        if known != Some(decided) {
            self.wait(|waiting| _ = waiting.requests.insert(qpn, decided));
        }
        fate
    }

    fn decide(&self, here: Here<'_>, qpn: Qpn, send: &SendWqe) -> Fate {
        let opcode = Some(Opcode::Request(send.opcode));
        let subject = Subject { opcode, ..here.of_qp(Site::Request, qpn) };
        match self.hit(&subject, here.now) {
            Some(Action::HoldRequest(by)) => Fate::Waits(here.now.plus(by)),
            Some(Action::SlowMemory(rate)) => {
                let nanos = u128::from(send.length) * 1_000_000_000 / u128::from(rate.max(1));
                let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
                Fate::Waits(here.now.plus(Duration::from_nanos(nanos)))
            }
            Some(Action::FailRequest(status)) => Fate::Fails(status),
            Some(Action::FailQp) => Fate::FailsQp,
            _ => Fate::Begins,
        }
    }

    /// Returns whether a copied message is lost.
    #[cold]
    pub(crate) fn loses(&self, here: Here<'_>, qpn: Qpn, send: &SendWqe) -> bool {
        let opcode = Some(Opcode::Request(send.opcode));
        let subject = Subject { opcode, ..here.of_qp(Site::Message, qpn) };
        self.hit(&subject, here.now) == Some(Action::DropMessage)
    }

    /// Returns whether a message finds no receive. The QP then has none for the time `pause`.
    #[cold]
    pub(crate) fn hides_receive(&self, here: Here<'_>, qpn: Qpn, pause: Duration) -> bool {
        if self.waiting.lock().refusing.get(&qpn).is_some_and(|until| here.now < *until) {
            return true;
        }
        let hit = self.hit(&here.of_qp(Site::Receive, qpn), here.now) == Some(Action::Rnr);
        if hit {
            let until = here.now.plus(pause);
            self.wait(|waiting| _ = waiting.refusing.insert(qpn, until));
        }
        hit
    }

    /// Returns the status with which a successful work request completes instead.
    #[cold]
    pub(crate) fn status(
        &self,
        here: Here<'_>,
        qpn: Qpn,
        opcode: cq::Opcode,
    ) -> Option<cq::Status> {
        let opcode = Some(Opcode::Completion(opcode));
        let subject = Subject { opcode, ..here.of_qp(Site::Completion, qpn) };
        match self.hit(&subject, here.now)? {
            Action::FailCompletion(status) => Some(status),
            _ => None,
        }
    }

    /// Returns whether a CQ has no room for an entry.
    #[cold]
    pub(crate) fn fills(&self, here: Here<'_>, cqn: u32, completion: &Completion) -> bool {
        self.trace(here, completion.qpn, Step::completion(completion, cqn));
        let subject = Subject { number: Some(cqn), ..here.of_qp(Site::Entry, completion.qpn) };
        self.hit(&subject, here.now) == Some(Action::FillCq)
    }

    /// Decides on a turn of a QP. Returns true if its worker pauses from now on.
    #[cold]
    pub(crate) fn pauses(&self, here: Here<'_>, qpn: Qpn, worker: usize) -> bool {
        self.trace(here, qpn, Step::Turn { worker });
        let hit = self.hit(&here.of_qp(Site::Turn, qpn), here.now);
        let Some(Action::PauseWorker(by)) = hit else { return false };
        let until = here.now.plus(by);
        self.wait(|waiting| _ = waiting.pauses.insert(worker, until));
        self.pausing.store(true, Ordering::Relaxed);
        true
    }

    /// Returns whether any worker may pause.
    #[inline]
    pub(crate) fn may_pause(&self) -> bool {
        self.pausing.load(Ordering::Relaxed)
    }

    /// Returns the time until which a worker pauses, if it does.
    #[cold]
    pub(crate) fn paused(&self, worker: usize, now: Nanos) -> Option<Nanos> {
        let mut waiting = self.waiting.lock();
        let until = waiting.pauses.get(&worker).copied()?;
        if now < until {
            return Some(until);
        }
        waiting.pauses.remove(&worker);
        self.pausing.store(!waiting.pauses.is_empty(), Ordering::Relaxed);
        None
    }

    /// Returns the state that rules give the port and the device.
    pub(crate) fn state(&self, here: Here<'_>) -> State {
        self.rules.state(here.function, here.now)
    }
}
