//! The sending half at work: takes entries off the send queue and executes them against the peer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::sq::{Flags, Opcode};

use crate::cq::Completion;
use crate::exchange::{Exchange, Stop};
use crate::function::Function;
use crate::host::Host;
use crate::qp::{Peer, Qp, Requester, RequesterConfig, SendRing};
use crate::responder::{self, Refusal};
use crate::stats::Counter;
use crate::transfer::TURN;
use crate::wqe::{Malformed, Send};

/// How long to wait before a peer that did not answer is looked for again when there is no time-out.
const NO_TIMEOUT_RETRY_NS: u64 = 100_000_000;
/// How soon a peer without a receive is looked at again; twice as long each time.
const RNR_PAUSE_NS: u64 = 5_000;
/// Entries that a QP may execute in one turn.
pub const BATCH: u32 = 64;

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
    Partly,
    Failed(Status, u32),
    Retry,
    NotReady(u64),
}

/// Lets `qp` of `function` execute entries of its send queue.
pub fn run<H: Host>(function: &Arc<Function<H>>, qp: &Arc<Qp<H>>) -> Turn {
    let mut guard = qp.requester.lock();
    let requester = &mut *guard;
    let mut budget = TURN;
    for _ in 0..BATCH {
        if qp.dead.load(Ordering::Acquire) {
            return Turn::Idle;
        }
        match qp.state() {
            State::Rts => {}
            State::Sqd if requester.current.is_some() => {}
            State::Sqd => return drained(function, qp, requester),
            State::Err => return Turn::Failed,
            _ => return Turn::Idle,
        }
        if let Some(until) = requester.not_before {
            if function.host().now() < until {
                return Turn::Wait(until);
            }
            requester.not_before = None;
        }
        if requester.current.is_none() {
            match fetch(function, qp, requester) {
                Fetched::Entry => {}
                Fetched::Empty => return Turn::Idle,
                Fetched::Failed => return Turn::Failed,
            }
        }
        let step = execute(function, qp, requester, &mut budget);
        match finish(function, qp, requester, step) {
            Some(turn) => return turn,
            None if budget == 0 => break,
            None => {}
        }
    }
    Turn::More
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

enum Fetched {
    Entry,
    Empty,
    Failed,
}

/// Copies the next entry of the send queue, if one is posted, and checks it.
fn fetch<H: Host>(
    function: &Function<H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
) -> Fetched {
    let index = requester.ci;
    let len = match read_entry(function, qp, requester) {
        Ok(Some(len)) => len,
        Ok(None) => return Fetched::Empty,
        Err(why) => {
            function
                .warn(|name| tracing::warn!(function = name, qpn = qp.qpn, "send queue: {why}"));
            function.qp_failed(qp, Kind::QpFatal);
            return Fetched::Failed;
        }
    };
    advance(qp, requester);
    let bytes = requester.raw.get(..len).unwrap_or_default();
    match Send::parse(bytes, index) {
        Ok(send) => {
            count(function, &send);
            requester.retries = requester.config.retry_cnt;
            requester.rnr_retries = requester.config.rnr_retry;
            requester.rnr_until = None;
            requester.rnr_pause = 0;
            requester.done = 0;
            requester.current = Some(send);
            Fetched::Entry
        }
        Err(Malformed { wr_id, opcode, status }) => {
            function.stats().step(Counter::LocalErrors);
            let completion = Completion::of_send(qp.qpn, (wr_id, index), opcode, status);
            qp.fail();
            // An overflowing CQ has raised its own event, and the QP fails anyway.
            let _overflow = function.complete(&qp.send_cq, &completion);
            Fetched::Failed
        }
    }
}

/// Copies entry `requester.ci` into `requester.raw`; its length, or `None` when it is not posted.
fn read_entry<H: Host>(
    function: &Function<H>,
    qp: &Qp<H>,
    requester: &mut Requester<H>,
) -> Result<Option<usize>, &'static str> {
    let host = function.host();
    let index = requester.ci;
    match &qp.sq {
        SendRing::None => Ok(None),
        SendRing::Guest(ring) => {
            let posted = host.bar_load32(qp.slot_offset).wrapping_sub(index);
            if posted == 0 {
                return Ok(None);
            }
            if posted > ring.size() {
                return Err("producer index beyond the ring");
            }
            let into = requester.raw.get_mut(..ring.stride()).ok_or("stride")?;
            let addr = ring.addr(index).ok_or("entry outside its memory")?;
            host.read(addr, into).map_err(|_| "its memory cannot be read")?;
            Ok(Some(ring.stride()))
        }
        SendRing::Device { offset, log_size, log_stride } => {
            let slot = u64::from(index & ((1 << log_size) - 1));
            let at = offset + (slot << log_stride);
            let stamp = host.bar_load32(at + u64::from(vrnic_abi::sq::STAMP_OFFSET));
            if stamp != vrnic_abi::stamp(index) {
                return Ok(None);
            }
            let stride = 1 << log_stride;
            host.bar_read(at, requester.raw.get_mut(..stride).ok_or("stride")?);
            Ok(Some(stride))
        }
    }
}

