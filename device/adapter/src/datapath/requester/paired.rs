//! QPs of iWARP whose messages are copied to the memory of the other end of their connection.

use std::sync::Arc;

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_iwarp::wire::terminate::Cause;

use super::by_memory;
use crate::datapath::refusal::Refusal;
use crate::datapath::responder::outcome;
use crate::datapath::send_queue::Turn;
use crate::datapath::there::There;
use crate::datapath::transport::peers::Network;
use crate::datapath::transport::stream;
use crate::datapath::turn::{Allowance, TurnContext};
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::qp::{Pairing, Path, Qp, Requester, Responder, WeakPeer};
use crate::requests::wqe::SendWqe;

/// Executes work requests of a QP with a TCP connection, by memory or through the connection.
pub(super) fn run<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
    allowance: &Allowance<'_, H>,
) -> Turn {
    let turn = if stream::rests(qp, requester) {
        Turn::Idle
    } else {
        stream::run(network, qp, requester, batch, allowance)
    };
    if !copies(qp, requester) || matches!(turn, Turn::Failed | Turn::FailedUntil(_)) {
        return turn;
    }
    let partner = requester.partner.as_ref().and_then(WeakPeer::upgrade);
    let path = partner.map_or(Path::Unknown, Path::Local);
    let connection = std::mem::replace(&mut requester.path, path);
    let copied = by_memory(network, qp, requester, batch, allowance);
    requester.path = connection;
    if qp.state() == State::Sqd && !copies(qp, requester) {
        // The connection sends the remaining posted requests, and closes.
        return Turn::More;
    }
    let stalls = requester.current.is_some() && requester.rnr_until.is_none()
        || requester.ledger.resume_at.is_some();
    if let (true, Turn::Wait(_)) = (stalls, copied)
        && stream::probe(requester, network.core().host().now())
    {
        return Turn::More;
    }
    both(turn, copied)
}

/// Returns whether the messages of a QP are copied. While it closes, the message in progress still
/// is.
fn copies<H: Host>(qp: &Qp<H>, requester: &Requester<H>) -> bool {
    requester.pairing == Pairing::Paired
        && match qp.state() {
            State::Rts => true,
            State::Sqd => requester.current.is_some() || !requester.ledger.is_empty(),
            _ => false,
        }
}

/// Combines the results of the turns of the connection and of the messages.
fn both(connection: Turn, messages: Turn) -> Turn {
    match (connection, messages) {
        // The connection ends in a separate turn.
        (Turn::More, _) | (_, Turn::More | Turn::Failed | Turn::FailedUntil(_)) => Turn::More,
        (Turn::Wait(first), Turn::Wait(second)) => Turn::Wait(first.min(second)),
        (Turn::Wait(at), _) | (_, Turn::Wait(at)) => Turn::Wait(at),
        _ => Turn::Idle,
    }
}

/// Ends the connection with a Terminate of the other end, which refuses the message of a paired QP.
/// Returns the status of the work request.
#[cold]
pub(super) fn refused<H: Host>(
    (here, qp): (&TurnContext<'_, H>, &Qp<H>),
    (there, responder): (&There<'_, H>, &mut Responder),
    (send, pairing): (&SendWqe, &mut Pairing),
    refusal: Refusal,
) -> Status {
    let (cause, status) = stream::terminate(send, refusal);
    responder.refused.get_or_insert(cause);
    if matches!(cause, Cause::CatastrophicStream | Cause::NoBuffer) {
        there.act(|| there.qp.failed(there.turn.core, Kind::QpFatal));
    } else {
        there.act(|| outcome::fail(there, responder, refusal));
    }
    if !send.opcode.info().has_response() {
        qp.failed(here.core, Kind::QpFatal);
    }
    *pairing = Pairing::Refused;
    status
}
