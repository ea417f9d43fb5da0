//! A connection: combines both directions, the processing of segments and the end.
//!
//! The caller passes segments to [`Connection::receive`], calls [`Connection::timeout`] after
//! [`Connection::deadline`] or [`Connection::keepalive`], then calls [`Connection::transmit`] until
//! it returns nothing, and takes events from [`Connection::event`]. Acknowledgements are sent at
//! the end of such a turn, so that they can be combined with data.
//!
//! | module | contents |
//! | --- | --- |
//! | `arrive` | processing of received segments |
//! | `emit` | generation of segments |
//! | `close` | closing, and events |
//! | [`keepalive`] | probes of a peer from which nothing has arrived for long |
//! | [`snapshot`] | the numbers that people look at when it is slow |

mod arrive;
mod close;
mod emit;
pub mod keepalive;
pub mod snapshot;

use std::sync::Arc;

use vrnic_packet::Nanos;

use self::close::Ending;
pub use self::close::{End, Event, State};
pub use self::emit::Transmit;
use self::keepalive::Keepalive;
use crate::budget::Budget;
use crate::clock::Clock;
use crate::context::{Context, Params};
use crate::discard::Discards;
use crate::receive::Receiver;
use crate::send::{GiveUp, SendCounters, Sender};
use crate::seq::{SeqNum, StreamPos};
use crate::stream::Sink;

/// Maximum number of answers per second to segments that may be forged (RFC 5961, 7).
const CHALLENGES: u32 = 100;
/// The period in which these answers are counted.
const SECOND: std::time::Duration = std::time::Duration::from_secs(1);

/// Number of late acknowledgements after which the peer seems to hold them back. A single one may
/// be late because the network has lost another one.
const DELAYED: u32 = 2;

/// The counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The counters of the sending direction.
    pub send: SendCounters,
    /// Segments without data that were sent.
    pub acknowledgements: u64,
    /// Answers to segments that may be forged (RFC 5961) or were outside of the window.
    pub challenges: u64,
    /// Segments that were dropped.
    pub discards: Discards,
}

/// Limits the answers to segments that may be forged.
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
    /// The time of the takeover.
    since: Nanos,
    send: Sender,
    receive: Receiver,
    sack: bool,
    clock: Option<Clock>,
    /// The acknowledgement number of the last sent segment.
    last_ack: StreamPos,
    challenges: Challenges,
    ending: Ending,
    keepalive: Keepalive,
    acknowledgements: u64,
}

impl Connection {
    /// Takes over an established connection. Its buffers are allocated when they are needed.
    #[must_use]
    pub fn adopt(now: Nanos, context: &Context, params: &Params) -> Self {
        let mut ending = Ending::new(params);
        ending.progress(now, StreamPos(0), context.peer_closed);
        Self {
            since: now,
            send: Sender::new(now, context, params),
            receive: Receiver::new(context, params),
            sack: context.sack,
            clock: context.timestamps.map(|state| Clock::new(now, state)),
            last_ack: StreamPos(0),
            challenges: Challenges::default(),
            ending,
            keepalive: Keepalive::new(now, params.keepalive),
            acknowledgements: 0,
        }
    }

    /// Takes the memory of buffers from a budget that connections share, from now on. A segment
    /// that arrives out of order and finds no memory is dropped and not reported; with a full
    /// scoreboard, nothing new is sent until something is acknowledged.
    pub fn use_budget(&mut self, budget: &Arc<Budget>) {
        self.send.use_budget(budget);
        self.receive.use_budget(budget);
    }

    /// Gives the memory of buffers back that are empty, or all of it if the connection has ended.
    pub fn shrink(&mut self) {
        if self.ending.is_over() {
            self.receive.discard();
        }
        self.send.shrink();
        self.receive.shrink();
    }

    /// Returns the number of bytes of memory in which bytes of the peer are stored.
    #[must_use]
    pub const fn kept(&self) -> usize {
        self.receive.kept()
    }

    /// Returns the number of bytes that all its buffers have taken from the budget.
    #[must_use]
    pub const fn charged(&self) -> usize {
        self.receive.charged() + self.send.charged()
    }

    /// Asks a sink that has held bytes back ([`Then::Hold`](crate::Then::Hold)) to take them now.
    pub fn resume(&mut self, now: Nanos, sink: &mut impl Sink) {
        if self.ending.is_over() {
            return;
        }
        let result = self.receive.resume(self.send.mss, sink);
        self.after_delivery(now, result);
    }

