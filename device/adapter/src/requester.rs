//! The sending half at work: takes entries off the send queue and executes them against the peer.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::{Flags, Opcode};

use crate::batch::Batch;
use crate::completion::{Completion, Key};
use crate::datagram;
use crate::exchange::{Exchange, Stop};
use crate::function::Function;
use crate::host::Host;
use crate::memops::{self, Settled};
use crate::qp::{Ended, Keys, Peer, Qp, Readers, Requester, RequesterConfig, Responder};
use crate::responder::{self, Refusal, There};
use crate::site::Site;
use crate::stats::Counter;
use crate::tpt::Denied;
use crate::traffic;
use crate::transfer::Side;
use crate::wqe::{Malformed, Send};

/// How long to wait before a peer that did not answer is looked for again when there is no time-out.
const NO_TIMEOUT_RETRY_NS: u64 = 100_000_000;
/// How soon a peer without a receive is looked at again; twice as long each time.
const RNR_PAUSE_NS: u64 = 5_000;
/// Entries that a QP may execute in one turn.
pub const BATCH: u32 = 64;

/// Times that a QP may wait in one turn until an ended key is not in use any more.
const WAITS: u32 = 16;
/// Opcodes from this one on are about keys; [`Work::about_keys`] sorts them out.
const FIRST_ABOUT_KEYS: u8 = Opcode::LocalInv as u8;

/// What a turn left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The queue is empty, or the QP may not send.
    Idle,
    /// There is more to do.
    More,
    /// Nothing to do before this time.
    Wait(u64),
    /// The QP has failed; its queues are to be flushed.
    Failed,
}

/// What came of one step of an entry.
enum Step {
    /// It is done; the peer's receive CQ may have an event due.
    Done {
        event_due: bool,
    },
    /// Bytes up to this one have been moved.
    Partly(u64),
    Failed(Status, u32),
    Retry,
    /// The message is lost, and its sender does not know.
    Lost,
    NotReady(u64),
    /// A request about a key was refused.
    Refused(Denied),
    /// A key has ended; the entry goes on when these do not use it any more.
    Readers(Readers, Option<Ended>),
}

/// An entry at work: what it asks for, and where its bytes stand in the batch.
struct Entry {
    send: Send,
    place: Range<usize>,
    /// Bytes that have been moved.
    done: u64,
}

/// A QP that has its turn.
struct Work<'a, H: Host> {
    here: Site<'a, H>,
    qp: &'a Arc<Qp<H>>,
    requester: &'a mut Requester<H>,
    batch: &'a mut Batch,
    /// The peer, and its receiving half.
    there: Option<(There<'a, H>, MutexGuard<'a, Responder>)>,
    /// Bytes that it may still move.
    budget: u64,
}

/// Lets `qp` of `function` execute entries of its send queue, which are copied to `batch`, and move `budget`
/// bytes.
pub fn run<H: Host>(
    function: &Arc<Function<H>>,
    qp: &Arc<Qp<H>>,
    batch: &mut Batch,
    budget: u64,
) -> Turn {
    let mut guard = qp.requester.lock();
    let requester = &mut *guard;
    for _ in 0..WAITS {
        if let Some(turn) = not_now(function, qp, requester) {
            return turn;
        }
        batch.clear();
        if qp.kind.is_datagram() {
            return datagram::run(&Site::new(function), qp, requester, batch);
        }
        let turn = connected(function, qp, requester, batch, budget);
        if !wait_for_readers(function, requester) {
            return turn;
        }
    }
    Turn::More
}

/// Lets a connected QP execute entries.
fn connected<H: Host>(
    function: &Arc<Function<H>>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
    budget: u64,
) -> Turn {
    // Out of the requester for the turn, whose other fields change meanwhile.
    let peer = take_peer(function, requester);
    let there = peer.as_ref().map(|Peer { function, qp }| {
        (There { site: Site::new(function), qp }, qp.responder.lock())
    });
    let mut work = Work { here: Site::new(function), qp, requester, batch, there, budget };
    let turn = work.run();
    drop(work);
    requester.peer = peer;
    turn
}

