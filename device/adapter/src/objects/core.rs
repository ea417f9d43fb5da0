//! The part of an adapter that all of its objects and turns share. It refers to no objects except
//! event and completion queues.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, RwLock};
use vrnic_abi::Qpn;
use vrnic_abi::eq::Kind;
use vrnic_faults::Rules;
use vrnic_packet::MacAddr;
use vrnic_roce::congestion::Parameters;

use crate::domain::Domain;
use crate::ethernet::{Classified, Inbox};
use crate::host::{Host, Lane};
use crate::objects::context::Caller;
use crate::objects::counter_sets::Counted;
use crate::objects::cq::Cq;
use crate::objects::cq::failing::Failing;
use crate::objects::cq::resuming::Resuming;
use crate::objects::direct::mark_wait::MarkWaits;
use crate::objects::direct::ranges::Ranges;
use crate::objects::eq::EventQueue;
use crate::objects::faults::injection::{Here, Injection};
use crate::objects::moderation::Moderation;
use crate::objects::optional_counters::OptionalCounters;
use crate::objects::pace::Pace;
use crate::port::Port;
use crate::slice::{Slice, cost};
use crate::stats::Counters;

/// The host, the identity, the counters, the port and the events of an adapter.
#[derive(Debug)]
pub struct Core<H: Host> {
    name: String,
    mac: MacAddr,
    domain: Domain,
    host: H,
    stats: Counters,
    pub(crate) port: Port,
    /// The ceilings of the function.
    pub(crate) pace: Pace,
    /// The parameters of DCQCN for RoCE connections, if they have rates in place of windows.
    pub(crate) dcqcn: RwLock<Option<Parameters>>,
    /// The asynchronous event queue, while the adapter is enabled.
    pub(crate) asynchronous: RwLock<Option<Arc<EventQueue>>>,
    /// Events that wait for more completions (interrupt moderation).
    pub(crate) moderation: Moderation,
    /// CQs that have failed and whose QPs must be ended.
    pub(crate) failing: Failing,
    /// Holding CQs that may have room again.
    pub(crate) resuming: Resuming,
    /// Address ranges of direct transfers.
    pub(crate) ranges: Ranges,
    /// QPs whose AWAITs wait for a mark.
    pub(crate) mark_waits: MarkWaits,
    /// QPs whose work is counted by sets.
    pub(crate) counted: Counted,
    /// Counters that the guest's administrator has switched on.
    pub(crate) optional: OptionalCounters,
    /// Faults by rules.
    pub(crate) injection: Injection,
    /// QPs for which other threads have requested a turn, by worker.
    mail: Box<[CachePadded<Mail>]>,
    /// Frames that have arrived, by worker.
    inboxes: Box<[CachePadded<Inbox>]>,
    /// True if no more work requests begin, because the daemon ends.
    closing: AtomicBool,
}

/// The identity of an adapter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity<'a> {
    pub(crate) name: &'a str,
    /// The MAC of its port.
    pub(crate) mac: MacAddr,
    /// The domain of its objects.
    pub(crate) domain: Domain,
}

/// Numbers of QPs for which other threads have requested a turn.
#[derive(Debug, Default)]
struct Mail {
    qpns: Mutex<VecDeque<Qpn>>,
    any: AtomicBool,
}

impl<H: Host> Core<H> {
    /// Creates the core of an adapter with this many workers, in its state after power-on.
    pub(crate) fn new(identity: Identity<'_>, host: H, workers: usize, rules: &Arc<Rules>) -> Self {
        let Identity { name, mac, domain } = identity;
        let stats = Counters::new(Lane::count(workers));
        Self {
            name: name.to_owned(),
            mac,
            domain,
            host,
            stats,
            port: Port::default(),
            pace: Pace::default(),
            dcqcn: RwLock::default(),
            asynchronous: RwLock::default(),
            moderation: Moderation::default(),
            failing: Failing::default(),
            resuming: Resuming::default(),
            ranges: Ranges::default(),
            mark_waits: MarkWaits::default(),
            counted: Counted::default(),
            optional: OptionalCounters::default(),
            injection: Injection::new(rules, name),
            mail: (0..workers).map(|_| CachePadded::default()).collect(),
            inboxes: (0..workers).map(|_| CachePadded::default()).collect(),
            closing: AtomicBool::new(false),
        }
    }

    /// Returns the name, for logs.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the MAC of the port.
    #[must_use]
    pub fn mac(&self) -> MacAddr {
        self.mac
    }

    /// Returns the domain of all of its objects.
    #[inline]
    #[must_use]
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Returns the host.
    #[inline]
    #[must_use]
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> &Counters {
        &self.stats
    }

