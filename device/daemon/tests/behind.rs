//! Memory without a mapping, which the daemon reads and writes by messages to the VMM.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::switch::Folder;
use common::{pattern, start_with, still_works};
use parking_lot::Mutex;
use vrnic_abi::admin::Opcode as Admin;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Attr, AttrMask, State, Type};
use vrnic_abi::sq::{DatagramSeg, Opcode, Sge};
use vrnic_testdriver::daemon::Daemon;
use vrnic_testdriver::qp::{ALL, Setup, attributes};
use vrnic_testdriver::relay::{Relay, Request};
use vrnic_testdriver::stream;
use vrnic_testdriver::vfio::{Endpoint, Guest};
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::{Wr, sge};
use zerocopy::IntoBytes;

/// The address of another device's memory, of which the VMM has given no mapping.
const FAR: u64 = 0xdead_0000_0000;
/// Its length.
const LEN: usize = 1 << 20;
/// Longest time in which the daemon notices that the VMM does not answer.
const SILENCE: Duration = Duration::from_secs(4);

/// The behaviour of the VMM at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Honest,
    Slow,
    Refuses,
    Short,
    Long,
    WrongId,
    WrongAddress,
    Silent,
    Twice,
}

/// The memory of another device, as the VMM reads and writes it.
struct Device {
    bytes: Mutex<Vec<u8>>,
    manner: Mutex<Manner>,
    /// The last request that was not answered.
    open: Mutex<Option<Request>>,
    reads: AtomicU64,
    writes: AtomicU64,
    /// The largest number of bytes of a request.
    largest: AtomicU64,
}

impl Device {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(vec![0; LEN]),
            manner: Mutex::new(Manner::Honest),
            open: Mutex::default(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            largest: AtomicU64::new(0),
        })
    }

    fn fill(&self, at: usize, bytes: &[u8]) {
        self.bytes.lock()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        self.bytes.lock()[at..at + len].to_vec()
    }

    fn be(&self, manner: Manner) {
        *self.manner.lock() = manner;
    }

    /// Executes a request. Returns the reply.
    fn execute(&self, request: &Request) -> Vec<u8> {
        let (at, count) = (request.addr.wrapping_sub(FAR) as usize, request.count as usize);
        let mut bytes = self.bytes.lock();
        let Some(bytes) = at.checked_add(count).and_then(|end| bytes.get_mut(at..end)) else {
            // ENODEV, as QEMU answers for addresses without a device.
            return request.refusal(19);
        };
        if request.is_write() {
            bytes.copy_from_slice(&request.data);
            self.writes.fetch_add(1, Ordering::SeqCst);
            return request.bare_reply();
        }
        self.reads.fetch_add(1, Ordering::SeqCst);
        request.reply(bytes)
    }

    fn answer(&self, request: &Request) -> Vec<u8> {
        self.largest.fetch_max(request.count, Ordering::SeqCst);
        let lie = |len: usize| Request { ..request.clone() }.reply(&vec![0xee; len]);
        let count = request.count as usize;
        match *self.manner.lock() {
            Manner::Honest => self.execute(request),
            Manner::Slow => {
                std::thread::sleep(Duration::from_millis(5));
                self.execute(request)
            }
            Manner::Refuses => request.refusal(14),
            Manner::Short => lie(count - 1),
            Manner::Long => lie(count + 1),
            Manner::WrongId => Request { id: request.id ^ 0x4000, ..request.clone() }
                .reply(&vec![0xee; if request.is_write() { 0 } else { count }]),
            Manner::WrongAddress => Request { addr: request.addr + 8, ..request.clone() }
                .reply(&vec![0xee; if request.is_write() { 0 } else { count }]),
            Manner::Silent => {
                *self.open.lock() = Some(request.clone());
                Vec::new()
            }
            Manner::Twice => {
                let reply = self.execute(request);
                [reply.clone(), reply].concat()
            }
        }
    }
}

/// Two functions, of which the first one has a device with memory beside it.
struct Rig {
    daemon: Daemon,
    device: Arc<Device>,
    relay: Relay,
    guests: [Guest; 2],
    personality: &'static str,
}

