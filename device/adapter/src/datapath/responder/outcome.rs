//! The end of a receive: its completion, the failure of its QP, the flush of its queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::cq::{Opcode, Status};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{State, Type};
use vrnic_faults::Site;

use super::receives::next;
use crate::datapath::inbound::{Inbound, Operation};
use crate::datapath::injected;
use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::send_queue::BATCH;
use crate::datapath::xrc;
use crate::host::Host;
use crate::memory::tpt::Denied;
use crate::objects::completion::{Completion, CompletionKey};
use crate::objects::core::Core;
use crate::objects::qp::{Ended, Qp, Responder};
use crate::slice::Slice;
use crate::stats::Counter;

/// Completes the receive that a message has filled or consumed. `ended` is a key that the message
/// has invalidated.
///
/// # Errors
/// Returns an error if the receive CQ has no room. The QP has failed then.
pub fn received<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    inbound: &Inbound,
    ended: Option<Ended>,
) -> Result<(), Refusal> {
    let Some(recv) = responder.current.take() else { return Ok(()) };
    let write = matches!(inbound.operation, Operation::Write(_));
    let completion = Completion {
        opcode: if write { Opcode::RecvWriteImm } else { Opcode::Recv },
        byte_len: u32::try_from(inbound.length).unwrap_or(u32::MAX),
        imm: inbound.imm,
        solicited: inbound.solicited,
        src_qpn: inbound.src_qpn,
        key: ended.map(|(Ended::Invalidated(key) | Ended::Command(key))| CompletionKey::Ended(key)),
        ..Completion::of_receive(there.qp.qpn, &recv, Status::Success)
    };
    complete(there, responder, &completion)
}

/// Waits until a key that a message has invalidated is no longer used, and completes the receive of
/// the message. The caller holds no memory.
///
/// # Errors
/// Returns an error if the receive CQ has no room. The QP has failed then.
#[cold]
pub fn received_after_readers<H: Host>(
    core: &Arc<Core<H>>,
    qp: &Arc<Qp<H>>,
    responder: &mut Responder,
    slice: &Slice<'_, H>,
    inbound: &Inbound,
    ended: Ended,
) -> Result<(), Refusal> {
    core.wait_for_readers(slice);
    if let Ended::Command(key) = ended {
        qp.tpt.finish_command(key);
    }
    received(&PeerContext::new(core, qp, slice), responder, inbound, Some(ended))
}

/// Writes the completion of a receive. If an event is due, the requester reports it later.
///
/// # Errors
/// Returns an error if the receive CQ has no room. The QP has failed then.
pub fn complete<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &mut Responder,
    completion: &Completion,
) -> Result<(), Refusal> {
    if there.turn.looks_at(Site::Completion)
        && let Some(status) = injected::status(&there.turn, there.qp.qpn, completion.opcode)
    {
        return fail_completion(there, responder, &Completion { status, ..*completion });
    }
    if there.qp.kind == Type::XrcTgt {
        return xrc::complete(there, responder, completion);
    }
    match there.turn.complete_quietly(&there.qp.recv_cq, completion) {
        Ok(due) => {
            responder.event_due |= due;
            Ok(())
        }
        Err(_) => {
            there.qp.failed(there.turn.core, Kind::QpFatal);
            Err(Refusal::Operational)
        }
    }
}

/// Completes a receive that a message has filled with an error, because of a rule for faults, and
/// moves its QP to the error state.
///
/// # Errors
/// Returns an error if the receive CQ has no room.
#[cold]
fn fail_completion<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &Responder,
    completion: &Completion,
) -> Result<(), Refusal> {
    there.qp.fail();
    complete_failed(there, responder, completion)?;
    there.qp.schedule(there.turn.core);
    Ok(())
}