/// Waits for those who may still use a key that the entry in progress has ended, if it has; whether that is so. The
/// caller holds no memory.
fn wait_for_readers<H: Host>(function: &Function<H>, requester: &mut Requester<H>) -> bool {
    let Some(keys) = &mut requester.keys else { return false };
    let Some(readers) = keys.readers.take() else { return false };
    keys.waited = true;
    match (readers, &requester.peer) {
        (Readers::Own, _) => function.host().drain(),
        (Readers::Peer, Some(peer)) => {
            peer.function.host().drain();
            if let Some(Ended::Command(key)) = keys.ended {
                peer.function.tpt().finish_command(key);
            }
        }
        // The message came by a peer.
        (Readers::Peer, None) => {}
    }
    true
}

/// Why a QP does not execute its next entry at the moment.
#[inline]
pub(crate) fn not_now<H: Host>(
    function: &Function<H>,
    qp: &Qp<H>,
    requester: &mut Requester<H>,
) -> Option<Turn> {
    if qp.dead.load(Ordering::Acquire) {
        return Some(Turn::Idle);
    }
    match qp.state() {
        State::Rts => {}
        State::Sqd if requester.current.is_some() => {}
        State::Sqd => return Some(drained(function, qp, requester)),
        State::Err | State::Sqe => return Some(Turn::Failed),
        _ => return Some(Turn::Idle),
    }
    if let Some(until) = requester.not_before {
        if function.host().now() < until {
            return Some(Turn::Wait(until));
        }
        requester.not_before = None;
    }
    None
}

/// Takes the peer out of the cache, or finds it.
fn take_peer<H: Host>(function: &Function<H>, requester: &mut Requester<H>) -> Option<Peer<H>> {
    let cached = requester.peer.take().filter(|peer| !peer.qp.dead.load(Ordering::Acquire));
    let RequesterConfig { dmac, dest_qpn, .. } = requester.config;
    cached.or_else(|| function.fabric().find(dmac, dest_qpn))
}

fn drained<H: Host>(function: &Function<H>, qp: &Qp<H>, requester: &mut Requester<H>) -> Turn {
    let mut attr = qp.attr.lock();
    if attr.sq_draining != 0 {
        attr.sq_draining = 0;
        if requester.notify_drained {
            function.report(Kind::SqDrained, qp.qpn);
        }
    }
    Turn::Idle
}

enum Taken {
    Entry,
    Empty,
    Failed,
}