impl Rig {
    fn new(args: &[&str]) -> Self {
        Self::of("roce", args)
    }

    fn of(personality: &'static str, args: &[&str]) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_vrnicd"));
        let args = [&["--dma-messages"], args].concat();
        let daemon = Daemon::start_of(program, 0..2, personality, &args).expect("vrnicd starts");
        let device = Device::new();
        let answering = Arc::clone(&device);
        let answer = Arc::new(move |request: &Request| answering.answer(request));
        let relay = Relay::start(&daemon.socket(0), answer).expect("a relay");
        let guests = [daemon.ready_guest_behind(0, &relay), daemon.ready_guest(1)];
        Self { daemon, device, relay, guests, personality }
    }

    /// Returns a connected pair, and a key of the first one for the device's memory.
    fn ends(&self) -> (Endpoint, Endpoint, u32) {
        self.ends_of(Setup::default())
    }

    fn ends_of(&self, setup: Setup) -> (Endpoint, Endpoint, u32) {
        let [a, b] = self.guests.each_ref().map(|guest| Endpoint::new(guest, setup));
        if self.personality == "iwarp" {
            stream::connect_pair(&a, &b);
        } else {
            // A message waits for such memory as it does for a receive, here without a limit.
            a.connect(self.guests[1].mac(), b.qpn, |attr| attr.rnr_retry = 7);
            b.connect(self.guests[0].mac(), a.qpn, |attr| attr.rnr_retry = 7);
        }
        let key = a.guest.reg_flat(a.pdn, ALL, FAR, LEN as u64).expect("a region");
        (a, b, key)
    }
}

fn far(at: usize, len: usize, key: u32) -> Sge {
    sge(FAR + at as u64, len as u32, key)
}

/// Returns a counter of the first function, as `vrnic` shows it.
fn counter(folder: &Folder, name: &str) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
    command.arg("--monitor").arg(folder.path("monitor"));
    let output = command.args(["show", "counters", "--json"]).output().expect("vrnic runs");
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    shown[0]["counters"][name].as_u64().expect("a counter")
}

#[test]
fn messages_are_counted_and_shown() {
    let folder = Folder::new();
    let mut rig = Rig::new(&["--monitor", &folder.settings("@monitor")]);
    let (mut a, b, key) = rig.ends();
    // One packet each.
    let write = Wr::new(Opcode::Write, &[far(0, 900, key)]).to(b.buffer, b.key);
    a.run_expecting(&write, Status::Success);
    let read = Wr::new(Opcode::Read, &[far(0, 70, key)]).to(b.buffer, b.key);
    a.run_expecting(&read, Status::Success);
    rig.device.be(Manner::Refuses);
    a.run_expecting(&write, Status::LocProtErr);
    let counts = [
        ("message_reads", 1),
        ("message_read_bytes", 900),
        ("message_writes", 1),
        ("message_written_bytes", 70),
        ("message_refused", 1),
        ("message_unanswered", 0),
    ];
    for (name, value) in counts {
        assert_eq!(counter(&folder, name), value, "{name}");
    }
    rig.daemon.check();
}

/// The ways in which messages of functions travel.
const WAYS: [&[&str]; 2] = [&[], &["--fabric", "wire"]];
/// Those of both personalities.
const ALL_WAYS: [(&str, &[&str]); 4] =
    [("roce", WAYS[0]), ("roce", WAYS[1]), ("iwarp", WAYS[0]), ("iwarp", WAYS[1])];

