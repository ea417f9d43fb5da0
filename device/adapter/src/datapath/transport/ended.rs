//! Completions of work requests of a QP whose peer is not reached by memory.

use std::sync::Arc;

use vrnic_abi::cq::Status;

use crate::datapath::complete::Completer;
use crate::datapath::send_queue::Turn;
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::objects::completion::WrError;
use crate::objects::qp::Qp;
use crate::objects::qp::outstanding::{End, Outstanding, Posted};

/// Completes work requests that have ended, in order. Returns the result of the turn if one of them
/// has failed.
pub(super) fn complete<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Arc<Qp<H>>,
    outstanding: &mut Outstanding,
) -> Option<Turn> {
    let completer = Completer { here, qp };
    while let Some((Posted { send, opcode, command, .. }, end)) = outstanding.pop_ended() {
        let command = command.map(|command| command.key);
        let finish = |result| completer.finish(&send, opcode, command, result);
        let over = match end {
            End::Done => finish(Ok(())),
            End::Failed(error) => finish(Err(error)),
            End::Refused(denied) => {
                let (status, vendor_err) = (Status::MwBindErr, denied as u32);
                let over = finish(Err(WrError { status, vendor_err }));
                // The next turn sends the peer a NAK.
                qp.schedule(here.core);
                over
            }
            // The send queue works again, so the QP keeps its state.
            End::Flushed => {
                let result = Err(Status::WrFlushErr.into());
                completer.report(&completer.completion(&send, opcode, command, result))
            }
        };
        if over.is_some() {
            return over;
        }
    }
    None
}
