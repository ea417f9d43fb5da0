//! Ten thousand idle TCP connections of an adapter (of iWARP, and of bytes) need little memory and
//! no work, and no timers except for probes. Also measures the memory of connections that are in
//! use.
//!
//! Shows: cost
//!
//! | module | what it holds |
//! | --- | --- |
//! | `host` | a host of tests: guest memory, BAR2, interrupts and a clock |
//! | `bus` | the test driver's bus to an adapter in this process |
//! | `world` | adapters that reach each other, and two connected QPs |
#![forbid(unsafe_code)]

#[expect(dead_code, reason = "these tests need a part of it")]
#[path = "../adapter/bus.rs"]
mod bus;
#[expect(dead_code, reason = "these tests need a part of it")]
#[path = "../adapter/host.rs"]
mod host;
#[expect(dead_code, reason = "these tests need a part of it")]
#[path = "../adapter/world.rs"]
mod world;

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use vrnic_abi::admin::{CreateQp, Opcode as Admin, Transport};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::Type;
use vrnic_abi::sq::Opcode;
use vrnic_abi::uar::SLOTS;
use vrnic_adapter::ethernet::{Frame, Uplink};
use vrnic_adapter::limits::CONNECTION_MEMORY;
use vrnic_packet::pool::{Buffer, LEN_MAX};
use vrnic_packet::{MacAddr, Nanos, ServiceFields};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::idle_qps::IdleQps;
use vrnic_testdriver::qp::{Setup, TO_RTS, attributes};
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest, InProcess};
use crate::world::World;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Number of connections of each adapter.
const COUNT: u16 = 10_000;
/// Maximum number of bytes of an idle connection and its QP.
const LIMIT: usize = 8 << 10;
/// Maximum number of bytes of an idle QP whose messages are copied.
const QP_LIMIT: usize = 1700;
/// Bytes by which the adapters' own queues may grow, once.
const QUEUES: usize = 24 << 10;
const SECOND: u64 = 1_000_000_000;
/// The idle time after which connections probe their peers.
const KEEPALIVE: Duration = Duration::from_secs(7200);

/// Returns the bytes that were allocated and are still in use.
fn bytes(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change.bytes_allocated.saturating_sub(change.bytes_deallocated)
}

/// Two adapters, and an endpoint on each.
struct Daemon {
    world: World,
    guests: [Guest; 2],
    ends: [Endpoint; 2],
}

impl Daemon {
    fn new(world: World) -> Self {
        Self::with(world, Setup::default())
    }

    fn with(world: World, setup: Setup) -> Self {
        let guests = [world.guest(1), world.guest(2)];
        for guest in &guests {
            guest.adapter.set_keepalive(Some(KEEPALIVE));
            if setup.kind == Type::Toe {
                guest.adapter.set_transport(Transport::Iwarp);
            }
        }
        let ends = guests.each_ref().map(|guest| Endpoint::new(guest, setup));
        Self { world, guests, ends }
    }

    /// Returns a daemon whose QPs have connections that carry bytes.
    fn of_bytes() -> Self {
        let world = World::copying();
        world.fabric.use_packets_only();
        Self::with(world, Setup { kind: Type::Toe, ..Setup::default() })
    }

    /// Returns a daemon whose adapters exchange packets.
    fn by_wire() -> Self {
        let world = World::copying();
        world.fabric.use_packets_only();
        Self::new(world)
    }

    fn settle(&self) {
        settle(&self.world, &self.guests);
    }

    /// Moves the clock until only timers of probes are left, for a few seconds at most.
    fn rest(&self) {
        for _ in 0..1000 {
            self.settle();
            for guest in &self.guests {
                while guest.event().is_some() {}
            }
            let far = Nanos(self.world.clock.load(Ordering::Acquire)).plus(KEEPALIVE / 2);
            if self.deadlines().iter().flatten().all(|at| *at > far) {
                return;
            }
            self.world.advance(SECOND / 100);
        }
        panic!("there are still timers: {:?}", self.deadlines());
    }

    fn deadlines(&self) -> [Option<Nanos>; 2] {
        self.guests.each_ref().map(|guest| guest.adapter.poll(0).deadline)
    }