#[test]
fn it_is_source_and_sink_of_messages() {
    for way in ALL_WAYS {
        let mut rig = Rig::of(way.0, way.1);
        let (mut a, mut b, key) = rig.ends();
        for (len, at) in [(1, 0), (64, 3), (4096, 4096), (4097, 77), (30_001, 1 << 19)] {
            let data = pattern(len, len);
            rig.device.fill(at, &data);
            let peer = b.buffer + 5;
            let write = Wr::new(Opcode::Write, &[far(at, len, key)]).to(peer, b.key);
            a.run_expecting(&write, Status::Success);
            assert!(b.bytes(5, len) == data, "{way:?}: WRITE of {len} bytes out of it");
            let back = pattern(len, len + 1);
            b.fill(5, &back);
            let read = Wr::new(Opcode::Read, &[far(at, len, key)]).to(peer, b.key);
            a.run_expecting(&read, Status::Success);
            assert!(rig.device.bytes(at, len) == back, "{way:?}: READ of {len} bytes into it");
            b.fill(7, &data);
            let write = Wr::new(Opcode::Write, &[b.sge(7, len as u32)]).to(FAR + at as u64, key);
            b.run_expecting(&write, Status::Success);
            if way.0 == "iwarp" {
                // A WRITE of iWARP completes when it has been acknowledged, perhaps before its
                // bytes are in the memory. They are before the answer to a later READ.
                let read = Wr::new(Opcode::Read, &[b.sge(40_000, 1)]).to(FAR + at as u64, key);
                b.run_expecting(&read, Status::Success);
            }
            assert!(rig.device.bytes(at, len) == data, "{way:?}: the peer's WRITE into it");
            let read = Wr::new(Opcode::Read, &[b.sge(9, len as u32)]).to(FAR + at as u64, key);
            rig.device.fill(at, &back);
            b.run_expecting(&read, Status::Success);
            assert!(b.bytes(9, len) == back, "{way:?}: the peer's READ out of it");
        }
        rig.daemon.check();
    }
}

#[test]
fn a_send_from_it_arrives_in_it_and_each_message_reads_it_again() {
    for way in ALL_WAYS {
        let mut rig = Rig::of(way.0, way.1);
        let (mut a, mut b, key) = rig.ends();
        for round in 0..5 {
            let data = pattern(2000, round);
            rig.device.fill(100, &data);
            b.post_recv(round as u64, &[b.sge(0, 4000)]);
            a.run_expecting(&Wr::new(Opcode::Send, &[far(100, 2000, key)]), Status::Success);
            b.recv_cq.expect(round as u64, Status::Success);
            assert!(b.bytes(0, 2000) == data, "{way:?}: round {round}");
            // Into two segments, of which the second one is memory of the guest.
            a.post_recv(round as u64, &[far(9000, 700, key), a.sge(0, 2000)]);
            b.run_expecting(&Wr::new(Opcode::Send, &[b.sge(0, 2000)]), Status::Success);
            a.recv_cq.expect(round as u64, Status::Success);
            let placed = [rig.device.bytes(9000, 700), a.bytes(0, 1300)].concat();
            assert!(placed == data, "{way:?}: round {round} back");
        }
        rig.daemon.check();
    }
}

#[test]
fn a_long_message_moves_in_pieces() {
    let mut rig = Rig::new(&[]);
    let [mut a, b] = common::connected(&rig.guests, Setup { region: 1 << 20, ..Setup::default() });
    let key = a.guest.reg_flat(a.pdn, ALL, FAR, LEN as u64).expect("a region");
    let len = LEN - 3;
    let data = pattern(len, 4);
    rig.device.fill(2, &data);
    let write = Wr::new(Opcode::Write, &[far(2, len, key)]).to(b.buffer, b.key);
    a.run_expecting(&write, Status::Success);
    assert!(b.bytes(0, len) == data);
    assert!(rig.device.largest.load(Ordering::SeqCst) <= 128 << 10);
    rig.daemon.check();
}

