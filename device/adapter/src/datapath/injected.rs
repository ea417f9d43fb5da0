//! Faults by rules in the turn of a QP. Only called while a rule looks at the place.

use std::ops::Range;

use vrnic_abi::Qpn;
use vrnic_abi::cq::{self, Status};
use vrnic_roce::time::rnr_delay;
use vrnic_roce::wire::syndrome::RnrTimer;

use super::peer_context::PeerContext;
use super::turn::TurnContext;
use crate::host::Host;
use crate::objects::faults::trace::Step;
use crate::objects::qp::Responder;
use crate::requests::wqe::SendWqe;

/// Returns whether a message that is copied is lost.
#[cold]
pub(crate) fn loses<H: Host>(here: &TurnContext<'_, H>, qpn: Qpn, send: &SendWqe) -> bool {
    here.core.injection.loses(here.faults_here(), qpn, send)
}

/// Passes the bytes of a message that were copied to the trace.
#[cold]
pub(crate) fn copied<H: Host>(
    here: &TurnContext<'_, H>,
    qpn: Qpn,
    send: &SendWqe,
    part: Range<u64>,
    last: bool,
) {
    let step = Step::Copy { index: send.index, from: part.start, to: part.end, last };
    here.core.injection.trace(here.faults_here(), qpn, step);
}

/// Returns whether the next message finds no receive.
#[cold]
pub(crate) fn hides<H: Host>(there: &PeerContext<'_, H>, responder: &Responder) -> bool {
    let pause = rnr_delay(RnrTimer::new(responder.min_rnr_timer));
    let turn = &there.turn;
    turn.core.injection.hides_receive(turn.faults_here(), there.qp.qpn, pause)
}

/// Returns the status with which a work request that has succeeded completes instead.
#[cold]
pub(crate) fn status<H: Host>(
    here: &TurnContext<'_, H>,
    qpn: Qpn,
    opcode: cq::Opcode,
) -> Option<Status> {
    here.core.injection.status(here.faults_here(), qpn, opcode)
}