/// The entry in `requester.raw` has been taken.
fn advance<H: Host>(qp: &Qp<H>, requester: &mut Requester<H>) {
    requester.ci = requester.ci.wrapping_add(1);
    qp.next_send.store(requester.ci, Ordering::Relaxed);
}

fn count<H: Host>(function: &Function<H>, send: &Send) {
    function.stats().step(match send.opcode {
        Opcode::Send | Opcode::SendImm => Counter::SendWqes,
        Opcode::Write | Opcode::WriteImm => Counter::WriteWqes,
        Opcode::Read => Counter::ReadWqes,
        Opcode::CmpSwp | Opcode::FetchAdd => Counter::AtomicWqes,
    });
}

/// Acts on what a step brought; `None` to go on with the next entry.
fn finish<H: Host>(
    function: &Function<H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    step: Step,
) -> Option<Turn> {
    let config = requester.config;
    let now = || function.host().now();
    match step {
        Step::Partly => Some(Turn::More),
        Step::Done { event_due } => {
            let turn = complete(function, qp, requester, Status::Success, 0);
            if let Some(peer) = requester.peer.as_ref().filter(|_| event_due) {
                peer.function.fire(&peer.qp.recv_cq);
            }
            turn
        }
        Step::Failed(status, vendor) => complete(function, qp, requester, status, vendor),
        Step::Retry if config.timeout == 0 => {
            wait(requester, now().saturating_add(NO_TIMEOUT_RETRY_NS))
        }
        Step::Retry if requester.retries == 0 => {
            function.stats().step(Counter::RetryExceeded);
            complete(function, qp, requester, Status::RetryExcErr, 0)
        }
        Step::Retry => {
            requester.retries -= 1;
            wait(requester, now().saturating_add(4096 << config.timeout.min(31)))
        }
        Step::NotReady(delay) => not_ready(function, qp, requester, delay),
    }
}

/// The peer has no receive. It will have asked for a pause of `delay` when its end comes; until then a look
/// now and then finds a receive that is posted early, as credits would tell.
fn not_ready<H: Host>(
    function: &Function<H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    delay: u64,
) -> Option<Turn> {
    let now = function.host().now();
    requester.rnr_pause = (requester.rnr_pause * 2).clamp(RNR_PAUSE_NS, delay.max(RNR_PAUSE_NS));
    if requester.rnr_until.is_none_or(|until| until <= now) {
        function.stats().step(Counter::RnrNakReceived);
        if let Some(peer) = &requester.peer {
            peer.function.stats().step(Counter::RnrNakSent);
        }
        if requester.rnr_retries == 0 {
            return complete(function, qp, requester, Status::RnrRetryExcErr, 0);
        }
        if requester.rnr_retries < 7 {
            requester.rnr_retries -= 1;
        }
        requester.rnr_until = Some(now.saturating_add(delay));
    }
    let until = requester.rnr_until.unwrap_or(now);
    wait(requester, until.min(now.saturating_add(requester.rnr_pause)))
}

fn wait<H: Host>(requester: &mut Requester<H>, until: u64) -> Option<Turn> {
    requester.not_before = Some(until);
    Some(Turn::Wait(until))
}

/// Ends the current entry with a status and, where one is due, a completion.
fn complete<H: Host>(
    function: &Function<H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    status: Status,
    vendor_err: u32,
) -> Option<Turn> {
    let send = requester.current.take()?;
    let ok = status == Status::Success;
    if !ok {
        // First the state, so that whoever sees the completion finds the QP in error.
        qp.fail();
    }
    if !ok || qp.signal_all || send.flags.contains(Flags::SIGNALED) {
        let reads = matches!(send.opcode, Opcode::Read | Opcode::CmpSwp | Opcode::FetchAdd);
        let byte_len = if ok && reads { u32::try_from(send.length).unwrap_or(u32::MAX) } else { 0 };
        let place = (send.wr_id, send.index);
        let completion = Completion {
            vendor_err,
            byte_len,
            ..Completion::of_send(qp.qpn, place, send.completed(), status)
        };
        if function.complete(&qp.send_cq, &completion).is_err() {
            function.qp_failed(qp, Kind::QpFatal);
            return Some(Turn::Failed);
        }
    }
    (!ok).then_some(Turn::Failed)
}

