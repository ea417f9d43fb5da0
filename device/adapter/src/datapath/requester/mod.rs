//! The sending half at work: takes entries off the send queue and executes them against the peer.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `work` | a turn: entries taken and executed |
//! | `outcome` | what follows from what came of an entry |

mod outcome;
mod work;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;

use self::work::Work;
use crate::datapath::responder::There;
use crate::datapath::turn::Site;
use crate::datapath::wqe::Send;
use crate::datapath::wqe_fetch::Batch;
use crate::function::Function;
use crate::host::Host;
use crate::objects::completion::Completion;
use crate::objects::qp::{Ended, Peer, Qp, Readers, Requester, RequesterConfig, Responder};
use crate::transport::datagram;

/// Entries that a QP may execute in one turn.
pub const BATCH: u32 = 64;

/// Times that a QP may wait in one turn until an ended key is not in use any more.
const WAITS: u32 = 16;

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
            return datagram::run(&Site::new(function, qp), qp, requester, batch);
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
    let found = take_peer(function, requester);
    let there = found.as_ref().and_then(|peer| meet(function, qp, requester, peer));
    let met = there.is_some();
    let mut work = Work { here: Site::new(function, qp), qp, requester, batch, there, budget };
    let turn = catch_unwind(AssertUnwindSafe(|| work.run())).unwrap_or_else(|panic| {
        match &work.there {
            Some((there, _)) => there.charge(panic),
            None => resume_unwind(panic),
        }
        // The entry in progress is lost, and the peer with it.
        function.qp_failed(qp, Kind::QpFatal);
        Turn::Failed
    });
    drop(work);
    // What is not its peer it shall not keep alive.
    requester.peer = found.filter(|_| met);
    turn
}

/// Locks the receiving half of a QP that was found, if it is the peer: the number may have come to another connection,
/// or be a foreigner's. Only then its function's memory is held.
#[inline(always)]
fn meet<'a, H: Host>(
    function: &Function<H>,
    qp: &Qp<H>,
    requester: &Requester<H>,
    peer: &'a Peer<H>,
) -> Option<(There<'a, H>, MutexGuard<'a, Responder>)> {
    let responder = peer.qp.responder.lock();
    let is_peer = peer.qp.kind == qp.peer_kind
        && responder.source_qpn == qp.qpn
        && responder.source_mac == function.mac()
        && responder.first_psn == requester.config.first_psn;
    is_peer.then(|| (There::new(&peer.function, &peer.qp), responder))
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
                peer.qp.tpt.finish_command(key);
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

/// An entry has been taken.
#[inline]
pub(crate) fn advance<H: Host>(qp: &Qp<H>, requester: &mut Requester<H>) {
    requester.ci = requester.ci.wrapping_add(1);
    qp.next_send.store(requester.ci, Ordering::Relaxed);
}

/// Completes up to [`BATCH`] entries of the send queue of a QP in the error state with a flush error;
/// returns how many.
pub fn flush<H: Host>(function: &Arc<Function<H>>, qp: &Arc<Qp<H>>, batch: &mut Batch) -> u32 {
    let mut guard = qp.requester.lock();
    let requester = &mut *guard;
    let here = Site::new(function, qp);
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
