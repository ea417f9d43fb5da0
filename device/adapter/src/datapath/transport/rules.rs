//! The rules of a protocol other than RoCE for messages that are copied instead of travelling in
//! its packets.

use vrnic_abi::cq::Status;

use crate::datapath::refusal::Refusal;
use crate::datapath::there::There;
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::objects::qp::{Qp, Responder};
use crate::requests::wqe::SendWqe;

/// The rules.
pub(crate) trait Rules<H: Host> {
    /// Returns whether the protocol has a message for a work request.
    fn carries(&self, send: &SendWqe) -> bool;

    /// Returns the limits of the time that a message waits for a receive.
    fn receive_wait(&self) -> ReceiveWait;

    /// Tells both ends that the peer refuses a message. Returns the status of the work request.
    fn refused(&self, message: RefusedMessage<'_, '_, H>) -> Status;
}

/// The limits of the time that a message waits for a receive of the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWait {
    /// The time limit in nanoseconds.
    pub limit: u64,
    /// Maximum time in nanoseconds between two checks.
    pub pause: u64,
}

/// A message that the peer refuses.
pub(crate) struct RefusedMessage<'e, 'a, H: Host> {
    /// The requester's adapter.
    pub here: &'e TurnContext<'a, H>,
    /// The requester's QP.
    pub qp: &'e Qp<H>,
    /// The peer.
    pub there: &'e There<'a, H>,
    /// The peer's receiving half.
    pub responder: &'e mut Responder,
    /// The work request.
    pub send: &'e SendWqe,
    /// The reason.
    pub refusal: Refusal,
}
