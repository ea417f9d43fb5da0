//! Two ends that are joined by an ordered pipe: the stream is cut at random, acknowledgements come
//! late, and ranges without acknowledgement are built again and compared.

use vrnic_iwarp::stream::close::{Happening, Order};
use vrnic_iwarp::stream::{Config, Stream};
use vrnic_iwarp::tcp::{Delivery, Sink, Source, StreamPos, Then};

use crate::host::End;

/// One direction of the pipe.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// All octets that were sent, as they were built the first time.
    pub(crate) shadow: Vec<u8>,
    /// Number of octets that the receiver has taken.
    pub(crate) taken: usize,
    /// Number of octets that were acknowledged to the sender.
    pub(crate) acknowledged: usize,
    /// True if the receiver takes nothing until it is resumed.
    pub(crate) held: bool,
    /// True if the sender has finished, and if the receiver was notified.
    finished: bool,
    peer_notified: bool,
}

/// Two ends and the octets between them.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) ends: [End; 2],
    pub(crate) ways: [Way; 2],
    rng: fastrand::Rng,
    /// True if the receivers of held octets resume by themselves.
    pub(crate) resumes: bool,
    /// True if ranges are built again and compared.
    pub(crate) compares: bool,
    /// True if octets are acknowledged as soon as they are sent, whatever the receiver does with
    /// them.
    pub(crate) eager: bool,
    /// Maximum number of octets of a segment.
    pub(crate) segment: usize,
    closed: bool,
    /// Number of octets of the request.
    request: usize,
}

impl Pair {
    /// Joins an initiator and a responder.
    pub(crate) fn new(seed: u64, first: Config, second: Config) -> Self {
        let initiator = Stream::initiate(first, b"hello");
        let mut initiator = End::new(initiator, seed);
        let mut source = initiator.stream.source(&mut initiator.ram);
        let mut request = vec![0; source.end().0 as usize];
        source.read(StreamPos(0), &mut request).expect("the request is there");
        let responder = Stream::respond(second, &request, b"welcome").expect("an agreement");
        let mut pair = Self {
            ends: [initiator, End::new(responder, !seed)],
            ways: [Way::default(), Way::default()],
            rng: fastrand::Rng::with_seed(seed),
            resumes: true,
            compares: true,
            eager: false,
            segment: 1448,
            closed: false,
            request: request.len(),
        };
        let len = request.len();
        pair.ways[0] = Way { shadow: request, taken: len, acknowledged: len, ..Way::default() };
        let sent = StreamPos(len as u64);
        let End { stream, ram, .. } = &mut pair.ends[0];
        stream.progress(ram, sent, sent);
        pair
    }

    /// Executes events until there are none any more.
    pub(crate) fn run(&mut self) {
        let mut idle = 0;
        while idle < 40 {
            idle = if self.step() { 0 } else { idle + 1 };
        }
    }

    /// Executes a random event in each direction. Returns whether there was one.
    pub(crate) fn step(&mut self) -> bool {
        let mut moved = false;
        for way in 0..2 {
            self.ends[way].stream.fill(&mut self.ends[way].ram);
            moved |= match self.rng.u8(..4) {
                0 | 1 => self.send(way),
                2 => self.deliver(way),
                _ => self.acknowledge(way),
            };
            self.settle(way);
        }
        moved
    }