#[test]
fn it_is_source_of_datagrams() {
    for way in WAYS {
        let mut rig = Rig::new(way);
        let setup = Setup { kind: Type::Ud, ..Setup::default() };
        let [mut a, mut b] = rig.guests.each_ref().map(|guest| Endpoint::new(guest, setup));
        for end in [&a, &b] {
            let attr = Attr { port: 1, qkey: 7.into(), ..Attr::default() };
            let init = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY;
            let rts = AttrMask::STATE | AttrMask::SQ_PSN;
            let steps = [(State::Init, init), (State::Rtr, AttrMask::STATE), (State::Rts, rts)];
            end.guest.take_through(end.qpn, attr, &steps);
        }
        let key = a.guest.reg_flat(a.pdn, ALL, FAR, LEN as u64).expect("a region");
        let av = attributes(rig.guests[1].mac(), 1).av;
        let to = DatagramSeg { av, dest_qpn: b.qpn.into(), qkey: 7.into() };
        for round in 0..3 {
            let data = pattern(1000, round);
            rig.device.fill(3, &data);
            b.post_recv(round as u64, &[b.sge(0, 1040)]);
            let datagram = Wr::new(Opcode::Send, &[far(3, 1000, key)]).body(to.as_bytes());
            a.run_expecting(&datagram, Status::Success);
            b.recv_cq.expect(round as u64, Status::Success);
            assert!(b.bytes(40, 1000) == data, "{way:?}: round {round}");
        }
        rig.daemon.check();
    }
}

/// Packets of an unreliable connection are sent when their bytes are there. None is lost.
#[test]
fn it_is_source_of_unreliable_messages() {
    for way in WAYS {
        let mut rig = Rig::new(way);
        let setup = Setup { kind: Type::Uc, region: 1 << 20, ..Setup::default() };
        let (mut a, mut b, key) = rig.ends_of(setup);
        for (round, len) in [1, 4096, 30_001, 700_000].into_iter().enumerate() {
            let data = pattern(len, round);
            rig.device.fill(7, &data);
            b.post_recv(round as u64, &[b.sge(0, 1 << 20)]);
            a.run_expecting(&Wr::new(Opcode::Send, &[far(7, len, key)]), Status::Success);
            b.recv_cq.expect(round as u64, Status::Success);
            assert!(b.bytes(0, len) == data, "{way:?}: {len} bytes");
        }
        rig.device.be(Manner::Refuses);
        b.post_recv(4, &[b.sge(0, 1 << 20)]);
        a.run_expecting(&Wr::new(Opcode::Send, &[far(0, 9000, key)]), Status::LocProtErr);
        rig.daemon.check();
    }
}

/// Packets are much shorter than what the VMM reads and writes at once.
#[test]
fn messages_in_packets_take_few_requests() {
    for personality in ["roce", "iwarp"] {
        take_few_requests(personality);
    }
}

fn take_few_requests(personality: &'static str) {
    const LEN: usize = 64 << 10;
    let mut rig = Rig::of(personality, WAYS[1]);
    let (mut a, mut b, key) = rig.ends_of(Setup { region: 1 << 20, ..Setup::default() });
    let (own, local) = (far(0, LEN, key), b.sge(0, LEN as u32));
    let out_of = Wr::new(Opcode::Write, &[own]).to(b.buffer, b.key);
    let into = Wr::new(Opcode::Read, &[own]).to(b.buffer, b.key);
    let [read_by_peer, written_by_peer] =
        [Opcode::Read, Opcode::Write].map(|opcode| Wr::new(opcode, &[local]).to(FAR, key));
    // The packets of a message arrive during the first request.
    rig.device.be(Manner::Slow);
    let requests = |rig: &Rig| {
        let load = |count: &AtomicU64| count.swap(0, Ordering::SeqCst);
        load(&rig.device.reads) + load(&rig.device.writes)
    };
    for (nth, wr) in [out_of, into, read_by_peer, written_by_peer].iter().enumerate() {
        let end = if nth < 2 { &mut a } else { &mut b };
        end.run_expecting(wr, Status::Success);
        if nth == 3 {
            // Behind a WRITE of iWARP, this shows that the WRITE has ended.
            let read = Wr::new(Opcode::Read, &[b.sge(0, 1)]).to(FAR, key);
            b.run_expecting(&read, Status::Success);
        }
        let requests = requests(&rig);
        assert!((1..=8).contains(&requests), "{personality} {nth}: {requests} requests");
    }
    rig.daemon.check();
}

