//! A function: one adapter, with its registers, objects and work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Attr, State};
use vrnic_abi::{regs, uar};

use crate::cq::{Completion, Cq, Overflow};
use crate::eq::Eq;
use crate::fabric::Fabric;
use crate::host::Host;
use crate::limits;
use crate::memory::PageBudget;
use crate::objects::Objects;
use crate::qp::{Qp, Responder};
use crate::registers::Registers;
use crate::requester::{self, Turn};
use crate::schedule::Schedule;
use crate::slots::Owner;
use crate::stats::{Counter, Counters};
use crate::tpt::Tpt;
use crate::{responder, slots};

/// How soon a QP in the error state is looked at again for receives to flush, because posting one rings
/// no bell: at first, and at most.
const FLUSH_POLL_NS: u64 = 1_000_000;
const FLUSH_POLL_MAX_NS: u64 = 128_000_000;
/// How often held events are tried again.
const HELD_POLL_NS: u64 = 1_000_000;
/// Most turns of QPs in one poll.
const TURNS: usize = 64;

/// What a poll found.
#[derive(Clone, Copy, Debug, Default, PartialEq, std::cmp::Eq)]
pub struct Polled {
    /// Whether anything was done; poll again soon.
    pub busy: bool,
    /// When to poll again even if nothing rings, on [`Host::now`]'s clock.
    pub deadline: Option<u64>,
}

/// An adapter.
#[derive(Debug)]
pub struct Function<H: Host> {
    name: String,
    mac: [u8; 6],
    host: H,
    fabric: Arc<Fabric<H>>,
    pub(crate) registers: Registers,
    pub(crate) objects: Objects<H>,
    tpt: Tpt,
    stats: Counters,
    link: AtomicBool,
    heartbeat: AtomicU32,
    /// The asynchronous event queue, while the function is enabled.
    pub(crate) asynchronous: RwLock<Option<Arc<Eq>>>,
    /// Work that other threads have for this function's worker.
    inbox: Mutex<Vec<Arc<Qp<H>>>>,
    has_mail: AtomicBool,
    schedule: Mutex<Schedule<H>>,
}

impl<H: Host> Function<H> {
    /// A function after power-on, known to `fabric`.
    #[must_use]
    pub fn new(name: &str, mac: [u8; 6], host: H, fabric: &Arc<Fabric<H>>) -> Arc<Self> {
        let function = Arc::new(Self {
            name: name.to_owned(),
            mac,
            host,
            fabric: Arc::clone(fabric),
            registers: Registers::default(),
            objects: Objects::default(),
            tpt: Tpt::default(),
            stats: Counters::default(),
            link: AtomicBool::new(false),
            heartbeat: AtomicU32::new(0),
            asynchronous: RwLock::default(),
            inbox: Mutex::default(),
            has_mail: AtomicBool::new(false),
            schedule: Mutex::default(),
        });
        fabric.join(&function);
        function
    }

    /// The name, for logs.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The MAC of its port.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The surroundings.
    #[must_use]
    pub fn host(&self) -> &H {
        &self.host
    }