impl<H: Host> Work<'_, H> {
    fn run(&mut self) -> Turn {
        let mut entry = Entry { send: Send::EMPTY, place: 0..0, done: 0 };
        for _ in 0..BATCH {
            match self.take(&mut entry) {
                Taken::Entry => {}
                Taken::Empty => return Turn::Idle,
                Taken::Failed => return Turn::Failed,
            }
            let step = self.execute(&entry);
            if let Some(turn) = self.finish(&mut entry, step) {
                return turn;
            }
            if self.budget == 0 {
                break;
            }
            if let Some(turn) = not_now(self.here.function, self.qp, self.requester) {
                return turn;
            }
        }
        Turn::More
    }

    /// Makes `entry` the one in progress, or the next that is posted, checked.
    #[inline(always)]
    fn take(&mut self, entry: &mut Entry) -> Taken {
        let requester = &mut *self.requester;
        if let Some(send) = requester.current.take() {
            let place = self.batch.put(&requester.raw);
            *entry = Entry { send, place, done: requester.done };
            return Taken::Entry;
        }
        let index = requester.ci;
        let place = match self.batch.take(&self.here, self.qp, index) {
            Ok(Some(place)) => place,
            Ok(None) => return Taken::Empty,
            Err(why) => return self.broken_queue(why),
        };
        advance(self.qp, requester);
        match entry.send.parse_into(self.qp.kind, self.batch.entry(&place), index) {
            Ok(()) => {
                (entry.place, entry.done) = (place, 0);
                self.here.step(counter(&entry.send));
                requester.retries = requester.config.retry_cnt;
                requester.rnr_retries = requester.config.rnr_retry;
                requester.rnr_until = None;
                requester.rnr_pause = 0;
                requester.keys = None;
                Taken::Entry
            }
            Err(malformed) => self.malformed(&malformed, index),
        }
    }

    fn broken_queue(&self, why: &str) -> Taken {
        let (function, qp) = (self.here.function, self.qp);
        function.warn(|name| tracing::warn!(function = name, qpn = qp.qpn, "send queue: {why}"));
        function.qp_failed(qp, Kind::QpFatal);
        Taken::Failed
    }

    fn malformed(&self, malformed: &Malformed, index: u32) -> Taken {
        let Malformed { wr_id, opcode, status } = *malformed;
        let completion = Completion::of_send(self.qp.qpn, (wr_id, index), opcode, status);
        self.qp.fail_send();
        // An overflowing CQ has raised its own event, and the send queue fails anyway.
        let _overflow = self.here.complete(&self.qp.send_cq, &completion);
        Taken::Failed
    }

    /// Keeps an entry for the next turn.
    fn keep(&mut self, entry: &Entry) {
        let raw = self.batch.entry(&entry.place);
        if let Some(kept) = self.requester.raw.get_mut(..raw.len()) {
            kept.copy_from_slice(raw);
        }
        self.requester.done = entry.done;
        self.requester.current = Some(entry.send);
    }

    /// Executes an entry, or a turn of it.
    #[inline]
    fn execute(&mut self, entry: &Entry) -> Step {
        if entry.send.opcode as u8 >= FIRST_ABOUT_KEYS
            && let Some(step) = self.about_keys(entry)
        {
            return step;
        }
        let Some((there, responder)) = &mut self.there else { return Step::Retry };
        let Entry { send, place, done } = entry;
        let (here, qp) = (&self.here, &**self.qp);
        if !here.function.carries() || !there.site.function.carries() {
            return Step::Retry;
        }
        // It may have been torn down, or belong to another connection.
        if !there.qp.receives()
            || there.qp.kind != qp.peer_kind
            || responder.source_qpn != qp.qpn
            || responder.source_mac != here.function.mac()
        {
            return Step::Retry;
        }
        there.site.function.established(there.qp, responder);
        let (from, to) = (*done, send.length.min(done.saturating_add(self.budget)));
        self.budget -= to - from;
        let raw = self.batch.entry(place);
        let max_rd_atomic = self.requester.config.max_rd_atomic;
        let keys = self.requester.keys.unwrap_or_default();
        let exchange = Exchange { here, qp, send, raw, there, from, to, max_rd_atomic, keys };
        let moved = if keys.waited {
            if responder.current.is_none() {
                // Flushed meanwhile.
                return Step::Retry;
            }
            exchange.arrive(responder).map(|()| None)
        } else {
            exchange.run(responder)
        };
        match moved {
            Ok(None) if to < send.length => Step::Partly(to),
            Ok(Some(ended)) => Step::Readers(Readers::Peer, Some(ended)),
            Ok(None) => {
                traffic::executed(here, &there.site, send, self.requester.config.mtu);
                Step::Done { event_due: std::mem::take(&mut responder.event_due) }
            }
            Err(Stop::Local(status, vendor)) => Step::Failed(status, vendor),
            Err(Stop::Remote(refusal)) if qp.kind == Type::Uc => {
                // Nobody answers. What is wrong with the receiver itself, it must know nevertheless.
                match refusal {
                    Refusal::Operational | Refusal::Malformed => {
                        responder::fail(there, responder, refusal);
                    }
                    Refusal::NotReady => there.site.step(Counter::OutOfBuffer),
                    _ => {}
                }
                Step::Lost
            }
            Err(Stop::Remote(Refusal::NotReady)) => {
                Step::NotReady(responder::rnr_delay(responder.min_rnr_timer))
            }
            Err(Stop::Remote(refusal)) => {
                let (status, vendor) = refusal.requester_status();
                responder::fail(there, responder, refusal);
                Step::Failed(status, vendor)
            }
        }
    }

    /// What an entry about keys does before, or instead of, an exchange with the peer.
    #[cold]
    fn about_keys(&mut self, entry: &Entry) -> Option<Step> {
        let Entry { send, place, .. } = entry;
        let raw = self.batch.entry(place);
        let keys = self.requester.keys.unwrap_or_default();
        if send.opcode == Opcode::SendCmd && keys.command.is_none() {
            match memops::open_command(&self.here, self.qp, (send, raw)) {
                Ok(key) => self.requester.keys = Some(Keys { command: Some(key), ..keys }),
                Err(denied) => return Some(Step::Refused(denied)),
            }
        }
        if !send.is_about_key() {
            return None;
        }
        if keys.waited {
            return Some(Step::Done { event_due: false });
        }
        Some(match memops::run(&self.here, self.qp, (send, raw)) {
            Ok(Settled::Now) => Step::Done { event_due: false },
            Ok(Settled::AfterReaders) => Step::Readers(Readers::Own, None),
            Err(denied) => Step::Refused(denied),
        })
    }

    /// Acts on what a step brought; `None` to go on with the next entry.
    #[inline]
    fn finish(&mut self, entry: &mut Entry, step: Step) -> Option<Turn> {
        match step {
            Step::Done { event_due } => {
                let turn = self.complete(&entry.send, Status::Success, 0);
                if let Some((there, _)) = self.there.as_ref().filter(|_| event_due) {
                    there.site.function.fire(&there.qp.recv_cq);
                }
                turn
            }
            Step::Failed(status, vendor) => self.complete(&entry.send, status, vendor),
            Step::Partly(done) => {
                entry.done = done;
                self.keep(entry);
                Some(Turn::More)
            }
            Step::Retry if self.qp.kind == Type::Uc => self.lost(entry),
            Step::Lost => self.lost(entry),
            Step::Retry => self.retry(entry),
            Step::NotReady(delay) => self.not_ready(entry, delay),
            Step::Refused(denied) => self.refused(&entry.send, denied),
            Step::Readers(readers, ended) => {
                let keys = self.requester.keys.unwrap_or_default();
                self.requester.keys = Some(Keys { ended, readers: Some(readers), ..keys });
                self.keep(entry);
                Some(Turn::More)
            }
        }
    }

    /// A request about a key was refused: the send queue fails alone, or the QP does and its peer is told.
    #[cold]
    fn refused(&self, send: &Send, denied: Denied) -> Option<Turn> {
        self.qp.fail_key();
        if !self.qp.reactive
            && let Some((there, responder)) = &self.there
            && responder.source_qpn == self.qp.qpn
            && responder.source_mac == self.here.function.mac()
            && there.qp.receives()
        {
            there.site.function.qp_failed(there.qp, Kind::QpFatal);
        }
        self.complete(send, Status::MwBindErr, denied as u32)
    }

    /// A message of an unreliable connection is lost, which its sender does not know. What is wrong with the
    /// sender's own memory it must know nevertheless.
    #[cold]
    fn lost(&self, entry: &Entry) -> Option<Turn> {
        let raw = self.batch.entry(&entry.place);
        let mut source = Side::default();
        if let Err(denied) =
            datagram::add_source(&self.here, self.qp, (&entry.send, raw), &mut source)
        {
            return self.complete(&entry.send, denied.local_status(), denied as u32);
        }
        if self.here.function.carries() {
            traffic::sent(&self.here, &entry.send, self.requester.config.mtu);
        }
        self.here.step(Counter::TxRoceDiscards);
        self.complete(&entry.send, Status::Success, 0)
    }

    /// The peer does not answer.
    fn retry(&mut self, entry: &Entry) -> Option<Turn> {
        let now = self.here.host().now();
        let config = self.requester.config;
        if config.timeout == 0 {
            return self.wait(entry, now.saturating_add(NO_TIMEOUT_RETRY_NS));
        }
        self.here.step(Counter::LocalAckTimeoutErr);
        if self.requester.retries == 0 {
            return self.complete(&entry.send, Status::RetryExcErr, 0);
        }
        self.requester.retries -= 1;
        self.wait(entry, now.saturating_add(4096 << config.timeout.min(31)))
    }

    /// The peer has no receive. It will have asked for a pause of `delay` when its end comes; until then a
    /// look now and then finds a receive that is posted early, as credits would tell.
    fn not_ready(&mut self, entry: &Entry, delay: u64) -> Option<Turn> {
        let now = self.here.host().now();
        let requester = &mut *self.requester;
        requester.rnr_pause =
            (requester.rnr_pause * 2).clamp(RNR_PAUSE_NS, delay.max(RNR_PAUSE_NS));
        if requester.rnr_until.is_none_or(|until| until <= now) {
            if let Some((there, _)) = &self.there {
                there.site.step(Counter::OutOfBuffer);
                there.site.step(Counter::SendRnrErr);
            }
            if requester.rnr_retries == 0 {
                return self.complete(&entry.send, Status::RnrRetryExcErr, 0);
            }
            self.here.step(Counter::RnrNakRetryErr);
            if requester.rnr_retries < 7 {
                requester.rnr_retries -= 1;
            }
            requester.rnr_until = Some(now.saturating_add(delay));
        }
        let until = requester.rnr_until.unwrap_or(now);
        let pause = requester.rnr_pause;
        self.wait(entry, until.min(now.saturating_add(pause)))
    }

    fn wait(&mut self, entry: &Entry, until: u64) -> Option<Turn> {
        self.keep(entry);
        self.requester.not_before = Some(until);
        Some(Turn::Wait(until))
    }

    /// Ends an entry with a status and, where one is due, a completion.
    #[inline]
    fn complete(&self, send: &Send, status: Status, vendor_err: u32) -> Option<Turn> {
        let (here, qp) = (&self.here, self.qp);
        let ok = status == Status::Success;
        if !ok && status != Status::MwBindErr {
            // First the state, so that whoever sees the completion finds the QP in error.
            qp.fail_send();
        }
        if !ok || qp.signal_all || send.flags.contains(Flags::SIGNALED) {
            let reads = matches!(send.opcode, Opcode::Read | Opcode::CmpSwp | Opcode::FetchAdd);
            let byte_len =
                if ok && reads { u32::try_from(send.length).unwrap_or(u32::MAX) } else { 0 };
            let place = (send.wr_id, send.index);
            let completion = Completion {
                vendor_err,
                byte_len,
                key: self.requester.keys.and_then(|keys| keys.command).map(Key::Carried),
                ..Completion::of_send(qp.qpn, place, send.completed(), status)
            };
            if here.complete(&qp.send_cq, &completion).is_err() {
                here.function.qp_failed(qp, Kind::QpFatal);
                return Some(Turn::Failed);
            }
        }
        (!ok).then_some(Turn::Failed)
    }
}