/// Moves the responder's QP to the error state because of `refusal`, completes the receive in
/// progress, and reports an event to the guest.
pub fn fail<H: Host>(there: &PeerContext<'_, H>, responder: &mut Responder, refusal: Refusal) {
    let (kind, status) = match refusal {
        Refusal::Access(Denied::Memory) | Refusal::Operational => {
            (Kind::QpFatal, Status::LocProtErr)
        }
        Refusal::Access(_) => {
            there.turn.step(Counter::RespRemoteAccessErrors);
            (Kind::QpAccessError, Status::WrFlushErr)
        }
        Refusal::Malformed => (Kind::QpFatal, Status::LocQpOpErr),
        Refusal::TooShort => {
            there.turn.step(Counter::RespLocalLengthError);
            (Kind::QpRequestError, Status::LocLenErr)
        }
        Refusal::Invalid => {
            there.turn.step(Counter::RespRemoteInvalidRequest);
            (Kind::QpRequestError, Status::WrFlushErr)
        }
        Refusal::NotReady | Refusal::Absent | Refusal::Unexpected => return,
    };
    // A receive with an error of its own reports it by its completion. Otherwise an event does.
    let own = responder.current.is_some() && status != Status::WrFlushErr;
    let failed = there.qp.fail();
    if let Some(recv) = responder.current.take() {
        // The CQ has already raised its own event for the overflow.
        let _overflow =
            complete_failed(there, responder, &Completion::of_receive(there.qp.qpn, &recv, status));
    }
    if failed && !own {
        there.turn.core.report(kind, there.qp.qpn);
    }
    there.qp.schedule(there.turn.core);
}

/// Writes the completion of a receive that got no message, and reports its event.
///
/// # Errors
/// Returns an error if the CQ has no room.
fn complete_failed<H: Host>(
    there: &PeerContext<'_, H>,
    responder: &Responder,
    completion: &Completion,
) -> Result<(), Refusal> {
    if there.qp.kind == Type::XrcTgt {
        return xrc::complete(there, responder, completion);
    }
    there.turn.complete(&there.qp.recv_cq, completion).map_err(|_| Refusal::Operational)
}

/// Completes up to [`BATCH`] receives of a QP in the error state with a flush error, or fewer if
/// the slice is over. Returns their number. Receives of an SRQ are left to other QPs, except one
/// that a message has begun to fill.
pub fn flush<H: Host>(core: &Arc<Core<H>>, qp: &Arc<Qp<H>>, slice: &Slice<'_, H>) -> u32 {
    let there = PeerContext::new(core, qp, slice);
    let mut responder = qp.responder.lock();
    let mut count = 0;
    while count < BATCH && qp.state() == State::Err && !qp.dead.load(Ordering::Acquire) {
        if qp.waits_for(xrc::receive_cq(&there, &responder)) {
            return count;
        }
        let recv = match responder.current.take() {
            Some(recv) => recv,
            None if qp.rq.is_none() && !responder.has_ahead() => break,
            None => match next(&there, &mut responder) {
                Ok(Some(recv)) => recv,
                Ok(None) | Err(_) => break,
            },
        };
        let completion = Completion::of_receive(qp.qpn, &recv, Status::WrFlushErr);
        if complete_failed(&there, &responder, &completion).is_err() {
            break;
        }
        count += 1;
        if slice.is_over() {
            // The next turn flushes the rest, and then reports it.
            return count;
        }
    }
    report_last_wqe(core, qp, &mut responder);
    count
}

/// Reports to the guest, once, that a QP in the error state takes no more receives from its SRQ.
/// Any thread that takes one holds the responder's lock, and sees the state.
fn report_last_wqe<H: Host>(core: &Core<H>, qp: &Qp<H>, responder: &mut Responder) {
    let ended = qp.state() == State::Err && !qp.dead.load(Ordering::Acquire);
    let shares = qp.srq.is_some() || qp.kind == Type::XrcTgt;
    if shares && ended && !responder.last_wqe_reported {
        responder.last_wqe_reported = true;
        core.report(Kind::QpLastWqe, qp.qpn);
    }
}
