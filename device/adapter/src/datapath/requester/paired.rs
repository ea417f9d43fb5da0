//! A turn of a QP with a TCP connection, whose messages may be copied to the memory of the other
//! end, and the rules of iWARP for such messages.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_iwarp::wire::terminate::Cause;

use crate::datapath::peer_context::PeerContext;
use crate::datapath::refusal::Refusal;
use crate::datapath::responder::outcome;
use crate::datapath::send_queue::Turn;
use crate::datapath::transport::peers::Network;
use crate::datapath::transport::tcp::{self, rdma};
use crate::datapath::turn::{Allowance, TurnContext};
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::qp::tcp::rdma::Pairing;
use crate::objects::qp::tcp::waits;
use crate::objects::qp::{Qp, Requester, Responder, WeakPeer};
use crate::requests::wqe::SendWqe;

/// Executes work requests of a QP with a TCP connection, through the connection, or by copies to
/// the memory of the other end.
pub(super) fn run<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
    allowance: &Allowance<'_, H>,
) -> Turn {
    let turn = if rdma::is_dormant(qp, requester) {
        Turn::Idle
    } else {
        tcp::run(network, qp, requester, batch, allowance)
    };
    if matches!(turn, Turn::Failed | Turn::FailedUntil(_)) {
        return turn;
    }
    let Some(partner) = copies(qp, requester) else { return turn };
    // An idle QP must not keep its partner alive, so it only has a strong reference in its turn.
    requester.peer = partner.upgrade();
    let rules = Rules::default();
    let copied = super::by_memory(network, qp, requester, batch, allowance, Some(&rules));
    requester.peer = None;
    if rules.refused.get()
        && let Some(messages) = requester.path.rdma_mut()
    {
        messages.pairing = Pairing::Refused;
    }
    if qp.state() == State::Sqd && copies(qp, requester).is_none() {
        // The connection sends the remaining posted requests, and closes.
        return Turn::More;
    }
    let stalls = requester.current.is_some() && requester.rnr_until.is_none()
        || requester.open_reads.resume_at.is_some();
    if let (true, Turn::Wait(_)) = (stalls, copied)
        && rdma::probe(requester, network.core().host().now())
    {
        return Turn::More;
    }
    both(turn, copied)
}

/// Returns the QP to which the messages of a QP are copied. While it closes, the message in
/// progress still is.
fn copies<'a, H: Host>(qp: &Qp<H>, requester: &'a Requester<H>) -> Option<&'a WeakPeer<H>> {
    let Pairing::Paired(partner) = &requester.path.rdma()?.pairing else { return None };
    let copies = match qp.state() {
        State::Rts => true,
        State::Sqd => requester.current.is_some() || !requester.open_reads.is_empty(),
        _ => false,
    };
    copies.then_some(partner)
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

/// A message that the peer refuses.
pub(super) struct RefusedMessage<'e, 'a, H: Host> {
    /// The requester's adapter.
    pub(super) here: &'e TurnContext<'a, H>,
    /// The requester's QP.
    pub(super) qp: &'e Qp<H>,
    /// The peer.
    pub(super) there: &'e PeerContext<'a, H>,
    /// The peer's receiving half.
    pub(super) responder: &'e mut Responder,
    /// The work request.
    pub(super) send: &'e SendWqe,
    /// The reason.
    pub(super) refusal: Refusal,
}

/// The rules of iWARP for messages that are copied instead of travelling in its connection.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// True if the other end has refused a message.
    refused: Cell<bool>,
}

impl Rules {
    /// The time limit of a message that waits for a receive of the peer.
    pub(super) const RECEIVE_TIMEOUT: Duration = waits::RECEIVE_TIMEOUT;
    /// Maximum time between two checks for the receive.
    pub(super) const MAX_PAUSE: Duration = waits::MIN_POLL_INTERVAL;

    /// Ends the connection with a Terminate of the other end. Returns the status of the work
    /// request.
    #[cold]
    pub(super) fn refused<H: Host>(&self, message: RefusedMessage<'_, '_, H>) -> Status {
        let RefusedMessage { here, qp, there, responder, send, refusal } = message;
        let (cause, status) = rdma::terminate(send, refusal);
        responder.rdma.refused.get_or_insert(cause);
        if matches!(cause, Cause::CatastrophicStream | Cause::NoBuffer) {
            there.act(|| there.qp.failed(there.turn.core, Kind::QpFatal));
        } else {
            there.act(|| outcome::fail(there, responder, refusal));
        }
        if !send.opcode.info().has_response() {
            qp.failed(here.core, Kind::QpFatal);
        }
        self.refused.set(true);
        status
    }
}
