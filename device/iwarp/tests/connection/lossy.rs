//! Two streams over the TCP engine and a link that loses, doubles, delays and corrupts frames.

use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;
use vrnic_iwarp::rdmap::work::{Outcome, Work};
use vrnic_iwarp::stream::close::{Happening, Order, State};
use vrnic_iwarp::stream::{Config, Stream, Want};
use vrnic_iwarp::tcp::{Source, StreamPos};
use vrnic_iwarp::wire::ddp::{Stag, Tagged};
use vrnic_iwarp::wire::rdmap::SendKind;
use vrnic_simlink::{Faults, Link};
use vrnic_tcp::connection::{Connection, End as Ended, Event as TcpEvent};
use vrnic_tcp::context::Algorithm;
use vrnic_tcp::wire::frame::{self, Frame, HEADROOM, Path};
use vrnic_tcp::{Context, Nanos, Params, SeqNum};

use crate::host::{ALL, End};

const FIRST: [u32; 2] = [0xffff_f000, 7];

/// An end with its TCP connection.
struct Host {
    end: End,
    tcp: Connection,
    path: Path,
    id: u16,
    seen: usize,
}

/// Two ends, the links between them, virtual time.
struct Net {
    hosts: [Host; 2],
    links: [Link; 2],
    now: u64,
}

impl Host {
    fn new(number: u8, end: End, received: u32) -> Self {
        let (own, peer) = (usize::from(number), usize::from(1 - number));
        let context = Context {
            send_next: SeqNum(FIRST[own]),
            receive_next: SeqNum(FIRST[peer]).plus(received),
            send_window: 60_000,
            max_send_window: 60_000,
            receive_window: 60_000,
            send_scale: 7,
            receive_scale: 7,
            mss: 1460,
            sack: true,
            timestamps: None,
            round_trip: None,
        };
        let params = Params {
            congestion: Algorithm::NewReno,
            min_rto: Duration::from_millis(10),
            time_wait: Duration::from_millis(50),
            ..Params::default()
        };
        let address = |number: u8| SocketAddr::from(([10, 9, 0, number + 1], 4000));
        let mac = |number| [2, 0, 0, 0, 0, number];
        let path = Path {
            to: mac(1 - number),
            from: mac(number),
            vlan: None,
            source: address(number),
            destination: address(1 - number),
            traffic_class: 0,
            hop_limit: 64,
        };
        Self { end, tcp: Connection::adopt(Nanos(0), &context, &params), path, id: 0, seen: 0 }
    }

    fn frame(&mut self, now: u64, bytes: &[u8]) {
        let Ok(Some(Frame { path, segment })) = Frame::parse(bytes) else { return };
        if (path.source, path.destination) == (self.path.destination, self.path.source) {
            let End { stream, ram, .. } = &mut self.end;
            self.tcp.receive(Nanos(now), &segment, &mut stream.sink(ram));
        }
    }

    /// Does a turn.
    fn poll(&mut self, now: u64, mut send: impl FnMut(&[u8])) {
        let at = Nanos(now);
        self.tcp.timeout(at);
        let mut frame = vec![0; HEADROOM + 2000];
        loop {
            self.tell();
            let End { stream, ram, .. } = &mut self.end;
            stream.fill(ram);
            let source = &mut stream.source(ram);
            let Some(sent) = self.tcp.transmit(at, source, &mut frame[HEADROOM..]) else { break };
            self.id = self.id.wrapping_add(1);
            let range = frame::build(&self.path, self.id, &sent.header, &mut frame, sent.len);
            send(&frame[range.expect("room")]);
        }
    }

    /// Tells each of the two what the other has to say.
    fn tell(&mut self) {
        let Self { end, tcp, .. } = self;
        end.stream.progress(tcp.acknowledged(), tcp.sent());
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
        for order in std::mem::take(&mut end.orders) {
            match order {
                Order::Finish => tcp.close(),
                Order::Reset => tcp.abort(),
            }
        }
        self.overwrite();
    }

    /// Uses the buffers of completed messages again, as a program may.
    fn overwrite(&mut self) {
        let End { completions, ram, .. } = &mut self.end;
        for done in completions.iter().skip(self.seen) {
            let start = ram.work[&done.id];
            if start < 0x1_0000 {
                ram.octets[start..start + 0x1000].fill(0xee);
            }
        }
        self.seen = completions.len();
    }
}

