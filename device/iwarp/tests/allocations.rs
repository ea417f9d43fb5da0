//! Buffers grow when they are used. After that, no turn allocates memory, not in a stream and not
//! in its TCP connection, with losses, retransmission, early segments, and receives that are posted
//! late. An idle stream has no buffers.
//!
//! Shows: cost

#[path = "connection/context.rs"]
mod context;

use std::alloc::System;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use vrnic_iwarp::rdmap::memory::{
    Destination, Early, Ended, Inbound, Memory, Operation, ReadSource, Refused,
};
use vrnic_iwarp::rdmap::work::{Immediate, Outcome, Work, WorkRequest};
use vrnic_iwarp::stream::{Config, Stream};
use vrnic_iwarp::tcp::{Budget, Gone, Source, StreamPos, Undone};
use vrnic_iwarp::wire::ddp::{Stag, Tagged};
use vrnic_iwarp::wire::rdmap::{AtomicOp, SendKind};
use vrnic_packet::{MacAddr, Nanos};
use vrnic_tcp::connection::Connection;
use vrnic_tcp::wire::frame::{self, Frame, HEADROOM, Path};
use vrnic_tcp::{Context, Params, SeqNum};

use context::context;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ALL: Stag = Stag(5);
/// Number of frames that a wire holds.
const WIRE: usize = 1024;
const FRAME: usize = HEADROOM + 1500;
/// Number of work requests that complete in a part of the test, at each end.
const MESSAGES: u64 = 10_000;
/// Maximum number of octets of two idle streams on the heap.
const IDLE: usize = 1024;
/// Maximum number of calls of the allocator for buffers that still grow. It is small for that many
/// messages.
const GROWTH: usize = 20;
/// Maximum number of octets of the buffers of both ends.
const BUDGET: usize = 4 << 20;
/// Octets of an end's memory.
const MEMORY: usize = 1 << 16;

/// Runs a part of the test. Returns the number of calls of the allocator.
fn calls(part: impl FnOnce()) -> usize {
    let region = Region::new(ALLOCATOR);
    part();
    let change = region.change();
    change.allocations + change.reallocations + change.deallocations
}

/// The memory of an end, into which all received octets are written. Sent octets are not read from
/// it, so that they do not change.
struct Flat {
    octets: Vec<u8>,
    /// Numbers of receives that were posted and that were used.
    posted: u64,
    used: u64,
}

impl Flat {
    fn part(&mut self, at: u32, len: usize) -> Result<&mut [u8], Gone> {
        let at = at as usize;
        self.octets.get_mut(at..at + len).ok_or(Gone)
    }

    fn write(&mut self, at: u64, octets: &[u8]) -> Result<(), Refused> {
        let at = u32::try_from(at).map_err(|_| Refused::Bounds)?;
        let part = self.part(at, octets.len()).map_err(|Gone| Refused::Bounds)?;
        part.copy_from_slice(octets);
        Ok(())
    }
}

impl Memory for Flat {
    fn read(&mut self, work: u64, _at: u32, into: &mut [u8]) -> Result<(), Undone> {
        // CAST: any octets may be sent.
        into.fill(work as u8);
        Ok(())
    }

    fn store(&mut self, _work: u64, at: u32, octets: &[u8]) -> Result<(), Undone> {
        self.part(at, octets.len())?.copy_from_slice(octets);
        Ok(())
    }

    fn read_source(
        &mut self,
        _source: &ReadSource,
        _at: u32,
        into: &mut [u8],
    ) -> Result<(), Undone> {
        into.fill(3);
        Ok(())
    }

    fn place(&mut self, inbound: &Inbound, octets: &[u8]) -> Result<(), Refused> {
        match inbound.operation {
            Operation::Write(at) => self.write(at.to, octets),
            Operation::Read(_) => Ok(()),
            _ if self.used == self.posted => Err(Refused::NotReady),
            _ => self.write(inbound.at.into(), octets),
        }
    }

    fn place_ahead(&mut self, early: &Early, octets: &[u8]) -> bool {
        let placed = match early.destination {
            Destination::Write(at) => self.write(at.to, octets),
            Destination::Send { receive, .. } if self.used + u64::from(receive) >= self.posted => {
                return false;
            }
            Destination::Send { at, .. } => self.write(at.into(), octets),
        };
        placed.is_ok()
    }

