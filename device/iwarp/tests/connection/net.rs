//! Two streams over the TCP engine and a link with faults.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use vrnic_iwarp::stream::close::{Happening, Order};
use vrnic_iwarp::stream::{Config, Event, Stream};
use vrnic_iwarp::tcp::{Source, StreamPos};
use vrnic_packet::{MacAddr, Nanos};
use vrnic_simlink::{Fate, Link};
use vrnic_tcp::connection::{Connection, End as Ended, Event as TcpEvent};
use vrnic_tcp::context::Algorithm;
use vrnic_tcp::wire::frame::{self, Frame, HEADROOM, Path};
use vrnic_tcp::{Params, SeqNum};

use crate::context::context;
use crate::host::End;

const FIRST: [u32; 2] = [0xffff_f000, 7];

/// The time from which an end may use a range of its memory again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// This work request is complete.
    Completed(u64),
    /// This many receives are complete.
    Received(usize),
}

/// A range of an end's memory that is overwritten as soon as this is allowed.
#[derive(Debug)]
pub(crate) struct Reuse {
    pub(crate) when: When,
    pub(crate) range: Range<usize>,
    /// The octets that the range had at that time.
    pub(crate) found: Option<Vec<u8>>,
}

/// An end with its TCP connection.
pub(crate) struct Host {
    pub(crate) end: End,
    pub(crate) tcp: Connection,
    path: Path,
    id: u16,
    /// Ranges that are used again.
    pub(crate) reuses: Vec<Reuse>,
    /// All octets that were sent.
    pub(crate) shadow: Vec<u8>,
}

/// Two ends, the links between them, virtual time.
pub(crate) struct Net {
    pub(crate) hosts: [Host; 2],
    pub(crate) links: [Link; 2],
    pub(crate) now: u64,
}

impl Host {
    pub(crate) fn new(number: u8, end: End, received: u32) -> Self {
        let (own, peer) = (usize::from(number), usize::from(1 - number));
        let receive_next = SeqNum(FIRST[peer]).plus(received);
        let context = context(SeqNum(FIRST[own]), receive_next);
        let params = Params {
            congestion: Algorithm::Cubic,
            min_rto: Duration::from_millis(10),
            // Long enough for several retransmissions of the last FIN, which a lossy link needs.
            time_wait: Duration::from_secs(2),
            ..Params::default()
        };
        let address = |number: u8| SocketAddr::from(([10, 9, 0, number + 1], 4000));
        let mac = |number| [2, 0, 0, 0, 0, number];
        let path = Path {
            to: MacAddr(mac(1 - number)),
            from: MacAddr(mac(number)),
            vlan: None,
            source: address(number),
            destination: address(1 - number),
            traffic_class: 0,
            hop_limit: 64,
        };
        Self {
            end,
            tcp: Connection::adopt(Nanos(0), &context, &params),
            path,
            id: 0,
            reuses: Vec::new(),
            shadow: Vec::new(),
        }
    }

    pub(crate) fn frame(&mut self, now: u64, bytes: &[u8]) {
        let Ok(Some(Frame { path, segment })) = Frame::parse(bytes) else { return };
        if (path.source, path.destination) == (self.path.destination, self.path.source) {
            let End { stream, ram, .. } = &mut self.end;
            self.tcp.receive(Nanos(now), &segment, &mut stream.sink(ram));
            self.tell(now);
        }
    }

    /// Runs a turn.
    pub(crate) fn poll(&mut self, now: u64, mut send: impl FnMut(&[u8])) {
        let at = Nanos(now);
        self.tcp.timeout(at);
        let mut frame = vec![0; HEADROOM + 2000];
        loop {
            self.tell(now);
            let End { stream, ram, .. } = &mut self.end;
            stream.fill(ram);
            self.note();
            let End { stream, ram, .. } = &mut self.end;
            let source = &mut stream.source(ram);
            let Some(sent) = self.tcp.transmit(at, source, &mut frame[HEADROOM..]) else { break };
            self.id = self.id.wrapping_add(1);
            let range = frame::build(&self.path, self.id, &sent.header, &mut frame, sent.len);
            send(&frame[range.expect("room")]);
        }
    }

    /// Passes events and orders between the stream and TCP.
    fn tell(&mut self, now: u64) {
        let Self { end, tcp, .. } = self;
        end.stream.progress(&mut end.ram, tcp.acknowledged(), tcp.sent());
        while let Some(event) = tcp.event() {
            match event {
                TcpEvent::Acknowledged(_) => {}
                TcpEvent::PeerClosed => end.stream.happened(Happening::PeerFinished),
                TcpEvent::Closed => end.stream.happened(Happening::Closed),
                TcpEvent::Ended(Ended::Closed) => {}
                TcpEvent::Ended(Ended::TimedOut) => end.stream.happened(Happening::Lost),
                TcpEvent::Ended(_) => end.stream.happened(Happening::PeerReset),
            }
        }
        end.collect();
        let mut resumed = false;
        for order in std::mem::take(&mut end.orders) {
            match order {
                Order::Finish => tcp.close(),
                Order::Resume => {
                    tcp.resume(Nanos(now), &mut end.stream.sink(&mut end.ram));
                    resumed = true;
                }
                Order::Reset => tcp.abort(),
            }
        }
        self.overwrite();
        if resumed {
            self.tell(now);
        }
    }