/// The last packet of a READ waits until its bytes are written, and so do the packets behind it.
/// The peer is not asked for them again.
#[test]
fn a_read_into_it_is_asked_for_once() {
    const LEN: usize = 8 << 10;
    let mut rig = Rig::new(WAYS[1]);
    let (mut a, b, key) = rig.ends();
    let data = pattern(3 * LEN, 5);
    b.fill(0, &data);
    rig.device.be(Manner::Slow);
    let before = b.guest.stats().duplicate_request.get();
    for nth in 0..3 {
        let own = far(nth * LEN, LEN, key);
        a.post_send(&Wr::new(Opcode::Read, &[own]).to(b.buffer + (nth * LEN) as u64, b.key));
    }
    for _ in 0..3 {
        a.send_cq.expect(1, Status::Success);
    }
    assert!(rig.device.bytes(0, data.len()) == data, "the bytes of the peer");
    assert_eq!(b.guest.stats().duplicate_request.get(), before, "READs that came again");
    rig.daemon.check();
}

/// Each work request has its own bytes, although others are outstanding at the same time.
#[test]
fn many_work_requests_are_outstanding() {
    const LEN: usize = 9000;
    const COUNT: usize = 24;
    let mut rig = Rig::new(WAYS[1]);
    let setup = Setup { region: 1 << 20, log_wqes: 6, log_cqes: 6, ..Setup::default() };
    let (mut a, mut b, key) = rig.ends_of(setup);
    for opcode in [Opcode::Write, Opcode::Read] {
        for own in [true, false] {
            let data = pattern(COUNT * LEN, COUNT + usize::from(own));
            // A WRITE goes from the memory of its requester, a READ to it.
            let from_far = own == (opcode == Opcode::Write);
            let zeros = vec![0; COUNT * LEN];
            rig.device.fill(0, if from_far { &data } else { &zeros });
            b.fill(0, if from_far { &zeros } else { &data });
            let (near, near_key) = (b.buffer, b.key);
            let end = if own { &mut a } else { &mut b };
            for nth in 0..COUNT {
                let at = (nth * LEN) as u64;
                let [near, far] = [(near + at, near_key), (FAR + at, key)];
                let [(local, lkey), (remote, rkey)] = if own { [far, near] } else { [near, far] };
                let wr = Wr::new(opcode, &[sge(local, LEN as u32, lkey)]).to(remote, rkey);
                end.post_send(&wr);
            }
            for _ in 0..COUNT {
                end.send_cq.expect(1, Status::Success);
            }
            let moved =
                if from_far { b.bytes(0, data.len()) } else { rig.device.bytes(0, data.len()) };
            assert!(moved == data, "{opcode:?}, own memory: {own}");
        }
    }
    rig.daemon.check();
}

/// An access that the VMM refuses fails its message and ends a connection of iWARP.
#[test]
fn a_refused_access_ends_a_connection_of_iwarp() {
    for nth in 0..4 {
        let mut rig = Rig::of("iwarp", WAYS[1]);
        let (mut a, mut b, key) = rig.ends();
        b.fill(0, &[7; 4096]);
        rig.device.be(Manner::Refuses);
        let (own, local) = (far(0, 4096, key), b.sge(0, 4096));
        match nth {
            0 => {
                let write = Wr::new(Opcode::Write, &[own]).to(b.buffer, b.key);
                a.run_expecting(&write, Status::LocProtErr);
            }
            1 => {
                let read = Wr::new(Opcode::Read, &[own]).to(b.buffer, b.key);
                a.run_expecting(&read, Status::LocProtErr);
            }
            _ => {
                // The READ shows the failure of a WRITE, which completes when it has been sent.
                if nth == 2 {
                    b.run(&Wr::new(Opcode::Write, &[local]).to(FAR, key));
                }
                let cqe = b.run(&Wr::new(Opcode::Read, &[local]).to(FAR, key));
                assert_ne!(cqe.status, Status::Success as u8, "{nth}");
            }
        }
        assert_eq!(b.bytes(0, 4096), [7; 4096], "{nth}: nothing arrives");
        rig.daemon.check();
    }
}