    fn end(&mut self, inbound: &Inbound) -> Result<Ended, Refused> {
        if matches!(inbound.operation, Operation::Send(_) | Operation::Immediate(_)) {
            self.used += 1;
        }
        Ok(Ended::Now)
    }

    fn atomic(&mut self, _inbound: &Inbound) -> Result<u64, Refused> {
        Ok(7)
    }
}

/// One direction of a link that loses and reorders some frames.
struct Wire {
    frames: Vec<[u8; FRAME]>,
    lengths: Vec<usize>,
    free: Vec<usize>,
    queue: VecDeque<usize>,
}

impl Wire {
    fn new() -> Self {
        Self {
            frames: vec![[0; FRAME]; WIRE],
            lengths: vec![0; WIRE],
            free: (0..WIRE).collect(),
            queue: VecDeque::with_capacity(WIRE),
        }
    }

    fn put(&mut self, octets: &[u8], rng: &mut fastrand::Rng) {
        if rng.u8(..) < 6 {
            return;
        }
        let Some(frame) = self.free.pop() else { return };
        self.frames[frame][..octets.len()].copy_from_slice(octets);
        self.lengths[frame] = octets.len();
        let place =
            self.queue.len().saturating_sub(if rng.u8(..) < 8 { rng.usize(..5) } else { 0 });
        self.queue.insert(place, frame);
    }
}

/// An end, and all memory that it needs.
struct Host {
    stream: Stream,
    tcp: Connection,
    memory: Flat,
    path: Path,
    frame: [u8; FRAME],
    next: u64,
    completed: u64,
}

impl Host {
    fn new(number: u8, mut stream: Stream, received: u32, budget: &Arc<Budget>) -> Self {
        let made = context(SeqNum(0), SeqNum(received));
        let context = Context { mss: 1440, ..made };
        let params = Params { min_rto: Duration::from_millis(5), ..Params::default() };
        let address = |number: u8| SocketAddr::from(([10, 9, 0, number + 1], 4000));
        let path = Path {
            to: MacAddr([2, 0, 0, 0, 0, 1 - number]),
            from: MacAddr([2, 0, 0, 0, 0, number]),
            vlan: None,
            source: address(number),
            destination: address(1 - number),
            traffic_class: 0,
            hop_limit: 64,
        };
        let memory = Flat { octets: vec![number; MEMORY], posted: 0, used: 0 };
        let mut tcp = Connection::adopt(Nanos(0), &context, &params);
        tcp.use_budget(budget);
        stream.use_budget(budget);
        Self { stream, tcp, memory, path, frame: [0; FRAME], next: 0, completed: 0 }
    }

    /// Posts as many work requests as fit.
    fn post(&mut self, rng: &mut fastrand::Rng) {
        let place = Tagged { stag: ALL, to: 0 };
        loop {
            let sink = Tagged { stag: Stag(self.next as u32), to: 0 };
            let work = match rng.u8(..5) {
                0 => Work::Send(SendKind::default()),
                1 => Work::Read { sink, source: place },
                2 => Work::WriteImmediate(place, Immediate::default()),
                3 => Work::Atomic(place, AtomicOp::FetchAdd { add: 1, mask: 0 }),
                _ => Work::Write(place),
            };
            let length = if matches!(work, Work::Atomic(..)) { 8 } else { rng.u32(..6000) };
            let (signaled, fence) = (true, rng.u8(..) < 8);
            let request = WorkRequest { id: self.next, work, length, signaled, fence };
            if self.stream.push(request).is_err() {
                return;
            }
            self.next += 1;
        }
    }

    /// Runs a turn.
    fn turn(&mut self, now: Nanos, wire: &mut Wire, rng: &mut fastrand::Rng) {
        let Self { stream, tcp, memory, path, frame, completed, .. } = self;
        // Sometimes a SEND waits for its receive.
        if rng.u8(..) < 100 {
            memory.posted = memory.used + rng.u64(..20);
            assert!(stream.resume(memory));
            tcp.resume(now, &mut stream.sink(memory));
        }
        tcp.timeout(now);
        while wire.queue.len() < WIRE / 2 {
            stream.progress(memory, tcp.acknowledged(), tcp.sent());
            stream.fill(memory);
            let source = &mut stream.source(memory);
            let Some(sent) = tcp.transmit(now, source, &mut frame[HEADROOM..]) else { break };
            let range = frame::build(path, 0, &sent.header, frame, sent.len).expect("room");
            wire.put(&frame[range], rng);
        }
        while tcp.event().is_some() {}
        while let Some(completion) = stream.next_completion() {
            assert_eq!(completion.outcome, Outcome::Success);
            *completed += 1;
        }
        while stream.next_event().is_some() {}
    }

