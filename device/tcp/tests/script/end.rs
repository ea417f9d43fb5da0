//! A connection whose peer is the script of a test.

use std::time::Duration;

use vrnic_packet::Nanos;
use vrnic_tcp::connection::{Connection, Event};
use vrnic_tcp::context::{Algorithm, Tick, TimestampState};
use vrnic_tcp::wire::{Flags, Header, Options, SackBlock, Segment, Timestamps};
use vrnic_tcp::{
    Context, Delivered, Delivery, Gone, Offered, Params, SeqNum, Sink, Source, StreamPos, Then,
    Undone,
};

/// First numbers of the connection and of its peer.
pub(crate) const OWN: u32 = 1000;
pub(crate) const PEER: u32 = 5000;
/// Bytes of a full segment.
pub(crate) const MSS: usize = 1000;
/// The round trip time at the takeover.
pub(crate) const RTT: Duration = Duration::from_millis(10);

/// The bytes of both directions.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) end: u64,
    pub(crate) gone: bool,
    /// The next answers of the sink. By default it takes all bytes.
    pub(crate) answers: Vec<Delivered>,
    pub(crate) offered: Offered,
    pub(crate) taken: Vec<u8>,
    pub(crate) filled: Vec<(u64, u64)>,
    /// The reported progress of the other direction, and its value at each delivery.
    progress: (u64, u64),
    pub(crate) progress_at_delivery: Vec<(u64, u64)>,
}

impl Source for Streams {
    fn end(&self) -> StreamPos {
        StreamPos(self.end)
    }

    fn cut(&self, _: StreamPos, limit: usize) -> usize {
        limit
    }

    fn read(&mut self, _: StreamPos, into: &mut [u8]) -> Result<(), Undone> {
        into.fill(7);
        if self.gone { Err(Gone.into()) } else { Ok(()) }
    }
}

impl Sink for Streams {
    fn progress(&mut self, unacknowledged: StreamPos, sent: StreamPos) {
        self.progress = (unacknowledged.0, sent.0);
    }

    fn deliver(&mut self, &Delivery { bytes, .. }: &Delivery<'_>) -> Delivered {
        self.progress_at_delivery.push(self.progress);
        let all = Delivered { taken: bytes.len(), then: Then::Continue };
        let answer = self.answers.pop().unwrap_or(all);
        self.taken.extend(&bytes[..answer.taken.min(bytes.len())]);
        answer
    }

    fn offer(&mut self, _: StreamPos, _: &[u8]) -> Offered {
        self.offered
    }

    fn filled(&mut self, from: StreamPos, to: StreamPos) -> Then {
        self.filled.push((from.0, to.0));
        Then::Continue
    }
}

/// A segment that the connection sends. Its numbers are relative to the first ones.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) seq: i64,
    pub(crate) len: usize,
    pub(crate) ack: i64,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) sack: Vec<(i64, i64)>,
}

/// A connection, and its peer's view of it.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) connection: Connection,
    pub(crate) streams: Streams,
    pub(crate) now: Nanos,
    pub(crate) timestamp: Option<u32>,
    pub(crate) window: u16,
}

/// Returns a segment of the peer without data that acknowledges this many bytes.
pub(crate) fn ack(count: u32) -> Header {
    Header { seq: SeqNum(PEER), ack: SeqNum(OWN + count), flags: Flags::ACK, ..Header::default() }
}

/// Returns the header of a segment of the peer that starts after this many bytes.
pub(crate) fn data(at: u32) -> Header {
    Header { seq: SeqNum(PEER + at), ..ack(0) }
}

/// Adds blocks of the connection's bytes to a header.
pub(crate) fn sack(mut header: Header, blocks: &[(u32, u32)]) -> Header {
    let block = |(start, end): &(u32, u32)| SackBlock {
        start: SeqNum(OWN + start),
        end: SeqNum(OWN + end),
    };
    header.options.sack = blocks.iter().map(block).collect();
    header
}

