//! No packet allocates memory: not in either half of a connection, and not when a frame is built or
//! read, even with losses, retransmission, held packets and refusals.
//!
//! Shows: cost

use std::alloc::System;
use std::net::Ipv4Addr;
use std::ops::Range;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use vrnic_packet::Nanos;
use vrnic_packet::ip::{self, Addresses};
use vrnic_packet::{Ethernet, MacAddr};
use vrnic_roce::Psn;
use vrnic_roce::admission::Admission;
use vrnic_roce::datagram::{self, Outgoing, Sender};
use vrnic_roce::requester::{self, Recovery, Remote, Requester, Work, WorkRequest};
use vrnic_roce::responder::unreliable::UnreliableResponder;
use vrnic_roce::responder::{self, Arriving, Responder, Step, Verdict};
use vrnic_roce::time::AckTimeout;
use vrnic_roce::wire::build::FRAME_MAX;
use vrnic_roce::wire::headers::Feth;
use vrnic_roce::wire::numbers::Srqn;
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::packet::DEFAULT_PKEY;
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_roce::wire::{Body, Frame, Head, Layout, Mtu, Packet, Path, Qpn, Rkey, SendEnd};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MTU: Mtu = Mtu::M1024;
/// Number of packets of each kind of connection.
const PACKETS: u64 = 20_000;
/// Number of frames that a wire holds.
const WIRE: usize = 512;
const PEER: Qpn = Qpn::new(0x12);

/// Runs a part of the test. Returns the number of calls of the allocator.
fn calls(part: impl FnOnce()) -> usize {
    let region = Region::new(ALLOCATOR);
    part();
    let change = region.change();
    change.allocations + change.reallocations + change.deallocations
}

const fn addresses() -> Addresses {
    Addresses::V4 { source: Ipv4Addr::new(10, 9, 0, 1), destination: Ipv4Addr::new(10, 9, 0, 2) }
}

fn path() -> Path {
    let network =
        ip::Header { addresses: addresses(), traffic_class: 2, hop_limit: 64, flow_label: 0 };
    let ethernet =
        Ethernet { destination: MacAddr([2; 6]), source: MacAddr([4; 6]), vlan: Some(7) };
    Path { ethernet, network, source_port: 0xc000 }
}

/// One direction of a link that loses some frames.
struct Wire {
    frames: Vec<[u8; FRAME_MAX]>,
    lengths: Vec<usize>,
    path: Path,
    rng: fastrand::Rng,
    /// Numbers of frames that were put in and taken out since the wire was last emptied.
    put: usize,
    taken: usize,
    /// Number of all frames.
    sent: u64,
}

impl Wire {
    fn new(seed: u64, addresses: Addresses) -> Self {
        let mut path = path();
        path.network.addresses = addresses;
        let rng = fastrand::Rng::with_seed(seed);
        let (frames, lengths) = (vec![[0; FRAME_MAX]; WIRE], vec![0; WIRE]);
        Self { frames, lengths, path, rng, put: 0, taken: 0, sent: 0 }
    }

    /// Builds a frame, unless the frame is lost.
    fn put(&mut self, head: &Head, body: &Body, length: usize) {
        self.sent += 1;
        if self.rng.u8(..) < 4 {
            return;
        }
        let frame = &mut self.frames[self.put];
        let layout = Layout::write(frame, &self.path, head, body, length).expect("room");
        frame[layout.payload()].fill(7);
        self.lengths[self.put] = layout.seal(frame).expect("room");
        // Some frames are corrupted.
        frame[50] ^= u8::from(self.rng.u8(..) < 2);
        self.put += 1;
    }

    fn take(&mut self) -> Option<&[u8]> {
        if self.taken == self.put {
            (self.put, self.taken) = (0, 0);
            return None;
        }
        self.taken += 1;
        self.frames[self.taken - 1].get(..self.lengths[self.taken - 1])
    }
}

/// Reads the packet of a frame, unless the frame is corrupt.
fn packet(frame: &[u8], admission: Admission) -> Option<Packet<'_>> {
    let frame = Frame::parse(frame).ok()??;
    let packet = frame.packet().ok()?;
    admission.check(&frame.network, &packet.head).ok()?;
    Some(packet)
}