/// The VMM cannot read and write at once, so nothing of an atomic operation is executed.
#[test]
fn atomic_operations_are_refused() {
    for way in WAYS {
        let mut rig = Rig::new(way);
        let (mut a, b, key) = rig.ends();
        b.fill(0, &5u64.to_le_bytes());
        let add = Wr::new(Opcode::FetchAdd, &[far(0, 8, key)]).atomic(2, 0).to(b.buffer, b.key);
        a.run_expecting(&add, Status::LocProtErr);
        assert_eq!(b.bytes(0, 8), 5u64.to_le_bytes(), "{way:?}: its result has no place");
        let (_a, mut b, key) = rig.ends();
        let add = Wr::new(Opcode::FetchAdd, &[b.sge(0, 8)]).atomic(2, 0).to(FAR, key);
        let cqe = b.run(&add);
        assert!(
            [Status::RemOpErr as u8, Status::RemAccessErr as u8].contains(&cqe.status),
            "{way:?}: {cqe:?}"
        );
        assert_eq!(rig.device.largest.load(Ordering::SeqCst), 0, "{way:?}: no message");
        rig.daemon.check();
    }
}

/// An answer that is not right, or none, ends that work request alone.
#[test]
fn a_vmm_that_lies_fails_that_work_request_alone() {
    for way in WAYS {
        let mut rig = Rig::new(way);
        let manners = [
            Manner::Refuses,
            Manner::Short,
            Manner::Long,
            Manner::WrongId,
            Manner::WrongAddress,
            Manner::Silent,
        ];
        for manner in manners {
            // Its own memory, and the memory of its peer.
            for own in [true, false] {
                let (mut a, mut b, key) = rig.ends();
                b.fill(0, &[7; 512]);
                rig.device.be(manner);
                let begun = Instant::now();
                let status = if own {
                    let write = Wr::new(Opcode::Write, &[far(0, 512, key)]).to(b.buffer, b.key);
                    a.run(&write).status
                } else {
                    let write = Wr::new(Opcode::Write, &[b.sge(0, 512)]).to(FAR, key);
                    b.run(&write).status
                };
                let expected = if own { Status::LocProtErr } else { Status::RemOpErr };
                assert_eq!(status, expected as u8, "{way:?}: {manner:?}, own memory: {own}");
                assert!(begun.elapsed() < SILENCE, "{way:?}: {manner:?}");
                assert_eq!(b.bytes(0, 512), [7; 512], "nothing of a lie arrives");
                rig.device.be(Manner::Honest);
                if let Some(request) = rig.device.open.lock().take() {
                    rig.relay.send(&request.reply(&[0xee; 512])).expect("a late reply");
                }
                let (mut a, b, key) = rig.ends();
                rig.device.fill(0, b"next");
                let write = Wr::new(Opcode::Write, &[far(0, 4, key)]).to(b.buffer, b.key);
                a.run_expecting(&write, Status::Success);
                assert_eq!(b.bytes(0, 4), b"next");
                still_works(&mut a, &b);
            }
        }
        rig.daemon.wait_for_log("a reply of the VMM was ignored");
        rig.daemon.check();
    }
}

#[test]
fn a_second_reply_is_ignored() {
    let mut rig = Rig::new(&[]);
    let (mut a, b, key) = rig.ends();
    rig.device.be(Manner::Twice);
    for round in 0..20 {
        rig.device.fill(0, &pattern(900, round));
        let write = Wr::new(Opcode::Write, &[far(0, 900, key)]).to(b.buffer, b.key);
        a.run_expecting(&write, Status::Success);
        assert!(b.bytes(0, 900) == pattern(900, round));
    }
    rig.daemon.check();
}

/// Other work goes on while a request waits for the VMM.
#[test]
fn a_silent_vmm_delays_nothing_else() {
    let mut rig = Rig::new(&[]);
    let (mut a, b, key) = rig.ends();
    let [mut c, d] = common::connected(&rig.guests, Setup::default());
    rig.device.be(Manner::Silent);
    a.post_send(&Wr::new(Opcode::Write, &[far(0, 8, key)]).to(b.buffer, b.key));
    wait::until("a request", || rig.device.open.lock().clone());
    let begun = Instant::now();
    (0..100).for_each(|_| still_works(&mut c, &d));
    // Commands and registers of the function are executed meanwhile.
    assert!(rig.guests[0].caps().max_qp.get() > 0);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let request = rig.device.open.lock().take().expect("a request");
    rig.relay.send(&rig.device.execute(&request)).expect("a reply");
    a.send_cq.expect(1, Status::Success);
    rig.daemon.check();
}