    /// Sets the window that is promised to the peer when nothing is stored ([`Params::window`]),
    /// for a sink that knows how many bytes it can take. What was promised before is kept.
    pub fn set_window(&mut self, window: u32) {
        if !self.ending.is_over() {
            self.receive.set_window(window, self.send.mss);
        }
    }

    /// Returns the position after the last byte that the sink has taken.
    #[must_use]
    pub const fn delivered(&self) -> StreamPos {
        self.receive.delivered()
    }

    /// Forgets the bytes that the sink has placed before others, because another sink gets them:
    /// the peer sends them again. Returns `false` if some of them have been acknowledged. Then the
    /// sink must take what is before them first.
    #[must_use]
    pub fn forget_placed(&mut self) -> bool {
        self.receive.forget_placed()
    }

    /// Sets whether the peer may keep its direction open for as long as it wants
    /// ([`Params::half_open`]). It must not be called after [`Self::close`].
    pub const fn set_half_open(&mut self, half_open: bool) {
        self.ending.set_half_open(half_open);
    }

    /// Returns whether the sink has placed bytes ([`Sink::offer`]) before which some are missing.
    #[must_use]
    pub fn has_placed(&self) -> bool {
        self.receive.has_placed()
    }

    /// Returns the position of a sequence number of the peer near the next one, or `None` if it is
    /// before position 0.
    #[must_use]
    pub fn position(&self, number: SeqNum) -> Option<StreamPos> {
        self.receive.position(number)
    }

    /// Returns the next time at which [`Self::timeout`] has work. It is later than the time of the
    /// last call.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        if self.ending.is_over() {
            return None;
        }
        let deadlines = [self.send.deadline(), self.receive.acks.deadline, self.ending.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Does the work that is due. Segments may be ready to be sent afterwards.
    pub fn timeout(&mut self, now: Nanos) {
        if self.ending.is_over() {
            return;
        }
        self.receive.acks.timeout(now);
        self.ending.timeout(now, self.send.number(self.send.next));
        if let Err(GiveUp) = self.send.timeout(now).and_then(|()| self.keep_alive(now)) {
            self.reset(End::TimedOut);
        }
    }

    /// Limits segments to `mss` bytes of TCP payload and options, which is what the path carries.
    /// The limit ends after ten minutes ([`Self::timeout`]).
    pub fn limit_mss(&mut self, now: Nanos, mss: u16) {
        self.send.limit_mss(now, mss);
    }

    /// Handles a notice that the segment with this number was too long for the path, which carries
    /// `mss` bytes ([`wire::TooLong`]). Only numbers of bytes in flight are accepted (RFC 5927,
    /// 4.1). Returns whether segments become shorter.
    pub fn too_long(&mut self, now: Nanos, seq: SeqNum, mss: u16) -> bool {
        let before = self.send.mss;
        if self.send.is_under_way(seq) {
            self.limit_mss(now, mss);
        }
        self.send.mss < before
    }

    /// Returns the maximum number of data bytes in a segment, without its options.
    #[must_use]
    pub const fn mss(&self) -> usize {
        self.send.mss
    }

    /// Returns the first position that the peer has not acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> StreamPos {
        self.ending.data_before(self.send.una)
    }

    /// Returns the first position that was never sent.
    #[must_use]
    pub fn sent(&self) -> StreamPos {
        self.ending.data_before(self.send.next)
    }

    /// Returns the numbers of the next new byte to send, and of the next byte to receive.
    #[must_use]
    pub fn numbers(&self) -> [SeqNum; 2] {
        [self.send.number(self.send.next), self.receive.number()]
    }

    /// Returns whether the peer seems to hold acknowledgements back, so that one for a lone segment
    /// comes some 40 ms later than it could.
    #[must_use]
    pub const fn delays_acknowledgements(&self) -> bool {
        self.send.acknowledgements_delayed() >= DELAYED
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            send: self.send.counters,
            acknowledgements: self.acknowledgements,
            challenges: self.challenges.total,
            discards: self.receive.discards,
        }
    }

    /// Checks the invariants.
    ///
    /// # Panics
    /// Panics if one is violated.
    pub fn check(&self) {
        if !self.ending.is_over() {
            self.send.check();
            self.receive.check();
        }
    }
}