    /// Returns host and counters, for a thread in `lane`.
    #[inline]
    #[must_use]
    pub fn caller(&self, lane: Lane) -> Caller<'_, H> {
        let Self { name, host, stats, pace, injection, .. } = self;
        Caller { name, host, stats, pace, injection: Some(injection), lane }
    }

    /// Returns the same for things that rules for faults have held back. The rules do not look at
    /// them again.
    pub(crate) fn late_caller(&self, lane: Lane) -> Caller<'_, H> {
        Caller { injection: None, ..self.caller(lane) }
    }

    /// Returns the function and the time, for rules for faults.
    pub(crate) fn here(&self) -> Here<'_> {
        Here { function: &self.name, now: self.host.now() }
    }

    /// Returns whether the work requests of all QPs take the slow path: for rules, a trace,
    /// ceilings or optional counters.
    #[inline]
    pub(crate) fn is_unusual(&self) -> bool {
        self.injection.is_active() || self.pace.is_limited() || self.optional.any()
    }

    /// Returns whether the port carries traffic: it has a link, and the driver has opened it.
    #[inline]
    #[must_use]
    pub fn carries(&self) -> bool {
        self.port.carries()
    }

    /// Returns the maximum packet payload of the port, as `enum ib_mtu`.
    #[inline]
    #[must_use]
    pub fn mtu(&self) -> u8 {
        self.port.mtu()
    }

    /// Returns the maximum packet payload of the port in bytes.
    #[must_use]
    pub fn mtu_bytes(&self) -> u64 {
        128 << self.mtu()
    }

    /// Returns whether a driver has enabled the adapter.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.asynchronous.read().is_some()
    }

    /// Begins no more work requests, for good.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Returns whether no more work requests begin.
    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Logs a warning about the guest's behaviour, at a bounded rate. `warn` gets the adapter's
    /// name.
    pub fn warn(&self, warn: impl FnOnce(&str)) {
        self.stats.limiter.warn(self.host.now(), || warn(&self.name));
    }

    /// Reports an asynchronous event.
    pub fn report(&self, kind: Kind, id: impl Into<u32>) {
        if let Some(queue) = self.asynchronous.read().as_ref() {
            queue.push(&self.caller(Lane::SHARED), kind, id.into());
        }
    }

    /// Handles a CQ that has failed: reports its event, and ends the QPs that use it, including
    /// idle ones, in this poll and the next ones. The caller may hold the lock of any of these QPs.
    #[cold]
    pub(crate) fn cq_failed(&self, cq: &Arc<Cq>) {
        self.report(Kind::CqError, cq.cqn);
        self.failing.add(cq);
        self.host.wake(0);
    }

    /// Lets a worker write the entries that a CQ holds back, if there is room for them. Can be
    /// called from any thread.
    #[cold]
    pub(crate) fn resume_cq(&self, cq: &Arc<Cq>) {
        self.resuming.add(cq);
        self.host.wake(0);
    }

    /// Runs work for this adapter in another adapter's turn. A panic in it counts as a failure of
    /// this adapter.
    pub(crate) fn contain(&self, work: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.host.fail();
        }
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.mail.len()
    }

    /// Waits until invalidated keys are no longer used. The caller must not hold guest memory.
    pub(crate) fn wait_for_readers(&self, slice: &Slice<'_, H>) {
        self.host.drain();
        slice.charge(cost::readers(self.workers()));
    }

    /// Requests a turn for a QP from its worker, and wakes the worker. Can be called from any
    /// thread.
    pub(crate) fn post(&self, worker: usize, qpn: Qpn) {
        if let Some(mail) = self.mail.get(worker) {
            mail.qpns.lock().push_back(qpn);
            mail.any.store(true, Ordering::Release);
            self.host.wake(worker);
        }
    }

    /// Returns whether a turn was requested from a worker.
    pub(crate) fn has_mail(&self, worker: usize) -> bool {
        self.mail.get(worker).is_some_and(|mail| mail.any.load(Ordering::Acquire))
            || self.inboxes.get(worker).is_some_and(|inbox| inbox.any())
    }

    /// Queues a frame for a worker, and wakes the worker. Returns whether there was room. Can be
    /// called from any thread.
    pub(crate) fn put_frame(&self, worker: usize, frame: Classified) -> bool {
        self.put(worker, |inbox| inbox.put(frame))
    }

    /// Queues a copy of a frame for a sniffer of a worker, as [`Self::put_frame`] does.
    pub(crate) fn put_copy(&self, worker: usize, frame: Classified) -> bool {
        self.put(worker, |inbox| inbox.put_copy(frame))
    }

    fn put(&self, worker: usize, put: impl FnOnce(&Inbox) -> bool) -> bool {
        let put = self.inboxes.get(worker).is_some_and(|inbox| put(inbox));
        if put {
            self.host.wake(worker);
        }
        put
    }

    /// Returns the number of frames for which a sender that asks has room at every worker.
    pub(crate) fn frame_room(&self) -> usize {
        self.inboxes.iter().map(|inbox| inbox.room()).min().unwrap_or(0)
    }

    /// Moves frames that were queued for a worker to the end of `to`, until it has `limit` frames.
    #[inline]
    pub(crate) fn take_frames(&self, worker: usize, to: &mut VecDeque<Classified>, limit: usize) {
        if let Some(inbox) = self.inboxes.get(worker).filter(|inbox| inbox.any()) {
            inbox.take(to, limit.saturating_sub(to.len()));
        }
    }

    /// Takes turns that were requested from a worker, at least one. Returns whether there were any.
    #[inline]
    pub(crate) fn fetch_mail(
        &self,
        worker: usize,
        slice: &Slice<'_, H>,
        mut each: impl FnMut(Qpn),
    ) -> bool {
        let Some(mail) = self.mail.get(worker) else { return false };
        if !mail.any.load(Ordering::Acquire) {
            return false;
        }
        let mut qpns = mail.qpns.lock();
        while let Some(qpn) = qpns.pop_front() {
            each(qpn);
            slice.charge(cost::MAIL);
            if slice.is_over() {
                break;
            }
        }
        // Under the lock, so that a turn that is requested from now on is not overlooked.
        mail.any.store(!qpns.is_empty(), Ordering::Release);
        true
    }

    /// Discards requested turns, queued frames, waiting events and direct transfers.
    pub(crate) fn clear_work(&self) {
        self.moderation.clear();
        self.failing.clear();
        self.resuming.clear();
        self.ranges.clear();
        self.mark_waits.clear();
        self.counted.clear();
        self.optional.clear();
        self.injection.clear();
        self.mail.iter().for_each(|mail| mail.qpns.lock().clear());
        self.inboxes.iter().for_each(|inbox| inbox.clear());
    }
}