#[test]
fn what_is_unmapped_under_a_key_is_not_sent() {
    let mut rig = Rig::new(&[]);
    let (mut a, b, key) = rig.ends();
    b.fill(0, &[7; 8]);
    rig.device.be(Manner::Silent);
    a.post_send(&Wr::new(Opcode::Write, &[far(0, 8, key)]).to(b.buffer, b.key));
    let request = wait::until("a request", || rig.device.open.lock().clone());
    rig.guests[0].with_client(|client| client.dma_unmap(FAR, LEN as u64)).expect("DMA_UNMAP");
    rig.relay.send(&rig.device.execute(&request)).expect("a reply");
    let cqe = wait::until("completion", || a.send_cq.poll());
    assert_eq!(cqe.status, Status::LocProtErr as u8);
    assert_eq!(b.bytes(0, 8), [7; 8]);
    rig.daemon.check();
}

/// When a region has been removed, nothing is written by its key any more.
#[test]
fn a_removed_region_is_no_longer_written() {
    let mut rig = Rig::new(&[]);
    let (a, mut b, key) = rig.ends();
    rig.device.be(Manner::Silent);
    b.post_send(&Wr::new(Opcode::Write, &[b.sge(0, 8)]).to(FAR, key));
    let request = wait::until("a request", || rig.device.open.lock().clone());
    let (relay, device) = (&rig.relay, &rig.device);
    std::thread::scope(|scope| {
        let answered = scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            let reply = device.execute(&request);
            let answered = Instant::now();
            relay.send(&reply).expect("a reply");
            answered
        });
        a.guest.on_object(Admin::DeregMr, key).expect("DEREG_MR");
        let removed = Instant::now();
        assert!(removed >= answered.join().expect("a thread"), "the write was still on its way");
    });
    let cqe = wait::until("completion", || b.send_cq.poll());
    assert_ne!(cqe.status, Status::Success as u8);
    rig.daemon.check();
}

/// A VMM that ends while a request waits for it.
#[test]
fn a_vmm_that_disconnects_ends_its_own_work_alone() {
    let Rig { mut daemon, device, relay, guests: [first, second], .. } = Rig::new(&[]);
    let guests = [first, second];
    let [mut a, b] = common::connected(&guests, Setup::default());
    let key = a.guest.reg_flat(a.pdn, ALL, FAR, LEN as u64).expect("a region");
    device.be(Manner::Silent);
    a.post_send(&Wr::new(Opcode::Write, &[far(0, 8, key)]).to(b.buffer, b.key));
    wait::until("a request", || device.open.lock().clone());
    let [_, second] = guests;
    drop((a, relay));
    daemon.wait_for_log("VMM disconnected");
    let again = daemon.ready_guest(0);
    let [mut a, b] = common::connected(&[again, second], Setup::default());
    still_works(&mut a, &b);
    daemon.check();
}

/// Without the setting, the VMM gets no requests.
#[test]
fn without_the_setting_there_are_no_messages() {
    let mut daemon = start_with(2, &[]);
    let device = Device::new();
    let answering = Arc::clone(&device);
    let answer = Arc::new(move |request: &Request| answering.answer(request));
    let relay = Relay::start(&daemon.socket(0), answer).expect("a relay");
    let guests = [daemon.ready_guest_behind(0, &relay), daemon.ready_guest(1)];
    let [mut a, b] = common::connected(&guests, Setup::default());
    let key = a.guest.reg_flat(a.pdn, ALL, FAR, LEN as u64).expect("a region");
    let write = Wr::new(Opcode::Write, &[far(0, 8, key)]).to(b.buffer, b.key);
    a.run_expecting(&write, Status::LocProtErr);
    assert_eq!(device.largest.load(Ordering::SeqCst), 0);
    daemon.check();
}
