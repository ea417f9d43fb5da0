//! The transition of a connection from bytes to RDMA, at the QP that carries the bytes.

use vrnic_iwarp::mpa::start::Agreement;
use vrnic_packet::Nanos;
use vrnic_tcp::Share;

use crate::host::Host;
use crate::objects::qp::peer::{Peer, WeakPeer};
use crate::objects::qp::tcp::waits::next_check;

/// The terms of the messages that follow.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The properties that both ends have agreed on.
    pub agreement: Agreement,
    /// True if this end sends no message before the first one of the peer.
    pub peer_first: bool,
}

/// The progress of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Bytes go on to receives, because some that follow them are in receives already.
    Filling,
    /// Bytes are held back. Receives that were posted before complete without more of them.
    Returning,
    /// The first receive of the other QP is awaited, or the acknowledgement of the last bytes.
    Waiting,
    /// The other QP gets the connection at the end of the turn.
    Ready,
}

/// A transition.
#[derive(Debug)]
pub struct Switch<H: Host> {
    to: WeakPeer<H>,
    /// The terms of the messages.
    pub terms: Terms,
    /// How far the transition is.
    pub progress: Progress,
    /// Bytes that the program has received and that belong to the first messages.
    pub received: Vec<u8>,
    /// Their share of the memory for connections.
    pub share: Share,
    /// The time of the first check for a receive.
    since: Option<Nanos>,
}

impl<H: Host> Switch<H> {
    /// Creates the transition to `to`.
    #[must_use]
    pub fn new(to: &Peer<H>, terms: Terms, received: Vec<u8>, share: Share) -> Self {
        let (to, progress) = (to.downgrade(), Progress::Filling);
        Self { to, terms, progress, received, share, since: None }
    }

    /// Returns the QP that gets the connection, if it still exists.
    pub(crate) fn to(&self) -> Option<Peer<H>> {
        self.to.upgrade()
    }

    /// Returns the time of the next check for a receive, for which the guest rings no doorbell.
    pub fn next_look(&mut self, now: Nanos) -> Nanos {
        next_check(now, *self.since.get_or_insert(now))
    }
}