fn verdict(work: Arriving, rng: &mut fastrand::Rng) -> Verdict {
    match work {
        Arriving::CompareSwap(_) | Arriving::FetchAdd(_) => Verdict::Old(5),
        Arriving::Send(_) if rng.u8(..) < 2 => Verdict::NotReady,
        _ => Verdict::Executed,
    }
}

fn work(id: u64, rng: &mut fastrand::Rng, kinds: Range<u8>) -> WorkRequest {
    let remote = Remote { addr: 0x1000, key: Rkey(9) };
    let (work, length) = match rng.u8(kinds) {
        0 => (Work::Send(SendEnd::Imm([1; 4])), rng.u32(..5000)),
        1 => (Work::Write(remote, None), rng.u32(..5000)),
        2 => (Work::Read(remote), rng.u32(..5000)),
        3 => (Work::FetchAdd { word: remote, add: 1 }, 8),
        4 => (Work::AtomicWrite(remote), 8),
        _ => (Work::Flush(Feth(Feth::GLOBAL), remote), rng.u32(..5000)),
    };
    let (signaled, srqn) = (rng.bool(), Srqn::new(0));
    WorkRequest { id, work, length, solicited: false, signaled, fence: false, srqn }
}

fn requester(transport: Transport) -> Requester {
    Requester::new(requester::Config {
        transport,
        destination: PEER,
        mtu: MTU,
        first_psn: Psn::new(0xff_ff00),
        timeout: AckTimeout::new(8),
        retry_count: 7,
        rnr_retry: 7,
        max_rd_atomic: 8,
        window: 64,
        recovery: Recovery::Leap,
        congestion_control: true,
        capacity: 32,
    })
}

/// A reliable connection, and all memory that it needs.
struct Reliable {
    requester: Requester,
    responder: Responder,
    held: Vec<([u8; FRAME_MAX], usize)>,
    there: Wire,
    back: Wire,
    rng: fastrand::Rng,
    now: Nanos,
    completed: u64,
    next_id: u64,
}

impl Reliable {
    fn new() -> Self {
        let responder = Responder::new(responder::Config {
            transport: Transport::Rc,
            destination: Qpn::new(0x11),
            mtu: MTU,
            first_psn: Psn::new(0xff_ff00),
            min_rnr_timer: RnrTimer::new(1),
            max_dest_rd_atomic: 8,
            hold: 255,
        });
        Self {
            requester: requester(Transport::Rc),
            responder,
            held: vec![([0; FRAME_MAX], 0); 256],
            there: Wire::new(1, addresses()),
            back: Wire::new(2, addresses().reversed()),
            rng: fastrand::Rng::with_seed(3),
            now: Nanos::default(),
            completed: 0,
            next_id: 0,
        }
    }

    fn run(&mut self) {
        let end = self.there.sent + PACKETS;
        while self.there.sent < end {
            while self.requester.push(work(self.next_id, &mut self.rng, 0..6)).is_ok() {
                self.next_id += 1;
            }
            while let Some(transmit) = self.requester.next(self.now) {
                self.there.put(&transmit.head, &transmit.body, transmit.range.len());
            }
            self.receive();
            for _ in 0..WIRE {
                let Some(reply) = self.responder.next_reply() else { break };
                let length = reply.read.map_or(0, |read| read.length as usize);
                self.back.put(&reply.head, &reply.body, length);
            }
            self.answers();
            self.now = self.now.plus(std::time::Duration::from_micros(20));
            if self.requester.deadline().is_some_and(|deadline| deadline <= self.now) {
                self.requester.expire(self.now);
            }
        }
    }

    fn receive(&mut self) {
        let addresses = Some(addresses().reversed());
        let admission = Admission { transport: Transport::Rc, pkey: DEFAULT_PKEY, addresses };
        while let Some(frame) = self.there.take() {
            let Some(packet) = packet(frame, admission) else { continue };
            match self.responder.receive(&packet) {
                Ok(Step::Execute(arrival)) => {
                    let failed = self.responder.end(verdict(arrival.work, &mut self.rng));
                    assert_eq!(failed, None);
                }
                Ok(Step::Keep(slot)) => {
                    let (bytes, length) = &mut self.held[slot.index()];
                    bytes[..frame.len()].copy_from_slice(frame);
                    *length = frame.len();
                }
                Ok(Step::Refused(nak)) => panic!("{nak:?}"),
                Ok(Step::Duplicate) | Err(_) => {}
            }
            while let Some(slot) = self.responder.next_held() {
                let (bytes, length) = &self.held[slot.index()];
                let packet = packet_of(&bytes[..*length], admission);
                if let Ok(Step::Execute(arrival)) = self.responder.receive(&packet) {
                    self.responder.end(verdict(arrival.work, &mut self.rng));
                }
            }
        }
    }