/// An entry has been taken.
#[inline]
pub(crate) fn advance<H: Host>(qp: &Qp<H>, requester: &mut Requester<H>) {
    requester.ci = requester.ci.wrapping_add(1);
    qp.next_send.store(requester.ci, Ordering::Relaxed);
}

fn counter(send: &Send) -> Counter {
    match send.opcode {
        Opcode::Send | Opcode::SendImm | Opcode::SendInv => Counter::TxSendReq,
        Opcode::Write | Opcode::WriteImm => Counter::TxWriteReq,
        Opcode::Read => Counter::TxReadReq,
        Opcode::CmpSwp | Opcode::FetchAdd => Counter::TxAtomicReq,
        Opcode::LocalInv => Counter::LocalInvWqes,
        Opcode::RegMr => Counter::RegWqes,
        Opcode::BindMw => Counter::BindWqes,
        Opcode::SendCmd => Counter::CommandWqes,
    }
}

/// Completes up to [`BATCH`] entries of the send queue of a QP in the error state with a flush error;
/// returns how many.
pub fn flush<H: Host>(function: &Arc<Function<H>>, qp: &Arc<Qp<H>>, batch: &mut Batch) -> u32 {
    let mut guard = qp.requester.lock();
    let requester = &mut *guard;
    let here = Site::new(function);
    batch.clear();
    requester.not_before = None;
    let mut flushed = 0;
    while flushed < BATCH && qp.flushes_sends() && !qp.dead.load(Ordering::Acquire) {
        let (wr_id, wqe_index, opcode) = if let Some(send) = requester.current.take() {
            (send.wr_id, send.index, send.completed())
        } else {
            let index = requester.ci;
            let Ok(Some(place)) = batch.take(&here, qp, index) else { break };
            advance(qp, requester);
            match Send::parse(qp.kind, batch.entry(&place), index) {
                Ok(send) => (send.wr_id, index, send.completed()),
                Err(malformed) => (malformed.wr_id, index, malformed.opcode),
            }
        };
        let status = Status::WrFlushErr;
        let completion = Completion::of_send(qp.qpn, (wr_id, wqe_index), opcode, status);
        if here.complete(&qp.send_cq, &completion).is_err() {
            break;
        }
        flushed += 1;
    }
    flushed
}