    /// Connects `count` pairs of QPs. Also returns the bytes that each end of a connection has
    /// allocated.
    fn idle_qps(&self, count: u16) -> ([IdleQps<'_, InProcess>; 2], usize) {
        let mut idle_qps = self.ends.each_ref().map(IdleQps::new);
        let before = Region::new(ALLOCATOR);
        let [a, b] = &mut idle_qps;
        IdleQps::connect([a, b], count, || self.settle()).expect("connections");
        self.rest();
        let each = bytes(&before) / (2 * usize::from(count));
        (idle_qps, each)
    }

    /// Checks that no adapter does anything while time passes.
    fn check_idle(&self) {
        let wakes = || self.guests.each_ref().map(|guest| guest.host.wakes());
        let (before, deadlines) = (wakes(), self.deadlines());
        for _ in 0..100 {
            self.world.advance(60 * SECOND);
            for (guest, deadline) in self.guests.iter().zip(deadlines) {
                let polled = guest.adapter.poll(0);
                assert_eq!((polled.busy, polled.deadline), (false, deadline));
            }
        }
        assert_eq!(wakes(), before);
    }
}

fn settle(world: &World, [a, b]: &[Guest; 2]) {
    world.settle(&[a, b]);
}

/// Connects the endpoints of a daemon with connections that carry bytes if `connects` is true, and
/// lets each send bytes to the other.
fn send_both_ways(daemon: &mut Daemon, connects: bool, len: u32) {
    let Daemon { world, guests, ends: [a, b] } = daemon;
    if connects {
        stream::connect_toes(a, b);
    }
    for (from, to) in [(0, 1), (1, 0)] {
        let [own, other] = if from < to { [&mut *a, &mut *b] } else { [&mut *b, &mut *a] };
        other.post_recv(1, &[other.sge(0, len)]);
        own.post_send(&Wr::new(Opcode::Send, &[own.sge(0, len)]));
        let (mut sent, mut received) = (None, None);
        for _ in 0..1000 {
            settle(world, guests);
            sent = sent.or_else(|| own.send_cq.poll());
            received = received.or_else(|| other.recv_cq.poll());
            if sent.is_some() && received.is_some() {
                break;
            }
            world.advance(100_000);
        }
        for done in [sent, received] {
            assert_eq!(status(&done.expect("a completion")), Status::Success);
        }
    }
}

/// Connects the endpoints of a daemon if `connects` is true, and lets each write to the other.
fn write_both_ways(daemon: &mut Daemon, connects: bool, len: u32) {
    let Daemon { world, guests, ends: [a, b] } = daemon;
    if connects {
        stream::connect_pair(a, b);
    }
    for (from, to) in [(0, 1), (1, 0)] {
        let [own, other] = if from < to { [&mut *a, &mut *b] } else { [&mut *b, &mut *a] };
        own.post_send(&Wr::new(Opcode::Write, &[own.sge(0, len)]).to(other.buffer, other.key));
        let mut done = None;
        for _ in 0..1000 {
            settle(world, guests);
            done = own.send_cq.poll();
            if done.is_some() {
                break;
            }
            world.advance(100_000);
        }
        assert_eq!(status(&done.expect("a completion")), Status::Success);
    }
}

fn idle_connections_are_small(daemon: Daemon, name: &str, probes: bool) {
    let (idle_qps, each) = daemon.idle_qps(COUNT);
    println!("{name}: {each} bytes");
    assert!(each <= LIMIT, "{name}: {each} bytes");
    for guest in &daemon.guests {
        assert_eq!(guest.adapter.connection_memory().free(), CONNECTION_MEMORY);
    }
    daemon.check_idle();
    // One timer for each connection, but none if its ends are paired.
    assert!(daemon.deadlines().iter().all(|at| at.is_some() == probes));
    for set in idle_qps {
        set.destroy().expect("DESTROY_QP");
    }
}

/// A QP without work needs little memory.
fn idle_qps_are_small() {
    const COUNT: usize = 200;
    let daemon = Daemon::new(World::copying());
    let [a, b] = &daemon.ends;
    let uars: Vec<_> = (0..COUNT.div_ceil(SLOTS as usize))
        .map(|_| a.guest.on_object(Admin::AllocUar, a.context).expect("ALLOC_UAR"))
        .collect();
    let params = a.params();
    let before = Region::new(ALLOCATOR);
    for nth in 0..COUNT {
        let params = CreateQp { uar: uars[nth / SLOTS as usize].into(), ..params };
        let (qpn, ..) = a.guest.create_qp(&params).expect("CREATE_QP");
        a.guest.take_through(qpn, attributes(b.guest.mac(), b.qpn), &TO_RTS);
    }
    let each = bytes(&before) / COUNT;
    println!("idle QP: {each} bytes");
    assert!(each <= QP_LIMIT, "idle QP: {each} bytes");
}

/// Fills the pool of frame memory. The pool keeps this memory, so that it is not counted as memory
/// of a connection.
fn fill_pool() {
    for (len, count) in [(1, 2000), (2000, 600), (4000, 600), (9000, 80), (LEN_MAX, 40)] {
        drop((0..count).map(|_| Buffer::of(len)).collect::<Vec<_>>());
    }
}

/// A connection that has been used gives its buffers back.
fn buffers_are_given_back(mut daemon: Daemon, exchange: fn(&mut Daemon, bool, u32)) {
    fill_pool();
    let before = Region::new(ALLOCATOR);
    exchange(&mut daemon, true, 1);
    let busy = bytes(&before);
    daemon.rest();
    let idle = bytes(&before);
    assert!(idle + 2048 < busy, "{busy} bytes, and then {idle}");
    for _ in 0..10 {
        exchange(&mut daemon, false, 1 << 20);
        daemon.rest();
        let again = bytes(&before);
        assert!(again <= idle + QUEUES, "{idle} bytes, and then {again}");
    }
    daemon.check_idle();
}

/// A network that takes joined frames. No frame is sent to it, because all stations are adapters.
#[derive(Debug)]
struct Joins;

impl Uplink for Joins {
    fn send(&self, _source: MacAddr, frames: &mut Vec<Frame>) {
        frames.clear();
    }