    /// Sends a segment in a direction.
    pub(crate) fn send(&mut self, way: usize) -> bool {
        let limit = self.rng.usize(1..=self.segment);
        let End { stream, ram, .. } = &mut self.ends[way];
        let sent = &mut self.ways[way].shadow;
        let mut source = stream.source(ram);
        let left = source.end().since(StreamPos(sent.len() as u64));
        if left == 0 || self.closed {
            return false;
        }
        let at = StreamPos(sent.len() as u64);
        let limit = limit.min(usize::try_from(left).expect("small"));
        let len = source.cut(at, limit).clamp(1, limit);
        let mut segment = vec![0; len];
        if source.read(at, &mut segment).is_err() {
            // TCP resets the connection.
            self.closed = true;
            self.ends[1 - way].stream.happened(Happening::PeerReset);
            return true;
        }
        sent.extend_from_slice(&segment);
        if self.eager {
            self.ways[way].acknowledged = sent.len();
        }
        let sent = self.ways[way].shadow.len() as u64;
        let acknowledged = self.ways[way].acknowledged as u64;
        stream.progress(ram, StreamPos(acknowledged), StreamPos(sent));
        if self.compares {
            self.compare(way);
        }
        true
    }

    /// Builds a range without acknowledgement again.
    fn compare(&mut self, way: usize) {
        let Way { shadow, acknowledged, .. } = &self.ways[way];
        let from = self.rng.usize(*acknowledged..shadow.len());
        let to = self.rng.usize(from..=shadow.len());
        let mut again = vec![0; to - from];
        let End { stream, ram, .. } = &mut self.ends[way];
        stream.source(ram).read(StreamPos(from as u64), &mut again).expect("it is in the log");
        assert_eq!(again, shadow[from..to], "octets {from} to {to} were built differently");
    }

    /// Gives octets to the receiver.
    fn deliver(&mut self, way: usize) -> bool {
        // The responder's driver has read the request.
        let origin = if way == 0 { self.request } else { 0 };
        let state = &mut self.ways[way];
        if state.held && !self.resumes || state.taken == state.shadow.len() {
            return false;
        }
        state.held = false;
        let to = self.rng.usize(state.taken + 1..=state.shadow.len());
        let at = StreamPos((state.taken - origin) as u64);
        let End { stream, ram, .. } = &mut self.ends[1 - way];
        let octets = &state.shadow[state.taken..to];
        let delivery = Delivery { at, bytes: octets, acknowledged: false };
        let delivered = stream.sink(ram).deliver(&delivery);
        assert!(delivered.taken <= octets.len());
        state.taken += delivered.taken;
        state.held = delivered.then == Then::Hold;
        delivered.taken > 0
    }

    fn acknowledge(&mut self, way: usize) -> bool {
        let state = &mut self.ways[way];
        if state.acknowledged >= state.taken {
            return false;
        }
        state.acknowledged = self.rng.usize(state.acknowledged + 1..=state.taken);
        let (to, sent) = (state.acknowledged as u64, state.shadow.len() as u64);
        let End { stream, ram, .. } = &mut self.ends[way];
        stream.progress(ram, StreamPos(to), StreamPos(sent));
        true
    }

    /// Executes orders, and reports the ends of directions.
    fn settle(&mut self, way: usize) {
        self.ends[way].collect();
        for order in std::mem::take(&mut self.ends[way].orders) {
            match order {
                Order::Finish => self.ways[way].finished = true,
                Order::Resume => self.ways[1 - way].held = false,
                Order::Reset if !self.closed => {
                    self.closed = true;
                    self.ends[1 - way].stream.happened(Happening::PeerReset);
                }
                Order::Reset => {}
            }
        }
        if self.closed {
            return;
        }
        let End { stream, ram, .. } = &mut self.ends[way];
        let end = stream.source(ram).end().0 as usize;
        let state = &mut self.ways[way];
        if state.finished && !state.peer_notified && state.taken == end {
            state.peer_notified = true;
            self.ends[1 - way].stream.happened(Happening::PeerFinished);
        }
        if self.ways.iter().all(|way| way.peer_notified && way.acknowledged == way.shadow.len()) {
            self.closed = true;
            for end in &mut self.ends {
                end.stream.happened(Happening::Closed);
            }
        }
    }

    /// Cuts the connection: both ends are notified that it is lost.
    pub(crate) fn lose(&mut self) {
        self.closed = true;
        for end in &mut self.ends {
            end.stream.happened(Happening::Lost);
            end.collect();
        }
    }
}