    /// Delivers octets that were held back.
    pub(crate) fn resume(&mut self, now: u64) {
        let End { stream, ram, .. } = &mut self.end;
        assert!(stream.resume(ram));
        self.tcp.resume(Nanos(now), &mut stream.sink(ram));
        self.tell(now);
    }

    /// Uses a range of memory again when this is allowed.
    pub(crate) fn reuse(&mut self, when: When, range: Range<usize>) {
        self.reuses.push(Reuse { when, range, found: None });
    }

    /// Uses the memory of completed messages again, as a program may.
    fn overwrite(&mut self) {
        let End { completions, ram, .. } = &mut self.end;
        for reuse in self.reuses.iter_mut().filter(|reuse| reuse.found.is_none()) {
            let due = match reuse.when {
                When::Completed(id) => completions.iter().any(|done| done.id == id),
                When::Received(count) => ram.received.len() >= count,
            };
            if due {
                let octets = &mut ram.octets[reuse.range.clone()];
                reuse.found = Some(octets.to_vec());
                octets.fill(0xee);
            }
        }
    }

    /// Records the octets that are sent.
    fn note(&mut self) {
        let End { stream, ram, .. } = &mut self.end;
        let mut source = stream.source(ram);
        let (at, end) = (self.shadow.len(), source.end().0 as usize);
        self.shadow.resize(end, 0);
        if source.read(StreamPos(at as u64), &mut self.shadow[at..]).is_err() {
            self.shadow.truncate(at);
        }
    }
}

impl Net {
    pub(crate) fn new(seed: u64, config: Config) -> Self {
        let mut initiator = End::new(Stream::initiate(config, &[]), seed);
        let mut source = initiator.stream.source(&mut initiator.ram);
        let mut request = vec![0; source.end().0 as usize];
        source.read(StreamPos(0), &mut request).expect("the request");
        let responder = Stream::respond(config, &request, &[]).expect("an agreement");
        let responder = End::new(responder, !seed);
        let hosts = [Host::new(0, initiator, 0), Host::new(1, responder, request.len() as u32)];
        let link = |seed| Link::new(seed, 50_000, 10);
        Self { hosts, links: [link(seed), link(seed.wrapping_add(1))], now: 1 }
    }

    pub(crate) fn step(&mut self) -> bool {
        for (own, host) in self.hosts.iter_mut().enumerate() {
            while let Some(frame) = self.links[1 - own].receive(self.now) {
                host.frame(self.now, &frame);
            }
            host.poll(self.now, |frame| self.links[own].send(self.now, frame));
        }
        let arrivals = self.links.iter().filter_map(Link::next_arrival);
        let deadlines = self.hosts.iter().filter_map(|host| host.tcp.deadline());
        let next = arrivals.chain(deadlines.map(|at| at.0)).min();
        self.now = next.unwrap_or(self.now).max(self.now + 1);
        next.is_some()
    }

    pub(crate) fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..300_000 {
            if done(self) || !self.step() {
                break;
            }
        }
        assert!(done(self), "no progress at {} ns", self.now);
    }

    /// Runs until both ends are connected.
    pub(crate) fn establish(&mut self) {
        let is_established =
            |host: &Host| host.end.events.iter().any(|e| matches!(e, Event::Established(_)));
        self.run_until(|net| net.hosts.iter().all(is_established));
    }

    /// Decides on the frames with data of a direction, by their number.
    pub(crate) fn rule(&mut self, own: usize, fate: impl Fn(usize) -> Fate + 'static) {
        let mut count = 0;
        self.links[own].rule(move |frame| {
            let large = frame.len() > 100;
            count += usize::from(large);
            if large { fate(count) } else { Fate::Pass }
        });
    }

    /// Returns the number of FPDUs that an end has placed early.
    pub(crate) fn placed_ahead(&self, own: usize) -> u64 {
        self.hosts[own].end.stream.counters().placed_ahead
    }

    /// Checks that nothing has changed memory after it was used again.
    pub(crate) fn check_reuses(&self) {
        for host in &self.hosts {
            for Reuse { when, range, found } in &host.reuses {
                assert!(found.is_some(), "{when:?} has not come");
                let octets = &host.end.ram.octets[range.clone()];
                assert!(octets.iter().all(|octet| *octet == 0xee), "{when:?} {range:?} changed");
            }
        }
    }
}