    fn room(&self, _source: MacAddr, _service: ServiceFields) -> usize {
        usize::MAX
    }

    fn joins(&self) -> bool {
        true
    }
}

/// Each connection sends two segments in a frame, which the adapter allocates for more segments.
fn busy_connections_share_the_memory_for_a_frame() {
    const BUSY: u16 = 40;
    let daemon = Daemon::by_wire();
    daemon.world.fabric.attach(Arc::new(Joins));
    let [ga, gb] = &daemon.guests;
    let mut pairs = Vec::new();
    for nth in 0..BUSY {
        let ends = [ga, gb].map(|guest| Endpoint::new(guest, Setup::default()));
        for (own, peer) in [(0, gb), (1, ga)] {
            let mut connection =
                stream::connection(own, [daemon.guests[own].mac(), peer.mac()], stream::MSS);
            let port = match own {
                0 => &mut connection.local_port,
                _ => &mut connection.remote_port,
            };
            *port = (6000 + nth).into();
            let end = &ends[own];
            end.guest.take_through(end.qpn, attributes(peer.mac(), 0), &TO_RTS[..1]);
            end.guest.open_connection(end.qpn, &connection).expect("OPEN_CONNECTION");
        }
        daemon.settle();
        pairs.push(ends);
    }
    daemon.rest();
    let before = Region::new(ALLOCATOR);
    for [a, b] in &mut pairs {
        a.fill(0, &[9; 2000]);
        a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 2000)]).to(b.buffer, b.key));
    }
    daemon.settle();
    for [_, b] in &pairs {
        assert!(b.bytes(0, 2000) == [9; 2000], "all bytes have arrived");
    }
    let each = bytes(&before) / usize::from(BUSY);
    println!("busy: {each} bytes");
    assert!(each <= 16 << 10, "busy: {each} bytes");
}

/// This is one test, because all threads share the allocator.
#[test]
fn idle_connections_take_little_memory_and_no_time() {
    buffers_are_given_back(Daemon::by_wire(), write_both_ways);
    buffers_are_given_back(Daemon::of_bytes(), send_both_ways);
    idle_connections_are_small(Daemon::new(World::copying()), "paired", false);
    idle_connections_are_small(Daemon::by_wire(), "by TCP", true);
    idle_connections_are_small(Daemon::of_bytes(), "of bytes", true);
    busy_connections_share_the_memory_for_a_frame();
    idle_qps_are_small();
}