/// Returns a context with selective acknowledgements and without timestamps.
pub(crate) fn context() -> Context {
    Context {
        send_next: SeqNum(OWN),
        receive_next: SeqNum(PEER),
        send_window: 60_000,
        max_send_window: 60_000,
        receive_window: 60_000,
        send_scale: 0,
        receive_scale: 0,
        peer_closed: false,
        mss: MSS as u16,
        sack: true,
        timestamps: None,
        round_trip: Some((RTT, RTT / 8)),
    }
}

/// Returns the state of timestamps. The newest timestamp of the peer is 100.
pub(crate) fn timestamps() -> Option<TimestampState> {
    Some(TimestampState { value: 900, tick: Tick::Millis, recent: 100 })
}

pub(crate) fn params() -> Params {
    Params {
        window: 60_000,
        buffer: 20_000,
        congestion: Algorithm::Cubic,
        min_rto: Duration::from_millis(200),
        ..Params::default()
    }
}

impl End {
    pub(crate) fn new() -> Self {
        Self::with(&context(), &params())
    }

    pub(crate) fn with(context: &Context, params: &Params) -> Self {
        let streams = Streams {
            end: 0,
            gone: false,
            answers: Vec::new(),
            offered: Offered::Buffer,
            taken: Vec::new(),
            filled: Vec::new(),
            progress: (0, 0),
            progress_at_delivery: Vec::new(),
        };
        Self {
            connection: Connection::adopt(Nanos(0), context, params),
            streams,
            now: Nanos(0),
            timestamp: context.timestamps.map(|state| state.recent),
            window: 60_000,
        }
    }

    /// Gives a segment of the peer to the connection.
    pub(crate) fn inject(&mut self, mut header: Header, len: usize) {
        header.window = self.window;
        let stamp = |value| Timestamps { value, echo: 0 };
        let timestamps = header.options.timestamps.or(self.timestamp.map(stamp));
        header.options = Options { timestamps, ..header.options };
        let payload = vec![9; len];
        let segment = Segment { header, payload: &payload };
        self.connection.receive(self.now, &segment, &mut self.streams);
        self.connection.check();
    }

    /// Moves the clock, and does what is due.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        self.connection.timeout(self.now);
    }

    /// Moves the clock to the next deadline. Returns the time until it.
    pub(crate) fn wait_deadline(&mut self) -> Duration {
        let deadline = self.connection.deadline().expect("a deadline");
        let time = deadline.since(self.now);
        self.wait(time);
        time
    }

    /// Takes the segments that the connection sends.
    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let mut buffer = vec![0; 2000];
        let mut sent = Vec::new();
        while let Some(transmit) =
            self.connection.transmit(self.now, &mut self.streams, &mut buffer)
        {
            let header = transmit.header;
            let peer = |number: SeqNum| number.ahead_of(SeqNum(PEER));
            sent.push(Sent {
                seq: header.seq.ahead_of(SeqNum(OWN)),
                len: transmit.len,
                ack: peer(header.ack),
                flags: header.flags,
                window: header.window,
                sack: header.options.sack.iter().map(|b| (peer(b.start), peer(b.end))).collect(),
            });
        }
        self.connection.check();
        assert!(self.connection.deadline().is_none_or(|deadline| deadline > self.now));
        sent
    }

    /// Returns the first bytes and the lengths of the segments that the connection sends.
    pub(crate) fn ranges(&mut self) -> Vec<(i64, usize)> {
        self.sent().iter().map(|sent| (sent.seq, sent.len)).collect()
    }

    /// Makes bytes ready to be sent. Returns the segments that are sent.
    pub(crate) fn write(&mut self, len: usize) -> Vec<(i64, usize)> {
        self.streams.end += len as u64;
        self.ranges()
    }

    /// Takes all events except acknowledgements.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        let events = std::iter::from_fn(|| self.connection.event());
        events.filter(|event| !matches!(event, Event::Acknowledged(_))).collect()
    }
}
