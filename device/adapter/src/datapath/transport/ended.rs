//! Completions of work requests of a QP whose peer is not reached by memory.

use std::sync::Arc;

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::sq::Flags;

use crate::datapath::send_queue::Turn;
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::objects::completion::{Completion, CompletionKey, WrError};
use crate::objects::qp::Qp;
use crate::objects::qp::outstanding::{End, Outstanding, Posted};

/// Completes work requests that have ended, in order. Returns the result of the turn if one of them
/// has failed.
pub(super) fn complete<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Arc<Qp<H>>,
    outstanding: &mut Outstanding,
) -> Option<Turn> {
    while let Some((posted, end)) = outstanding.pop_ended() {
        let (status, vendor_err) = match end {
            End::Done => (Status::Success, 0),
            End::Failed(WrError { status, vendor_err }) => (status, vendor_err),
            End::Refused(denied) => (Status::MwBindErr, denied as u32),
            End::Flushed => (Status::WrFlushErr, 0),
        };
        // The state is set first, so that a program that sees the completion finds the QP in error.
        match end {
            End::Done | End::Flushed => {}
            End::Failed(..) => qp.fail_send(),
            End::Refused(_) => {
                qp.fail_key();
                // The next turn sends the peer a NAK.
                qp.schedule(here.core);
            }
        }
        let done = status == Status::Success;
        if !done || qp.signal_all || posted.send.flags.contains(Flags::SIGNALED) {
            let completion = Completion { status, vendor_err, ..completion(qp, &posted, done) };
            if here.complete(&qp.send_cq, &completion).is_err() {
                qp.failed(here.core, Kind::QpFatal);
                return Some(Turn::Failed);
            }
        }
        if !matches!(end, End::Done | End::Flushed) {
            return Some(Turn::Failed);
        }
    }
    None
}

fn completion<H: Host>(qp: &Qp<H>, posted: &Posted, done: bool) -> Completion {
    let send = &posted.send;
    let reads = done && send.opcode.info().has_response();
    Completion {
        byte_len: if reads { u32::try_from(send.length).unwrap_or(u32::MAX) } else { 0 },
        key: posted.command.map(|command| CompletionKey::Carried(command.key)),
        ..Completion::of_send(qp.qpn, send.id(), posted.opcode, Status::Success)
    }
}