/// Takes the peer out of the cache, or finds it.
fn take_peer<H: Host>(function: &Function<H>, requester: &mut Requester<H>) -> Option<Peer<H>> {
    let cached = requester.peer.take().filter(|peer| !peer.qp.dead.load(Ordering::Acquire));
    let RequesterConfig { dmac, dest_qpn, .. } = requester.config;
    cached.or_else(|| function.fabric().find(dmac, dest_qpn))
}

/// Executes the current entry, or a turn of it.
fn execute<H: Host>(
    function: &Function<H>,
    qp: &Qp<H>,
    requester: &mut Requester<H>,
    budget: &mut u64,
) -> Step {
    let Some(peer) = take_peer(function, requester) else { return Step::Retry };
    let step = execute_with(function, qp, requester, &peer, budget);
    requester.peer = Some(peer);
    step
}

fn execute_with<H: Host>(
    function: &Function<H>,
    qp: &Qp<H>,
    requester: &mut Requester<H>,
    peer: &Peer<H>,
    budget: &mut u64,
) -> Step {
    if !function.link() || !peer.function.link() {
        return Step::Retry;
    }
    let Requester { current, raw, done, config, .. } = requester;
    let Some(send) = current else { return Step::Done { event_due: false } };
    let mut responder = peer.qp.responder.lock();
    // It may have been torn down, or belong to another connection.
    if !peer.qp.receives()
        || responder.source_qpn != qp.qpn
        || responder.source_mac != function.mac()
    {
        return Step::Retry;
    }
    peer.function.established(&peer.qp, &mut responder);
    let (from, to) = (*done, send.length.min(*done + *budget));
    *budget -= to - from;
    let max_rd_atomic = config.max_rd_atomic;
    let exchange = Exchange { function, qp, send, raw, peer, from, to, max_rd_atomic };
    match exchange.run(&mut responder) {
        Ok(()) if to < send.length => {
            *done = to;
            Step::Partly
        }
        Ok(()) => {
            function.stats().add(Counter::BytesSent, send.length);
            Step::Done { event_due: std::mem::take(&mut responder.event_due) }
        }
        Err(Stop::Local(status, vendor)) => {
            function.stats().step(Counter::LocalErrors);
            Step::Failed(status, vendor)
        }
        Err(Stop::Remote(Refusal::NotReady)) => {
            Step::NotReady(responder::rnr_delay(responder.min_rnr_timer))
        }
        Err(Stop::Remote(refusal)) => {
            let (status, vendor) = refusal.requester_status();
            responder::fail(peer, &mut responder, refusal);
            Step::Failed(status, vendor)
        }
    }
}

/// Completes up to [`BATCH`] entries of the send queue of a QP in the error state with a flush error;
/// returns how many.
pub fn flush<H: Host>(function: &Arc<Function<H>>, qp: &Arc<Qp<H>>) -> u32 {
    let mut guard = qp.requester.lock();
    let requester = &mut *guard;
    requester.not_before = None;
    let mut flushed = 0;
    while flushed < BATCH && qp.state() == State::Err && !qp.dead.load(Ordering::Acquire) {
        let (wr_id, wqe_index, opcode) = if let Some(send) = requester.current.take() {
            (send.wr_id, send.index, send.completed())
        } else {
            let Ok(Some(len)) = read_entry(function, qp, requester) else { break };
            let index = requester.ci;
            advance(qp, requester);
            match Send::parse(requester.raw.get(..len).unwrap_or_default(), index) {
                Ok(send) => (send.wr_id, index, send.completed()),
                Err(malformed) => (malformed.wr_id, index, malformed.opcode),
            }
        };
        function.stats().step(Counter::FlushedWqes);
        let status = Status::WrFlushErr;
        let completion = Completion::of_send(qp.qpn, (wr_id, wqe_index), opcode, status);
        if function.complete(&qp.send_cq, &completion).is_err() {
            break;
        }
        flushed += 1;
    }
    flushed
}
