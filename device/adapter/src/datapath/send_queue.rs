//! The send queue of a QP of any type: its state, its next index, its flush.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::cq::{self, Status};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;

use crate::datapath::turn::TurnContext;
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::completion::Completion;
use crate::objects::core::Core;
use crate::objects::qp::outstanding::{Outstanding, Posted};
use crate::objects::qp::{Qp, Requester};
use crate::requests::wqe::{Malformed, SendWqe, WqeId};
use crate::slice::{Slice, cost};

/// Maximum number of entries that a QP executes in one turn.
pub const BATCH: u32 = 64;

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The queue is empty, or the QP may not send.
    Idle,
    /// There is more work.
    More,
    /// There is no work before this time.
    Wait(u64),
    /// The QP has failed; its queues must be flushed.
    Failed,
    /// The QP has failed; its queues must be flushed. There is more work at this time.
    FailedUntil(u64),
}

/// Returns the reason for which a QP does not execute its next entry now, or `None` if it does.
#[inline]
pub(crate) fn not_now<H: Host>(
    core: &Core<H>,
    qp: &Qp<H>,
    requester: &mut Requester<H>,
) -> Option<Turn> {
    if qp.dead.load(Ordering::Acquire) {
        return Some(Turn::Idle);
    }
    match qp.state() {
        State::Rts => {}
        State::Sqd if requester.current.is_some() => {}
        // No new entry is taken, and outstanding ones continue.
        State::Sqd if !requester.ledger.is_empty() => return Some(Turn::More),
        State::Sqd => return Some(drained(core, qp, requester)),
        State::Err | State::Sqe => return Some(Turn::Failed),
        _ => return Some(Turn::Idle),
    }
    if let Some(until) = requester.not_before {
        if core.host().now() < until {
            return Some(Turn::Wait(until));
        }
        requester.not_before = None;
    }
    None
}

pub(crate) fn drained<H: Host>(core: &Core<H>, qp: &Qp<H>, requester: &mut Requester<H>) -> Turn {
    let mut attr = qp.attr.lock();
    if attr.sq_draining != 0 {
        attr.sq_draining = 0;
        if requester.notify_drained {
            core.report(Kind::SqDrained, qp.qpn);
        }
    }
    Turn::Idle
}

/// Records that an entry has been taken.
#[inline]
pub(crate) fn advance<H: Host>(qp: &Qp<H>, requester: &mut Requester<H>) {
    requester.ci = requester.ci.wrapping_add(1);
    qp.next_send.store(requester.ci, Ordering::Relaxed);
}

/// Completes up to [`BATCH`] entries of the send queue of a QP in the error state with a flush
/// error, or fewer if the slice is over. Returns their number.
pub fn flush<H: Host>(
    core: &Arc<Core<H>>,
    qp: &Arc<Qp<H>>,
    batch: &mut Batch,
    slice: &Slice<'_, H>,
) -> u32 {
    let mut guard = qp.requester.lock();
    let requester = &mut *guard;
    let here = TurnContext::new(core, qp, slice);
    batch.clear();
    (requester.not_before, requester.ledger.resume_at) = (None, None);
    let mut flushed = 0;
    while flushed < BATCH && qp.flushes_sends() && !qp.dead.load(Ordering::Acquire) {
        let (id, opcode) = if let Some(entry) = requester.ledger.pop() {
            let Completion { wr_id, wqe_index: index, opcode, .. } = entry.completion;
            (WqeId { wr_id, index }, opcode)
        } else if let Some(Posted { send, opcode, .. }) =
            requester.path.outstanding().and_then(Outstanding::pop)
        {
            (send.id(), opcode)
        } else if let Some(send) = requester.current.take() {
            (send.id(), send.completed())
        } else {
            let index = requester.ci;
            let Ok(Some(place)) = batch.take(&here, qp, index) else { break };
            advance(qp, requester);
            match SendWqe::parse(qp.kind, batch.entry(&place), index) {
                Ok(send) => (send.id(), send.completed()),
                Err(Malformed { wr_id, opcode, .. }) => (WqeId { wr_id, index }, opcode),
            }
        };
        if opcode == cq::Opcode::Transfer {
            core.ranges.end_all_of(qp.qpn);
            qp.mark_wait.clear();
        }
        let status = Status::WrFlushErr;
        let completion = Completion::of_send(qp.qpn, id, opcode, status);
        if here.complete(&qp.send_cq, &completion).is_err() {
            break;
        }
        flushed += 1;
        slice.charge(cost::REQUEST);
        if slice.is_over() {
            break;
        }
    }
    flushed
}