    fn arrive(&mut self, now: Nanos, wire: &mut Wire) {
        while let Some(frame) = wire.queue.pop_front() {
            let octets = &wire.frames[frame][..wire.lengths[frame]];
            let Frame { segment, .. } = Frame::parse(octets).expect("whole").expect("a segment");
            self.tcp.receive(now, &segment, &mut self.stream.sink(&mut self.memory));
            wire.free.push(frame);
        }
    }
}

/// Two ends.
struct Pair {
    hosts: [Host; 2],
    wires: [Wire; 2],
    rng: fastrand::Rng,
    now: u64,
    budget: Arc<Budget>,
}

impl Pair {
    fn new(config: Config) -> Self {
        let mut memory = Flat { octets: Vec::new(), posted: 0, used: 0 };
        let mut initiator = Stream::initiate(config, &[]);
        let mut source = initiator.source(&mut memory);
        let mut request = vec![0; usize::try_from(source.end().0).expect("short")];
        source.read(StreamPos(0), &mut request).expect("the request");
        let responder = Stream::respond(config, &request, &[]).expect("an agreement");
        let budget = Budget::new(BUDGET);
        let hosts = [
            Host::new(0, initiator, 0, &budget),
            Host::new(1, responder, request.len() as u32, &budget),
        ];
        let rng = fastrand::Rng::with_seed(3);
        Self { hosts, wires: [Wire::new(), Wire::new()], rng, now: 1, budget }
    }

    /// Completes all posted work, and waits until all octets are acknowledged.
    fn settle(&mut self) {
        for _ in 0..100_000 {
            self.round(false);
            if self.hosts.iter().all(|host| host.completed == host.next) {
                break;
            }
        }
        (0..10_000).for_each(|_| self.round(false));
        for host in &mut self.hosts {
            assert_eq!(host.completed, host.next);
            host.stream.shrink();
            host.tcp.shrink();
        }
    }

    fn round(&mut self, posts: bool) {
        let now = Nanos(self.now);
        for own in 0..2 {
            self.hosts[own].arrive(now, &mut self.wires[1 - own]);
            if posts {
                self.hosts[own].post(&mut self.rng);
            }
            self.hosts[own].turn(now, &mut self.wires[own], &mut self.rng);
        }
        self.now += 100_000;
    }

    fn run(&mut self, messages: u64) {
        let ends = [0, 1].map(|own| self.hosts[own].completed + messages);
        let mut turns = 0;
        while (0..2).any(|own| self.hosts[own].completed < ends[own]) {
            self.round(true);
            turns += 1;
            assert!(turns < 1_000_000, "no progress");
        }
    }
}

/// This is one test, because all threads share the allocator.
#[test]
fn buffers_grow_with_their_use_and_go_when_they_are_empty() {
    assert!(calls(|| drop(vec![0_u8; 10])) > 0, "the allocator counts");
    for markers in [false, true] {
        let mut config =
            Config { extensions: true, early_completion: 1000, emss: 1440, ..Config::default() };
        config.wishes.markers = markers;
        let mut pair = Pair::new(config);
        // The first CRC may query the processor's features.
        pair.run(MESSAGES);
        assert!(pair.budget.free() < BUDGET);
        let calls = calls(|| pair.run(MESSAGES));
        assert!(calls <= GROWTH, "markers: {markers}, {calls} calls");
        for host in &pair.hosts {
            let (stream, tcp) = (host.stream.counters(), host.tcp.counters());
            assert!(stream.placed_ahead > 100 && stream.not_ready > 10, "{stream:?}");
            assert!(stream.messages_copied > 100 && stream.answers_sent > 100, "{stream:?}");
            assert!(tcp.send.resent > 50, "{tcp:?}");
        }
        pair.settle();
        assert_eq!(pair.budget.free(), BUDGET, "markers: {markers}");
        let [a, b] = pair.hosts;
        let ends = [(a.stream, a.tcp), (b.stream, b.tcp)];
        let rest = Region::new(ALLOCATOR);
        drop(ends);
        let rest = rest.change().bytes_deallocated;
        assert!(rest <= IDLE, "markers: {markers}, {rest} octets");
    }
}
