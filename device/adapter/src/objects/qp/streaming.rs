//! The part of a QP whose messages travel in a TCP connection (iWARP): the connection, the stream
//! of messages in it, and the work requests that it has.

use vrnic_abi::connection::{ConnectionStatus, Stage as ConnectionStage};
use vrnic_iwarp::Stream;
use vrnic_iwarp::stream::Config;
use vrnic_iwarp::stream::close::State;
use vrnic_iwarp::tcp::{Delivered, Offered, Sink, StreamPos, Then};
use vrnic_tcp::Connection;
use vrnic_tcp::wire::frame::{HEADROOM, Path};

use super::SendRing;
use super::outstanding::Outstanding;
use crate::ethernet::Frame;
use crate::objects::claims::Claim;

/// Bytes of a start frame before its private data (RFC 5044, 7.1.1).
const START: usize = 20;
/// Place of the length of the private data in a start frame.
const PRIVATE_LEN: std::ops::Range<usize> = 18..20;

/// The connection of a QP.
#[derive(Debug)]
pub struct Streaming {
    /// TCP.
    pub tcp: Connection,
    /// The messages.
    pub stage: Stage,
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

/// The stage of a stream.
#[derive(Debug)]
pub enum Stage {
    /// The responder waits for the request.
    Request(Request),
    /// Both start frames can be, or have been, exchanged.
    Open {
        /// The messages.
        stream: Box<Stream>,
        /// The bytes of TCP's stream that came before the first byte of `stream`.
        before: u64,
    },
    /// No agreement has been reached, or the request was malformed.
    Failed,
}

/// The request of an initiator, as far as it has come.
#[derive(Debug)]
pub struct Request {
    /// The configuration of the stream.
    pub config: Config,
    /// The private data of the reply.
    pub private: Vec<u8>,
    /// What has come.
    bytes: Vec<u8>,
}

impl Streaming {
    /// Makes the connection of a QP.
    #[must_use]
    pub fn new(
        tcp: Connection,
        stage: Stage,
        (path, mss): (Path, u16),
        queue: &SendRing,
        claim: Claim,
    ) -> Self {
        Self {
            tcp,
            stage,
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
        let stage = match &self.stage {
            Stage::Request(_) => ConnectionStage::Opening,
            Stage::Open { stream, .. } => match stream.state() {
                State::Starting => ConnectionStage::Opening,
                State::Rts => ConnectionStage::Open,
                _ => ConnectionStage::Closed,
            },
            Stage::Failed => ConnectionStage::Closed,
        };
        ConnectionStatus { stage: stage as u8, ..ConnectionStatus::default() }
    }

    /// Makes the stream of a responder when the request is complete.
    pub fn answer(&mut self) {
        let Stage::Request(request) = &self.stage else { return };
        if !request.is_complete() {
            return;
        }
        let before = request.bytes.len() as u64;
        self.stage = match Stream::respond(request.config, &request.bytes, &request.private) {
            Ok(stream) => Stage::Open { stream: Box::new(stream), before },
            Err(_failure) => {
                self.tcp.abort();
                Stage::Failed
            }
        };
    }
}

impl Request {
    /// Waits for a request. The private data is that of the reply.
    #[must_use]
    pub fn new(config: Config, private: &[u8]) -> Self {
        let bytes = Vec::with_capacity(START + vrnic_abi::connection::PRIVATE_MAX);
        Self { config, private: private.to_vec(), bytes }
    }

    /// Returns the number of bytes that are missing, as far as that is known.
    fn missing(&self) -> usize {
        let len = self.bytes.get(PRIVATE_LEN).and_then(|bytes| bytes.try_into().ok());
        let private = usize::from(u16::from_be_bytes(len.unwrap_or_default()));
        // A longer one is malformed, and is not waited for.
        let private = private.min(vrnic_abi::connection::PRIVATE_MAX);
        (START + private).saturating_sub(self.bytes.len())
    }

    fn is_complete(&self) -> bool {
        self.missing() == 0
    }
}

impl Sink for Request {
    fn deliver(&mut self, _at: StreamPos, bytes: &[u8]) -> Delivered {
        let mut rest = bytes;
        while let missing @ 1.. = self.missing().min(rest.len()) {
            let (now, later) = rest.split_at(missing);
            self.bytes.extend_from_slice(now);
            rest = later;
        }
        Delivered { taken: bytes.len() - rest.len(), then: Then::Acknowledge }
    }
}

/// A receiver whose stream begins behind the first bytes of TCP's.
#[derive(Debug)]
pub struct Behind<S> {
    /// The receiver.
    pub sink: S,
    /// The number of bytes.
    pub before: u64,
}

impl<S: Sink> Behind<S> {
    fn place(&self, at: StreamPos) -> StreamPos {
        StreamPos(at.0.saturating_sub(self.before))
    }
}

impl<S: Sink> Sink for Behind<S> {
    fn deliver(&mut self, at: StreamPos, bytes: &[u8]) -> Delivered {
        self.sink.deliver(self.place(at), bytes)
    }

    fn offer(&mut self, at: StreamPos, bytes: &[u8]) -> Offered {
        self.sink.offer(self.place(at), bytes)
    }

    fn filled(&mut self, from: StreamPos, to: StreamPos) -> Then {
        self.sink.filled(self.place(from), self.place(to))
    }
}
