//! One end of a connection, with conditions that always hold.

use std::net::SocketAddr;

use vrnic_packet::{MacAddr, Nanos};
use vrnic_tcp::connection::{Connection, Event};
use vrnic_tcp::wire::frame::{self, Frame, HEADROOM, Path};
use vrnic_tcp::wire::{Header, SackBlock, Segment};
use vrnic_tcp::{
    Context, Delivered, Delivery, Gone, Offered, Params, SeqNum, Sink, Source, StreamPos, Then,
    Undone,
};

/// Bytes that are further ahead than this are not recorded. No window includes them.
const FAR: usize = 1 << 26;
/// Maximum number of bytes of data in a segment.
const DATA: usize = 9000;

/// Returns the byte at a position of a stream.
pub(crate) fn pattern(seed: u64, at: u64) -> u8 {
    let mixed = (at ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// The bytes to send.
#[derive(Debug)]
pub(crate) struct Bytes {
    pub(crate) seed: u64,
    pub(crate) end: u64,
    /// Segments end at multiples of this number.
    pub(crate) unit: usize,
    /// Bytes before this position cannot be read.
    pub(crate) gone: u64,
}

impl Source for Bytes {
    fn end(&self) -> StreamPos {
        StreamPos(self.end)
    }

    fn cut(&self, at: StreamPos, limit: usize) -> usize {
        let end = (at.0 as usize + limit) / self.unit * self.unit;
        let len = end.saturating_sub(at.0 as usize);
        if len == 0 || at.0 + limit as u64 == self.end { limit } else { len }
    }

    fn read(&mut self, at: StreamPos, into: &mut [u8]) -> Result<(), Undone> {
        if at.0 < self.gone {
            return Err(Gone.into());
        }
        assert!(at.0 + into.len() as u64 <= self.end);
        for (byte, at) in into.iter_mut().zip(at.0..) {
            *byte = pattern(self.seed, at);
        }
        Ok(())
    }
}

/// A receiver that decides at random, and checks each byte.
#[derive(Debug)]
pub(crate) struct Taker {
    pub(crate) seed: u64,
    pub(crate) next: u64,
    pub(crate) rng: fastrand::Rng,
    /// Ranges that were placed early.
    pub(crate) placed: Vec<std::ops::Range<u64>>,
    /// Chances in 256 to place early bytes, to hold bytes back, to refuse bytes.
    pub(crate) place: u8,
    pub(crate) hold: u8,
    pub(crate) refuse: u8,
    pub(crate) held: bool,
}

impl Taker {
    fn happens(&mut self, chance: u8) -> bool {
        self.rng.u8(..) < chance
    }

    fn check(&self, at: u64, bytes: &[u8]) {
        for (byte, at) in bytes.iter().zip(at..) {
            assert_eq!(*byte, pattern(self.seed, at), "a wrong byte at {at}");
        }
    }
}

impl Sink for Taker {
    fn deliver(&mut self, delivery: &Delivery<'_>) -> Delivered {
        let Delivery { at, bytes, acknowledged } = *delivery;
        assert_eq!(at.0, self.next, "bytes out of order");
        assert!(!bytes.is_empty());
        self.check(at.0, bytes);
        let hold = self.happens(self.hold);
        let refuse = !acknowledged && self.happens(self.refuse);
        let taken = if hold || refuse { self.rng.usize(..=bytes.len()) } else { bytes.len() };
        self.next += taken as u64;
        self.held |= hold;
        let then = if hold {
            Then::Hold
        } else if refuse {
            Then::Refuse
        } else if self.happens(50) {
            Then::Acknowledge
        } else {
            Then::Continue
        };
        Delivered { taken, then }
    }

    fn offer(&mut self, at: StreamPos, bytes: &[u8]) -> Offered {
        assert!(at.0 > self.next, "bytes in order were offered");
        self.check(at.0, bytes);
        let range = at.0..at.0 + bytes.len() as u64;
        let overlaps =
            |other: &std::ops::Range<u64>| other.start < range.end && range.start < other.end;
        assert!(!self.placed.iter().any(overlaps), "bytes were offered after they had been placed");
        if self.happens(self.place) {
            self.placed.push(range);
            Offered::Placed
        } else if self.happens(self.refuse) {
            Offered::Refuse
        } else {
            Offered::Buffer
        }
    }

    fn filled(&mut self, from: StreamPos, to: StreamPos) -> Then {
        assert_eq!(from.0, self.next, "filled out of order");
        let mut at = from.0;
        while at < to.0 {
            let place = self.placed.iter().position(|range| range.start == at);
            at = self.placed.swap_remove(place.expect("bytes that were placed")).end;
        }
        assert_eq!(at, to.0);
        self.next = to.0;
        Then::Continue
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) connection: Connection,
    pub(crate) source: Bytes,
    pub(crate) sink: Taker,
    pub(crate) events: Vec<Event>,
    pub(crate) path: Path,
    context: Context,
    /// The edge of the advertised window, and of the received window.
    promised: i64,
    allowed: u64,
    /// For each byte of the peer, whether it has arrived in any segment.
    arrived: Vec<bool>,
    /// Memory for a frame.
    frame: Vec<u8>,
    id: u16,
    pub(crate) sent: u64,
}

impl Host {
    pub(crate) fn new(number: u8, context: Context, params: &Params) -> Self {
        let address = |number: u8| SocketAddr::from(([10, 9, 0, number], 4000 + u16::from(number)));
        let mac = |number| [2, 0, 0, 0, 0, number];
        let peer = 3 - number;
        let taker = Taker {
            seed: peer.into(),
            next: 0,
            rng: fastrand::Rng::with_seed(number.into()),
            placed: Vec::new(),
            place: 0,
            hold: 0,
            refuse: 0,
            held: false,
        };
        Self {
            connection: Connection::adopt(Nanos(0), &context, params),
            source: Bytes { seed: number.into(), end: 0, unit: 1, gone: 0 },
            sink: taker,
            events: Vec::new(),
            path: Path {
                to: MacAddr(mac(peer)),
                from: MacAddr(mac(number)),
                vlan: None,
                source: address(number),
                destination: address(peer),
                traffic_class: 0,
                hop_limit: 64,
            },
            context,
            promised: i64::from(context.receive_window),
            allowed: context.send_window.into(),
            arrived: Vec::new(),
            frame: vec![0; HEADROOM + DATA],
            id: 0,
            sent: 0,
        }
    }

    /// Receives a frame.
    pub(crate) fn frame(&mut self, now: u64, bytes: &[u8]) {
        let Ok(Some(Frame { path, segment })) = Frame::parse(bytes) else { return };
        if (path.source, path.destination) != (self.path.destination, self.path.source) {
            return;
        }
        self.segment(now, &segment);
    }

    /// Receives a segment.
    pub(crate) fn segment(&mut self, now: u64, segment: &Segment<'_>) {
        let header = &segment.header;
        let ack = header.ack.ahead_of(self.context.send_next);
        let edge = ack + (i64::from(header.window) << self.context.send_scale.min(14));
        self.allowed = self.allowed.max(u64::try_from(edge).unwrap_or(0));
        let start = header.seq.ahead_of(self.context.receive_next);
        let end = start + segment.payload.len() as i64;
        if let (Ok(start @ ..FAR), Ok(end)) = (usize::try_from(start.max(0)), usize::try_from(end))
        {
            self.arrived.resize(self.arrived.len().max(end), false);
            self.arrived[start..end].fill(true);
        }
        self.connection.receive(Nanos(now), segment, &mut self.sink);
        self.connection.check();
    }

    /// Runs a turn.
    pub(crate) fn poll(&mut self, now: u64, mut send: impl FnMut(&[u8])) {
        let at = Nanos(now);
        self.connection.timeout(at);
        if self.sink.held && self.sink.rng.u8(..) < 100 {
            self.sink.held = false;
            let sink = &mut self.sink;
            let chances = (std::mem::take(&mut sink.hold), std::mem::take(&mut sink.refuse));
            self.connection.resume(at, sink);
            (sink.hold, sink.refuse) = chances;
        }
        let mut frame = std::mem::take(&mut self.frame);
        let into = HEADROOM;
        while let Some(transmit) =
            self.connection.transmit(at, &mut self.source, &mut frame[into..])
        {
            self.check(&transmit.header, &frame[HEADROOM..HEADROOM + transmit.len]);
            self.id = self.id.wrapping_add(1);
            let range =
                frame::build(&self.path, self.id, &transmit.header, &mut frame, transmit.len);
            send(&frame[range.expect("room")]);
            self.sent += 1;
        }
        self.frame = frame;
        self.connection.check();
        let deadline = self.deadline();
        assert!(deadline.is_none_or(|deadline| deadline > at), "{at:?} {deadline:?}");
        self.events.extend(std::iter::from_fn(|| self.connection.event()));
    }

    /// Returns the next time at which the connection has work.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        [self.connection.deadline(), self.connection.keepalive()].into_iter().flatten().min()
    }

    /// Checks a segment that is sent.
    fn check(&mut self, header: &Header, payload: &[u8]) {
        let start = header.seq.ahead_of(self.context.send_next);
        for (byte, at) in payload.iter().zip(start..) {
            assert_eq!(*byte, pattern(self.source.seed, at as u64), "a different retransmission");
        }
        assert!(start + payload.len() as i64 <= self.allowed as i64 + 1, "beyond the window");
        let ack = header.ack.ahead_of(self.context.receive_next);
        let edge = ack + (i64::from(header.window) << self.context.receive_scale.min(14));
        assert!(edge >= self.promised, "the window was taken back");
        self.promised = edge;
        for SackBlock { start, end } in &header.options.sack {
            let position = |number: &SeqNum| number.ahead_of(self.context.receive_next);
            assert!(position(start) < position(end));
            // Reports of duplicates may begin before the first byte.
            let range = position(start).max(0) as usize..position(end).max(0) as usize;
            assert!(self.arrived[range].iter().all(|arrived| *arrived), "not received");
        }
    }
}
