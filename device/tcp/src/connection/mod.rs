//! A connection: both directions, the order in which segments are handled, the end.
//!
//! The caller passes segments to [`Connection::receive`], calls [`Connection::timeout`] when
//! [`Connection::deadline`] has come, then [`Connection::transmit`] until it returns nothing, and
//! takes events from [`Connection::event`]. Acknowledgements wait for the end of such a turn, so
//! that they travel with data.
//!
//! | module | contents |
//! | --- | --- |
//! | `arrive` | segments that arrive |
//! | `emit` | segments to send |
//! | `close` | the end of both directions, events |

mod arrive;
mod close;
mod emit;

use self::close::Ending;
pub use self::close::{End, Event, State};
pub use self::emit::Transmit;
use crate::clock::Clock;
use crate::context::{Context, Params};
use crate::discard::Discards;
use crate::receive::Receiver;
use crate::send::{GiveUp, SendCounters, Sender};
use crate::seq::{SeqNum, StreamPos};
use crate::stream::Sink;
use crate::time::Nanos;

/// Answers to segments that may be forged, in a second (RFC 5961, 7).
const CHALLENGES: u32 = 100;
/// The span in which they are counted.
const SECOND: std::time::Duration = std::time::Duration::from_secs(1);

/// Events that a connection counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Those of the sending direction.
    pub send: SendCounters,
    /// Segments without data that were sent.
    pub acknowledgements: u64,
    /// Answers to segments that may be forged (RFC 5961), or were outside the window.
    pub challenges: u64,
    /// Segments that were dropped.
    pub discards: Discards,
}

/// A limit for answers to segments that may be forged.
#[derive(Debug, Default)]
struct Challenges {
    since: Nanos,
    count: u32,
    total: u64,
}

impl Challenges {
    /// Returns whether one more answer may be sent.
    fn allow(&mut self, now: Nanos) -> bool {
        if now.since(self.since) >= SECOND {
            (self.since, self.count) = (now, 0);
        }
        let allowed = self.count < CHALLENGES;
        self.count += u32::from(allowed);
        self.total += u64::from(allowed);
        allowed
    }
}

/// A TCP connection that the adapter has taken over.
#[derive(Debug)]
pub struct Connection {
    send: Sender,
    receive: Receiver,
    sack: bool,
    clock: Option<Clock>,
    /// The acknowledgement number of the last segment that was sent.
    last_ack: StreamPos,
    challenges: Challenges,
    ending: Ending,
    acknowledgements: u64,
}

impl Connection {
    /// Takes over an established connection. This allocates all memory that it will use.
    #[must_use]
    pub fn adopt(now: Nanos, context: &Context, params: &Params) -> Self {
        Self {
            send: Sender::new(now, context, params),
            receive: Receiver::new(context, params),
            sack: context.sack,
            clock: context.timestamps.map(|state| Clock::new(now, state)),
            last_ack: StreamPos(0),
            challenges: Challenges::default(),
            ending: Ending::new(params.time_wait),
            acknowledgements: 0,
        }
    }

    /// Asks a sink that held bytes back ([`Then::Hold`](crate::Then::Hold)) to take them now.
    pub fn resume(&mut self, now: Nanos, sink: &mut impl Sink) {
        if self.ending.is_over() {
            return;
        }
        let result = self.receive.resume(self.send.mss, sink);
        self.after_delivery(now, result);
    }

    /// The next moment at which [`Self::timeout`] has something to do. It is later than the last
    /// call of that.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        if self.ending.is_over() {
            return None;
        }
        let deadlines = [self.send.deadline(), self.receive.acks.deadline, self.ending.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Does what is due. Segments may be ready to be sent afterwards.
    pub fn timeout(&mut self, now: Nanos) {
        if self.ending.is_over() {
            return;
        }
        self.receive.acks.timeout(now);
        self.ending.timeout(now, self.send.number(self.send.next));
        if let Err(GiveUp) = self.send.timeout(now) {
            self.reset(End::TimedOut);
        }
    }

    /// The path carries TCP payload and options of at most so many bytes. It never grows again.
    pub fn limit_mss(&mut self, mss: u16) {
        self.send.limit_mss(mss);
    }

    /// Somebody says that the segment with this number was too long for the path, which carries so
    /// many bytes ([`wire::TooLong`]). Only numbers of bytes that are under way are believed
    /// (RFC 5927, 4.1). Returns whether segments become shorter.
    pub fn too_long(&mut self, seq: SeqNum, mss: u16) -> bool {
        let before = self.send.mss;
        if self.send.is_under_way(seq) {
            self.limit_mss(mss);
        }
        self.send.mss < before
    }

    /// Bytes of data in a segment, besides its options.
    #[must_use]
    pub const fn mss(&self) -> usize {
        self.send.mss
    }

    /// The first position that the peer has not acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> StreamPos {
        self.ending.data_before(self.send.una)
    }

    /// The first position that was never sent.
    #[must_use]
    pub fn sent(&self) -> StreamPos {
        self.ending.data_before(self.send.next)
    }

    /// The numbers of the next new byte to send, and of the next one to receive.
    #[must_use]
    pub fn numbers(&self) -> [SeqNum; 2] {
        [self.send.number(self.send.next), self.receive.number()]
    }

    /// What the connection has counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            send: self.send.counters,
            acknowledgements: self.acknowledgements,
            challenges: self.challenges.total,
            discards: self.receive.discards,
        }
    }

    /// Checks what must hold at any time.
    ///
    /// # Panics
    /// If it does not.
    pub fn check(&self) {
        if !self.ending.is_over() {
            self.send.check();
            self.receive.check();
        }
    }
}
