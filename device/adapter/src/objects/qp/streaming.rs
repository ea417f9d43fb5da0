//! The part of a QP whose messages travel in a TCP connection (iWARP): the connection, the stream
//! of messages in it, and the work requests that it has.

use vrnic_abi::connection::{ConnectionStatus, Stage};
use vrnic_iwarp::Stream;
use vrnic_iwarp::stream::close::State;
use vrnic_tcp::Connection;
use vrnic_tcp::wire::frame::{HEADROOM, Path};

use super::SendRing;
use super::outstanding::Outstanding;
use crate::ethernet::Frame;
use crate::objects::claims::Claim;

/// The connection of a QP.
#[derive(Debug)]
pub struct Streaming {
    /// TCP.
    pub tcp: Connection,
    /// The messages.
    pub stream: Stream,
    /// The headers below TCP's.
    pub path: Path,
    /// The work requests that the stream has.
    pub outstanding: Outstanding,
    /// Frames that leave at the end of the turn.
    pub outbox: Vec<Frame>,
    /// Room for a frame.
    pub buffer: Box<[u8]>,
    /// The time by which the stream has to end; none while it need not.
    pub end_by: Option<u64>,
    /// The time since which a SEND of the peer waits for a receive.
    pub waits_since: Option<u64>,
    /// The identification of the last IPv4 packet.
    pub id: u16,
    /// Keeps the frames of the connection away from the guest's network card.
    _claim: Claim,
}

impl Streaming {
    /// Makes the connection of a QP.
    #[must_use]
    pub fn new(
        tcp: Connection,
        stream: Stream,
        (path, mss): (Path, u16),
        queue: &SendRing,
        claim: Claim,
    ) -> Self {
        Self {
            tcp,
            stream,
            path,
            outstanding: Outstanding::new(queue),
            outbox: Vec::new(),
            buffer: vec![0; HEADROOM + usize::from(mss)].into_boxed_slice(),
            end_by: None,
            waits_since: None,
            id: 0,
            _claim: claim,
        }
    }

    /// Tells how the connection is.
    #[must_use]
    pub fn status(&self) -> ConnectionStatus {
        let stage = match self.stream.state() {
            State::Starting => Stage::Opening,
            State::Rts => Stage::Open,
            _ => Stage::Closed,
        };
        ConnectionStatus { stage: stage as u8, ..ConnectionStatus::default() }
    }
}