    /// What reading a page table needs.
    pub(crate) fn paging(&self) -> (&H, &Arc<PageBudget>) {
        (&self.host, &self.objects.page_budget)
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Counters {
        &self.stats
    }

    /// The other functions.
    #[must_use]
    pub fn fabric(&self) -> &Fabric<H> {
        &self.fabric
    }

    /// The regions.
    #[must_use]
    pub fn tpt(&self) -> &Tpt {
        &self.tpt
    }

    /// A QP by number.
    #[must_use]
    pub fn qp(&self, qpn: u32) -> Option<Arc<Qp<H>>> {
        self.objects.qps.get(qpn)
    }

    /// Whether the port has a link.
    #[must_use]
    pub fn link(&self) -> bool {
        self.link.load(Ordering::Acquire)
    }

    /// The port's link came or went.
    pub fn set_link(&self, up: bool) {
        if self.link.swap(up, Ordering::AcqRel) != up {
            self.report(if up { Kind::PortUp } else { Kind::PortDown }, 1);
            self.host.wake();
        }
    }

    /// Steps the heartbeat; due at least every [`regs::HEARTBEAT_PERIOD_MS`]. Its copy in UAR 0 stands
    /// still while the adapter serves nobody, so that a driver notices a reset that it did not ask for.
    pub fn beat(&self) {
        let beat = self.heartbeat.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let status = self.registers.status();
        if status.contains(regs::Status::ENABLED) && !status.contains(regs::Status::FATAL) {
            self.host.bar_store32(u64::from(uar::HEARTBEAT_OFFSET), beat);
        }
    }

    /// Reads a register of BAR0.
    #[must_use]
    pub fn read_register(&self, offset: u32) -> u32 {
        let [a, b, c, d, e, f] = self.mac;
        match offset {
            regs::MAGIC => regs::MAGIC_VALUE,
            regs::VERSION => vrnic_abi::ABI_VERSION,
            regs::STATUS => {
                let mut status = self.registers.status();
                status.set(regs::Status::LINK_UP, self.link());
                status.bits()
            }
            regs::HEARTBEAT => self.heartbeat.load(Ordering::Relaxed),
            regs::FATAL_CODE => self.registers.fatal_code(),
            regs::MAC_LO => u32::from_le_bytes([a, b, c, d]),
            regs::MAC_HI => u32::from_le_bytes([e, f, 0, 0]),
            regs::UAR_COUNT => uar::UAR_COUNT,
            regs::VECTOR_COUNT => u32::from(vrnic_abi::pci::MSIX_VECTORS),
            _ => 0,
        }
    }

    /// Writes a register of BAR0. Returns at once: what it starts is done by [`Self::control`] (true
    /// is returned when there is something for it) or by the worker.
    #[must_use]
    pub fn write_register(&self, offset: u32, value: u32) -> bool {
        if (regs::KICK..regs::KICK + regs::KICK_LEN).contains(&offset) {
            self.stats.step(Counter::Kicks);
            self.host.wake();
            return false;
        }
        self.registers.write(offset, value).unwrap_or_else(|why| {
            self.warn(|name| {
                tracing::warn!(
                    function = name,
                    "write of {value:#x} to {offset:#x} ignored: {why}"
                );
            });
            false
        })
    }

    /// Warns about what the guest does, at a bounded rate; `warn` gets the function's name.
    pub fn warn(&self, warn: impl FnOnce(&str)) {
        self.stats.limiter.warn(self.host.now(), || warn(&self.name));
    }

    /// Reports an asynchronous event.
    pub fn report(&self, kind: Kind, id: u32) {
        if let Some(eq) = self.asynchronous.read().as_ref() {
            eq.push(&self.host, &self.stats, kind, id);
        }
    }

    /// Writes a completion and reports an event if one is due.
    ///
    /// # Errors
    /// When the CQ has overflowed; its QPs cannot go on.
    pub fn complete(&self, cq: &Cq, completion: &Completion) -> Result<(), Overflow> {
        if self.complete_quietly(cq, completion)? {
            self.fire(cq);
        }
        Ok(())
    }

    /// Writes a completion; true when an event is due, which [`Self::fire`] reports. The first that
    /// finds the CQ full raises the CQ's error event.
    ///
    /// # Errors
    /// When the CQ has overflowed; its QPs cannot go on.
    pub fn complete_quietly(&self, cq: &Cq, completion: &Completion) -> Result<bool, Overflow> {
        let result = cq.push(&self.host, &self.stats, completion);
        if result == Err(Overflow::Now) {
            self.report(Kind::CqError, cq.cqn);
        }
        result
    }

    /// Reports an event of a CQ.
    pub fn fire(&self, cq: &Cq) {
        cq.fire(&self.host, &self.stats);
    }

    /// A QP has failed by itself: error state, event, flush.
    pub fn qp_failed(&self, qp: &Arc<Qp<H>>, kind: Kind) {
        if qp.fail() {
            self.report(kind, qp.qpn);
        }
        self.schedule(qp);
    }

    /// Reports the first message on a QP that waits for one.
    pub fn established(&self, qp: &Qp<H>, responder: &mut Responder) {
        if !responder.established {
            responder.established = true;
            if qp.state() == State::Rtr {
                self.report(Kind::CommEstablished, qp.qpn);
            }
        }
    }

    /// Gives a QP a turn soon; callable from any thread.
    pub fn schedule(&self, qp: &Arc<Qp<H>>) {
        if !qp.queued.swap(true, Ordering::AcqRel) {
            self.inbox.lock().push(Arc::clone(qp));
            self.has_mail.store(true, Ordering::Release);
            self.host.wake();
        }
    }

    /// Writes the `armed` word of all UARs in use.
    pub fn set_armed(&self, armed: bool) {
        for uar in self.objects.active_uars.read().iter() {
            let offset = slots::base(uar.number) + u64::from(uar::ARMED_OFFSET);
            self.host.bar_store32(offset, u32::from(armed));
        }
    }

    /// Whether a doorbell has rung or work waits; for the look between arming and sleeping.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let rung = |number| {
            self.host.bar_load64(slots::base(number) + u64::from(uar::SUMMARY_OFFSET)) != 0
        };
        self.has_mail.load(Ordering::Acquire)
            || self.objects.active_uars.read().iter().any(|uar| rung(uar.number))
    }

    /// Does a bounded amount of work. One thread at a time does any; another that calls meanwhile
    /// returns with nothing done.
    pub fn poll(self: &Arc<Self>) -> Polled {
        let Some(mut schedule) = self.schedule.try_lock() else { return Polled::default() };
        let mut busy = self.doorbells(&mut schedule);
        if self.has_mail.load(Ordering::Relaxed) && self.has_mail.swap(false, Ordering::AcqRel) {
            busy = true;
            schedule.extend(self.inbox.lock().drain(..));
        }
        busy |= schedule.run_timers(|| self.host.now());
        busy |= self.turns(&mut schedule);
        let (released, held) = self.release_events();
        let held = held.then(|| self.host.now() + HELD_POLL_NS);
        let deadline = schedule.deadline().into_iter().chain(held).min();
        Polled { busy: busy | released | schedule.has_active(), deadline }
    }

    /// Takes the summaries and looks at what rang.
    fn doorbells(&self, schedule: &mut Schedule<H>) -> bool {
        let mut busy = false;
        for uar in self.objects.active_uars.read().iter() {
            let offset = slots::base(uar.number) + u64::from(uar::SUMMARY_OFFSET);
            if self.host.bar_load64(offset) == 0 {
                continue;
            }
            busy = true;
            let mut groups = self.host.bar_take64(offset);
            while groups != 0 {
                let group = groups.trailing_zeros();
                groups &= groups - 1;
                let any = uar.group(group, |owner| match owner {
                    Owner::Qp(qp) => self.rung(schedule, qp),
                    Owner::Cq(cq) => {
                        let _armed = cq.look(&self.host, &self.stats);
                    }
                    Owner::Quiet => {}
                });
                if !any {
                    self.stats.step(Counter::BadDoorbells);
                }
            }
        }
        busy
    }

    /// A group with this QP rang: queue it if it has something new.
    fn rung(&self, schedule: &mut Schedule<H>, qp: &Arc<Qp<H>>) {
        if qp.state() == State::Err || qp.has_posted(&self.host) {
            schedule.activate(qp);
        }
    }

    fn turns(self: &Arc<Self>, schedule: &mut Schedule<H>) -> bool {
        let mut any = false;
        for _ in 0..TURNS {
            let Some(qp) = schedule.next() else { break };
            any = true;
            match requester::run(self, &qp) {
                Turn::Idle => {}
                Turn::More => schedule.activate(&qp),
                Turn::Wait(at) => schedule.set_timer(at, qp),
                Turn::Failed => self.flush(schedule, qp),
            }
        }
        any
    }

    /// Completes what is posted to a QP in the error state with a flush error.
    fn flush(self: &Arc<Self>, schedule: &mut Schedule<H>, qp: Arc<Qp<H>>) {
        let sends = requester::flush(self, &qp);
        let receives = responder::flush(self, &qp);
        if sends >= requester::BATCH || receives >= requester::BATCH {
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
        let at = self.host.now() + responder.flush_pause;
        drop(responder);
        schedule.set_timer(at, qp);
    }

    /// Ends all waiting of a QP that is destroyed.
    pub(crate) fn forget_qp(&self, qp: &Qp<H>) {
        // The lock is rarely free while the worker spins.
        if qp.timer.load(Ordering::SeqCst) != 0 {
            self.schedule.lock().clear_timer(qp);
        }
        if let Some(eq) = self.asynchronous.read().as_ref() {
            eq.forget(|kind, id| is_of_qp(kind) && id == qp.qpn);
        }
    }

    /// Drops the events of a CQ that is destroyed.
    pub(crate) fn forget_cq(&self, cq: &Cq) {
        cq.eq.forget(|_, id| id == cq.cqn);
        if let Some(eq) = self.asynchronous.read().as_ref() {
            eq.forget(|kind, id| kind == Kind::CqError && id == cq.cqn);
        }
    }

    fn release_events(&self) -> (bool, bool) {
        let (mut moved, mut held) = (false, false);
        let eqs = self.objects.active_eqs.read();
        for eq in eqs.iter().filter(|eq| eq.holding()) {
            moved |= eq.release(&self.host, &self.stats);
            held |= eq.holding();
        }
        (moved, held)
    }

    /// Does control work that a register write started: reset, enable, admin commands.
    pub fn control(self: &Arc<Self>) {
        if self.registers.take_reset() {
            self.reset();
            self.registers.reset_done();
        }
        if self.registers.take_enable() {
            crate::admin::enable(self);
        }
        crate::admin::run(self);
    }

    /// Destroys all objects and stops all access to guest memory, from any state and any thread.
    pub fn reset(self: &Arc<Self>) {
        let mut admin = self.objects.admin.lock();
        *admin = crate::objects::Admin::default();
        self.registers.clear();
        *self.asynchronous.write() = None;
        let qps = self.objects.qps.drain();
        for qp in &qps {
            qp.dead.store(true, Ordering::Release);
            qp.set_state(State::Reset);
        }
        for qp in &qps {
            qp.clear(&self.host);
        }
        self.schedule.lock().clear();
        self.inbox.lock().clear();
        self.objects.clear();
        self.tpt.clear();
        self.stats.clear();
        self.host.bar_clear();
        tracing::debug!(function = self.name, qps = qps.len(), "reset");
    }

    /// Attributes of a QP as they are now.
    #[must_use]
    pub fn query_qp(&self, qp: &Qp<H>) -> Attr {
        let mut attr = *qp.attr.lock();
        attr.state = qp.state() as u8;
        attr.cur_state = attr.state;
        attr
    }

    /// Limits of a function.
    #[must_use]
    pub fn caps(&self) -> vrnic_abi::admin::DeviceCaps {
        limits::caps()
    }
}

/// Whether an event of this kind names a QP.
fn is_of_qp(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::QpFatal
            | Kind::QpRequestError
            | Kind::QpAccessError
            | Kind::CommEstablished
            | Kind::SqDrained
    )
}