    fn answers(&mut self) {
        let addresses = Some(addresses());
        let admission = Admission { transport: Transport::Rc, pkey: DEFAULT_PKEY, addresses };
        while let Some(frame) = self.back.take() {
            let Some(packet) = packet(frame, admission) else { continue };
            let _effect = self.requester.receive(self.now, &packet);
        }
        while let Some(completion) = self.requester.next_completion() {
            assert_eq!(completion.outcome, requester::Outcome::Success);
            self.completed += 1;
        }
    }
}

fn packet_of(frame: &[u8], admission: Admission) -> Packet<'_> {
    packet(frame, admission).expect("it was whole when it was kept")
}

/// Sends packets over an unreliable connection.
fn unreliable(
    requester: &mut Requester,
    responder: &mut UnreliableResponder,
    wire: &mut Wire,
    rng: &mut fastrand::Rng,
) {
    let addresses = Some(addresses().reversed());
    let admission = Admission { transport: Transport::Uc, pkey: DEFAULT_PKEY, addresses };
    let end = wire.sent + PACKETS;
    while wire.sent < end {
        while requester.push(work(0, rng, 0..2)).is_ok() {}
        while let Some(transmit) = requester.next(Nanos::default()) {
            wire.put(&transmit.head, &transmit.body, transmit.range.len());
        }
        while requester.next_completion().is_some() {}
        while let Some(frame) = wire.take() {
            let Some(packet) = packet(frame, admission) else { continue };
            if let Ok(arrival) = responder.receive(&packet) {
                responder.end(verdict(arrival.work, rng));
            }
        }
    }
}

fn datagrams(sender: &mut Sender, wire: &mut Wire) -> u64 {
    let admission = Admission { transport: Transport::Ud, pkey: DEFAULT_PKEY, addresses: None };
    let to =
        Outgoing { destination: PEER, qkey: 5, imm: Some([1; 4]), solicited: true, length: 500 };
    let (end, mut accepted) = (wire.sent + PACKETS, 0);
    while wire.sent < end {
        for _ in 0..64 {
            let (head, body) = sender.next(&to, MTU).expect("short enough");
            wire.put(&head, &body, 500);
        }
        while let Some(bytes) = wire.take() {
            let Some(packet) = packet(bytes, admission) else { continue };
            let Ok(Some(frame)) = Frame::parse(bytes) else { continue };
            let header = datagram::network_header(frame.network_header);
            accepted += u64::from(datagram::accept(&packet, 5).is_ok() && header[20] == 0x45);
        }
    }
    accepted
}

/// This is one test, because all threads share the allocator.
#[test]
fn no_packet_allocates() {
    assert!(calls(|| drop(vec![0_u8; 10])) > 0, "the allocator counts");

    let mut reliable = Reliable::new();
    // The first packet may query the processor's features.
    reliable.run();
    assert_eq!(calls(|| reliable.run()), 0, "a reliable connection");
    let (sender, receiver) = (reliable.requester.counters(), reliable.responder.counters());
    assert!(sender.resent > 100 && sender.not_ready > 10 && sender.implied_naks > 10, "{sender:?}");
    assert!(receiver.held > 100 && receiver.duplicates > 100, "{receiver:?}");
    assert!(reliable.completed > PACKETS / 10);

    let mut responder = UnreliableResponder::new(MTU, Psn::new(0xff_ff00));
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut sender, mut wire) = (requester(Transport::Uc), Wire::new(4, addresses()));
    // The first work requests allocate the ledger.
    unreliable(&mut sender, &mut responder, &mut wire, &mut rng);
    let count = calls(|| unreliable(&mut sender, &mut responder, &mut wire, &mut rng));
    assert_eq!(count, 0, "an unreliable connection");
    assert!(responder.discards().total() > 100);

    let (mut sender, mut accepted) = (Sender::new(Qpn::new(3), 5, Psn::new(0)), 0);
    assert_eq!(calls(|| accepted = datagrams(&mut sender, &mut wire)), 0, "datagrams");
    assert!(accepted > PACKETS * 9 / 10);
}