impl Net {
    fn new(seed: u64, config: Config) -> Self {
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

    fn step(&mut self) -> bool {
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

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..300_000 {
            if done(self) || !self.step() {
                break;
            }
        }
        assert!(done(self), "no progress at {} ns", self.now);
    }
}

/// Posts a WRITE, a SEND and a READ of 4,000 octets, `rounds` times, at both ends.
fn exchange(net: &mut Net, rounds: usize) -> Vec<(usize, usize, Vec<u8>)> {
    let mut expected = Vec::new();
    for round in 0..rounds {
        for own in 0..2 {
            let base = 0x1000 * (3 * round);
            let at = |to: usize| Tagged { stag: ALL, to: to as u64 };
            let peer = 1 - own;
            let part = |net: &Net, end: usize, from: usize| {
                net.hosts[end].end.ram.octets[from..from + 4000].to_vec()
            };
            let (write, send) = (base % 0x1_0000, (base + 0x1000) % 0x1_0000);
            expected.push((peer, 0x2_0000 + write, part(net, own, write)));
            expected.push((peer, 0x1_0000 + send, part(net, own, send)));
            let read = 0x1000 * round;
            expected.push((own, 0x3_8000 + read, part(net, peer, 0x3_0000 + read)));
            net.hosts[peer].end.receive(0x1_0000 + send, 4000);
            let end = &mut net.hosts[own].end;
            end.post(Work::Write(at(0x2_0000 + write)), write, 4000);
            end.post(Work::Send(SendKind::default()), send, 4000);
            let sink = Tagged { stag: Stag(round as u32), to: 0 };
            end.post(Work::Read { sink, source: at(0x3_0000 + read) }, 0x3_8000 + read, 4000);
        }
    }
    expected
}

/// Runs both ends until all is complete, checks it, and closes.
fn run(seed: u64, config: Config, faults: Faults) {
    let mut net = Net::new(seed, config);
    for link in &mut net.links {
        link.faults(faults);
    }
    let expected = exchange(&mut net, 5);
    net.run_until(|net| net.hosts.iter().all(|host| host.end.completions.len() == 15));
    for host in &net.hosts {
        let outcomes: Vec<_> = (0..15).map(|id| (id, Outcome::Success)).collect();
        assert_eq!(host.end.outcomes(), outcomes);
        assert_eq!(host.end.ram.received.len(), 5);
        assert_eq!(host.end.stream.counters().crc_errors, 0, "TCP's checksum finds it first");
    }
    for (end, start, octets) in expected {
        assert_eq!(net.hosts[end].end.ram.octets[start..start + 4000], octets[..], "{end} {start}");
    }
    net.hosts[0].end.stream.disconnect(Want::Graceful);
    net.run_until(|net| net.hosts.iter().all(|host| host.end.stream.state() == State::Idle));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn over_tcp_the_peer_has_the_old_octets_though_buffers_are_used_again(
        seed in any::<u32>(),
        early in prop_oneof![Just(0), Just(4000_u32)],
        (markers, drop) in (any::<bool>(), 0..80_000_u32),
    ) {
        let mut config = Config { early_completion: early, ..Config::default() };
        config.wishes.markers = markers;
        config.emss = 1460;
        let faults = Faults { drop, duplicate: 20_000, delay: 20_000, ..Faults::default() };
        run(seed.into(), config, faults);
    }
}

#[test]
fn a_refused_message_is_still_outstanding_when_the_terminate_comes() {
    let mut net = Net::new(9, Config::default());
    let wrong = Tagged { stag: Stag(0xbad), to: 0 };
    net.hosts[0].end.post(Work::Write(wrong), 0, 3000);
    net.hosts[0].end.post(Work::Write(Tagged { stag: ALL, to: 0x2_0000 }), 0, 3000);
    net.run_until(|net| net.hosts.iter().all(|host| host.end.stream.state() == State::Error));
    let outcomes = net.hosts[0].end.outcomes();
    assert_eq!(outcomes, [(0, Outcome::RemoteAccess), (1, Outcome::Flushed)]);
}
