//! The sending half at work: takes entries off the send queue and executes them against the peer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Access, State};
use vrnic_abi::sq::{Flags, Opcode};

use crate::cq::Completion;
use crate::function::Function;
use crate::host::Host;
use crate::qp::{Peer, Qp, Requester, RequesterConfig, SendRing};
use crate::responder::{self, Refusal};
use crate::stats::Counter;
use crate::transfer::{Broken, Side, TURN, copy};
use crate::wqe::{Malformed, Send};

/// How long to wait before a peer that did not answer is looked for again when there is no time-out.
const NO_TIMEOUT_RETRY_NS: u64 = 100_000_000;
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
enum Step<H: Host> {
    /// It is done; the receive CQ of a peer may have an event due.
    Done(Option<Peer<H>>),
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
    step: Step<H>,
) -> Option<Turn> {
    let config = requester.config;
    let now = || function.host().now();
    match step {
        Step::Partly => Some(Turn::More),
        Step::Done(due) => {
            let turn = complete(function, qp, requester, Status::Success, 0);
            if let Some(peer) = due {
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
        Step::NotReady(delay) => {
            function.stats().step(Counter::RnrNakReceived);
            if requester.rnr_retries == 0 {
                return complete(function, qp, requester, Status::RnrRetryExcErr, 0);
            }
            if requester.rnr_retries < 7 {
                requester.rnr_retries -= 1;
            }
            wait(requester, now().saturating_add(delay))
        }
    }
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

/// Finds the peer, through the cache.
fn peer<H: Host>(function: &Function<H>, requester: &mut Requester<H>) -> Option<Peer<H>> {
    if let Some(peer) = &requester.peer
        && !peer.qp.dead.load(Ordering::Acquire)
    {
        return Some(peer.clone());
    }
    let RequesterConfig { dmac, dest_qpn, .. } = requester.config;
    requester.peer = function.fabric().find(dmac, dest_qpn);
    requester.peer.clone()
}

/// Executes the current entry, or a turn of it.
fn execute<H: Host>(
    function: &Function<H>,
    qp: &Qp<H>,
    requester: &mut Requester<H>,
    budget: &mut u64,
) -> Step<H> {
    let Some(peer) = peer(function, requester).filter(|peer| peer.qp.receives()) else {
        requester.peer = None;
        return Step::Retry;
    };
    if !function.link() || !peer.function.link() {
        return Step::Retry;
    }
    let Requester { current, raw, done, config, .. } = requester;
    let Some(send) = current else { return Step::Done(None) };
    let mut responder = peer.qp.responder.lock();
    // Looked at again under its lock: it may have been torn down, or belong to another connection.
    if !peer.qp.receives()
        || responder.source_qpn != qp.qpn
        || responder.source_mac != function.mac()
    {
        return Step::Retry;
    }
    peer.function.established(&peer.qp, &mut responder);
    let to = send.length.min(*done + *budget);
    *budget -= to - *done;
    let result = match send.opcode {
        Opcode::Send | Opcode::SendImm => {
            send_message(function, qp, (send, raw), &peer, &mut responder, *done, to)
        }
        Opcode::Write | Opcode::WriteImm => {
            write(function, qp, (send, raw), &peer, &mut responder, *done, to)
        }
        Opcode::Read => {
            read(function, qp, send, &peer, &responder, (*done, to, config.max_rd_atomic))
        }
        Opcode::CmpSwp | Opcode::FetchAdd => {
            atomic(function, qp, send, &peer, &responder, config.max_rd_atomic)
        }
    };
    match result {
        Ok(()) if to < send.length => {
            *done = to;
            Step::Partly
        }
        Ok(()) => {
            function.stats().add(Counter::BytesSent, send.length);
            let due = std::mem::take(&mut responder.event_due);
            drop(responder);
            Step::Done(due.then_some(peer))
        }
        Err(Stop::Local(status, vendor)) => {
            function.stats().step(Counter::LocalErrors);
            Step::Failed(status, vendor)
        }
        Err(Stop::Remote(refusal)) => remote_failure(&peer, &mut responder, refusal),
    }
}

/// Why an entry could not be executed.
enum Stop {
    Local(Status, u32),
    Remote(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Remote(refusal)
    }
}

fn remote_failure<H: Host>(
    peer: &Peer<H>,
    responder: &mut crate::qp::Responder,
    refusal: Refusal,
) -> Step<H> {
    match refusal {
        Refusal::NotReady => {
            peer.function.stats().step(Counter::RnrNakSent);
            Step::NotReady(responder::rnr_delay(responder.min_rnr_timer))
        }
        Refusal::Gone => Step::Retry,
        Refusal::Invalid
        | Refusal::Access(_)
        | Refusal::Operational
        | Refusal::Malformed
        | Refusal::TooShort => {
            let (status, vendor) = refusal.requester_status();
            responder::fail(peer, responder, refusal);
            Step::Failed(status, vendor)
        }
    }
}

/// The requester's own memory, to be read.
fn source<'a, H: Host>(
    function: &Function<H>,
    qp: &Qp<H>,
    send: &Send,
    raw: &'a [u8],
) -> Result<Side<'a>, Stop> {
    match send.inline(raw) {
        Some(data) => Ok(Side::inline(data)),
        None => Side::segments(function.tpt(), qp.pdn, &send.segments, Access::empty())
            .map_err(|denied| Stop::Local(denied.local_status(), denied as u32)),
    }
}

fn local_broken(broken: Broken, own: Broken) -> Stop {
    match (broken, own) {
        (Broken::Source, Broken::Source) | (Broken::Target, Broken::Target) => {
            Stop::Local(Status::LocProtErr, crate::tpt::Denied::Memory as u32)
        }
        _ => Stop::Remote(Refusal::Operational),
    }
}

fn send_message<H: Host>(
    function: &Function<H>,
    qp: &Qp<H>,
    (send, raw): (&Send, &[u8]),
    peer: &Peer<H>,
    responder: &mut crate::qp::Responder,
    from: u64,
    to: u64,
) -> Result<(), Stop> {
    let source = source(function, qp, send, raw)?;
    let target = responder::receive(peer, responder, send.length, from)?;
    copy((&source, function.host()), (&target, peer.function.host()), from, to)
        .map_err(|broken| local_broken(broken, Broken::Source))?;
    drop(target);
    if to == send.length {
        let solicited = send.flags.contains(Flags::SOLICITED);
        responder::received(peer, responder, send, qp.qpn, solicited)?;
    }
    Ok(())
}

fn write<H: Host>(
    function: &Function<H>,
    qp: &Qp<H>,
    (send, raw): (&Send, &[u8]),
    peer: &Peer<H>,
    responder: &mut crate::qp::Responder,
    from: u64,
    to: u64,
) -> Result<(), Stop> {
    let source = source(function, qp, send, raw)?;
    let target = responder::remote(peer, responder, send, Access::REMOTE_WRITE)?;
    if send.imm().is_some() {
        // A receive must be there before anything lands.
        responder::take(peer, responder, from)?;
    }
    copy((&source, function.host()), (&target, peer.function.host()), from, to)
        .map_err(|broken| local_broken(broken, Broken::Source))?;
    drop(target);
    peer.function.stats().add(Counter::BytesReceived, to - from);
    if to == send.length && send.imm().is_some() {
        let solicited = send.flags.contains(Flags::SOLICITED);
        responder::received(peer, responder, send, qp.qpn, solicited)?;
    }
    Ok(())
}

fn read<H: Host>(
    function: &Function<H>,
    qp: &Qp<H>,
    send: &Send,
    peer: &Peer<H>,
    responder: &crate::qp::Responder,
    (from, to, max_rd_atomic): (u64, u64, u8),
) -> Result<(), Stop> {
    may_read(max_rd_atomic, responder)?;
    let target = Side::segments(function.tpt(), qp.pdn, &send.segments, Access::LOCAL_WRITE)
        .map_err(|denied| Stop::Local(denied.local_status(), denied as u32))?;
    let source = responder::remote(peer, responder, send, Access::REMOTE_READ)?;
    copy((&source, peer.function.host()), (&target, function.host()), from, to)
        .map_err(|broken| local_broken(broken, Broken::Target))
}

/// READs and atomics need room for one on both sides.
fn may_read(max_rd_atomic: u8, responder: &crate::qp::Responder) -> Result<(), Stop> {
    if max_rd_atomic == 0 {
        return Err(Stop::Local(Status::LocQpOpErr, 0));
    }
    if responder.max_dest_rd_atomic == 0 {
        return Err(Refusal::Invalid.into());
    }
    Ok(())
}

fn atomic<H: Host>(
    function: &Function<H>,
    qp: &Qp<H>,
    send: &Send,
    peer: &Peer<H>,
    responder: &crate::qp::Responder,
    max_rd_atomic: u8,
) -> Result<(), Stop> {
    may_read(max_rd_atomic, responder)?;
    // The result's place first: once the word has changed there is no way back.
    let target = Side::segments(function.tpt(), qp.pdn, &send.segments, Access::LOCAL_WRITE)
        .map_err(|denied| Stop::Local(denied.local_status(), denied as u32))?;
    if !send.raddr.is_multiple_of(8) {
        return Err(Refusal::Invalid.into());
    }
    let word = responder::remote(peer, responder, send, Access::REMOTE_ATOMIC)?;
    let addr = word.word().ok_or(Stop::Remote(Refusal::Operational))?;
    let (value, compare) = send.operands;
    let host = peer.function.host();
    let old = match send.opcode {
        Opcode::FetchAdd => host.fetch_add(addr, value),
        _ => host.compare_swap(addr, compare, value),
    };
    let old = old.map_err(|_| Stop::Remote(Refusal::Operational))?.to_le_bytes();
    copy((&Side::inline(&old), host), (&target, function.host()), 0, 8)
        .map_err(|_| Stop::Local(Status::LocProtErr, crate::tpt::Denied::Memory as u32))
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
