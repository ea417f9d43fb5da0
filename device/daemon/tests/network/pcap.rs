//! Captures: the tests read the files that `vrnic pcap` writes, and check every CRC.
//!
//! Shows: faults

use std::collections::BTreeSet;

use rustix::process::{Pid, Signal, kill_process};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Attr, AttrMask, State, Type};
use vrnic_abi::sq::{DatagramSeg, Opcode};
use vrnic_testdriver::qp::{Setup, attributes};
use vrnic_testdriver::vmm::vfio::Endpoint;
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use crate::common::capture::{Capture, Packet, packets, tshark};
use crate::common::ethernet::{BROADCAST, frame, send};
use crate::common::pattern;
use crate::common::world::World;

/// Executes each operation once, and one operation that the peer refuses.
fn operations([a, b]: &mut [Endpoint; 2]) {
    let data = pattern(10_000, 3);
    a.fill(0, &data);
    b.fill(0, &data);
    let place = [a.sge(0, 10_000)];
    for opcode in [Opcode::Write, Opcode::Read, Opcode::WriteImm] {
        if opcode == Opcode::WriteImm {
            b.post_recv(1, &[]);
        }
        a.run_expecting(&Wr::new(opcode, &place).to(b.buffer, b.key), Status::Success);
    }
    for opcode in [Opcode::Send, Opcode::SendImm] {
        b.post_recv(1, &[b.sge(0, 10_000)]);
        a.run_expecting(&Wr::new(opcode, &place), Status::Success);
    }
    b.fill(64, &40u64.to_le_bytes());
    for opcode in [Opcode::FetchAdd, Opcode::CmpSwp] {
        let atomic = Wr::new(opcode, &[a.sge(8, 8)]).atomic(2, 42).to(b.buffer + 64, b.key);
        a.run_expecting(&atomic, Status::Success);
    }
    let wrong = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key + 1);
    a.run_expecting(&wrong, Status::RemAccessErr);
}

/// The opcodes of the packets of [`operations`].
const OPCODES: [&str; 17] = [
    "rc-acknowledge",
    "rc-atomic-acknowledge",
    "rc-compare-swap",
    "rc-fetch-add",
    "rc-read-request",
    "rc-read-response-first",
    "rc-read-response-last",
    "rc-read-response-middle",
    "rc-send-first",
    "rc-send-last",
    "rc-send-last-imm",
    "rc-send-middle",
    "rc-write-first",
    "rc-write-last",
    "rc-write-last-imm",
    "rc-write-middle",
    "rc-write-only",
];

/// Checks that a capture contains all packets of [`operations`], at one interface.
#[track_caller]
fn shows_operations(packets: &[Packet], interface: &str) {
    let of = packets.iter().filter(|packet| packet.interface == interface);
    let roce: Vec<_> = of.filter_map(Packet::roce).collect();
    let opcodes: BTreeSet<_> = roce.iter().map(|(opcode, _)| opcode.as_str()).collect();
    assert_eq!(opcodes, BTreeSet::from(OPCODES));
    let bytes = |prefix: &str| {
        let of = roce.iter().filter(|(opcode, _)| opcode.starts_with(prefix));
        of.flat_map(|(_, payload)| payload.clone()).collect::<Vec<_>>()
    };
    assert!(bytes("rc-read-response") == pattern(10_000, 3), "the bytes of the READ");
    assert!(bytes("rc-write")[..10_000] == pattern(10_000, 3), "the bytes of the first WRITE");
}

#[test]
fn messages_that_are_copied_are_shown_as_packets() {
    let world = World::with_fabric("copy");
    let mut ends = world.connected(|_| {});
    // Captures at each of the two functions: the sender and the receiver.
    let first = Capture::start(&world, "--function f0");
    operations(&mut ends);
    let packets = first.end();
    shows_operations(&packets, "f0, copied");
    tshark_names_them(&world);
    let second = Capture::start(&world, "--function f1");
    operations(&mut world.connected(|_| {}));
    shows_operations(&second.end(), "f1, copied");
    world.check();
}

/// Checks that tshark, if it is installed, names each operation of the last capture.
fn tshark_names_them(world: &World) {
    let file = world.folder.path("out.pcapng");
    let Some(lines) = tshark(&file, &[]) else { return };
    for name in [
        "RC RDMA WRITE First",
        "RC RDMA WRITE Last Immediate",
        "RC RDMA READ Request",
        "RC RDMA READ response Middle",
        "RC SEND Last",
        "RC Acknowledge",
        "RC Compare Swap",
        "RC Fetch Add",
    ] {
        let named = lines.to_lowercase().contains(&name.to_lowercase());
        assert!(named, "{name} is missing in\n{lines}");
    }
    let malformed = tshark(&file, &["-Y", "_ws.malformed"]).expect("it runs again");
    assert_eq!(malformed, "", "malformed packets");
}

#[test]
fn a_peer_that_is_not_ready_is_shown_once() {
    let world = World::with_fabric("copy");
    let [mut a, mut b] = world.connected(|attr| attr.rnr_retry = 7);
    let capture = Capture::start(&world, "--function f0");
    a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, 8)]));
    wait::until("RNR", || (world.stats()[1].send_rnr_err.get() > 0).then_some(()));
    b.post_recv(1, &[b.sge(0, 8)]);
    a.send_cq.expect(1, Status::Success);
    let packets = capture.end();
    let opcodes: Vec<_> = packets.iter().filter_map(Packet::roce).map(|roce| roce.0).collect();
    let expected = ["rc-send-only", "rc-acknowledge", "rc-send-only", "rc-acknowledge"];
    assert_eq!(opcodes, expected, "request, NAK, request, answer");
    world.check();
}

#[test]
fn packets_are_shown_at_functions_and_at_uplinks() {
    for (world, place, interface) in
        [(World::one(), "--function f0", "f0"), (World::one(), "--function f1", "f1")]
            .into_iter()
            .chain([(World::two(), "--function f0", "f0"), (World::two(), "--uplink up", "up")])
    {
        let mut ends = world.connected(|_| {});
        let capture = Capture::start(&world, place);
        operations(&mut ends);
        let packets = capture.end();
        assert!(packets.iter().all(|packet| packet.interface == interface), "{place}");
        let roce = packets.iter().filter_map(Packet::roce).map(|roce| roce.0);
        let found: BTreeSet<_> = roce.collect();
        let missing: Vec<_> = OPCODES.iter().filter(|opcode| !found.contains(**opcode)).collect();
        assert!(missing.is_empty(), "{place}: {missing:?}");
        world.check();
    }
}

#[test]
fn datagrams_and_frames_of_network_cards_are_shown() {
    for fabric in ["copy", "wire"] {
        let world = World::with_fabric(fabric);
        let setup = Setup { kind: Type::Gsi, kernel: true, ..Setup::default() };
        let [mut a, mut b] = world.guests.each_ref().map(|guest| Endpoint::new(guest, setup));
        for end in [&a, &b] {
            let attr = Attr { port: 1, qkey: 0x8001_0000.into(), ..Attr::default() };
            let init = AttrMask::STATE.union(AttrMask::PKEY_INDEX).union(AttrMask::QKEY);
            let rts = AttrMask::STATE.union(AttrMask::SQ_PSN);
            let steps = [(State::Init, init), (State::Rtr, AttrMask::STATE), (State::Rts, rts)];
            end.guest.take_through(end.qpn, attr, &steps);
        }
        b.post_recv(1, &[b.sge(0, 400)]);
        let capture = Capture::start(&world, "--function f1");
        a.fill(0, &pattern(256, 6));
        let av = attributes(world.guests[1].mac(), 1).av;
        let to = DatagramSeg { av, dest_qpn: 1.into(), qkey: 0x8001_0000.into() };
        let datagram = Wr::new(Opcode::Send, &[a.sge(0, 256)]).body(to.as_bytes());
        a.run_expecting(&datagram, Status::Success);
        wait::until("the datagram", || b.recv_cq.poll());
        let plain = world.guests.each_ref().map(|guest| frame(BROADCAST, guest.mac(), 64));
        for (guest, frame) in world.guests.iter().zip(&plain) {
            send(guest.cable.lock().as_mut().expect("a netdev"), frame);
        }
        wait::until("both frames", || {
            let log = std::fs::read(&capture.file).expect("the file");
            let is_there = |frame: &Vec<u8>| log.windows(64).any(|bytes| bytes == frame);
            plain.iter().all(is_there).then_some(())
        });
        let packets = capture.end();
        let found: Vec<_> =
            packets.iter().filter_map(|p| Some((&p.interface, p.roce()?))).collect();
        let interface = if fabric == "copy" { "f1, copied" } else { "f1" };
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, interface);
        assert_eq!(found[0].1, ("ud-send-only".to_owned(), pattern(256, 6)));
        world.check();
    }
}

#[test]
fn a_capture_is_cut_and_ends_by_itself() {
    let world = World::with_fabric("copy");
    let [mut a, b] = world.connected(|_| {});
    let mut write = || {
        let write = Wr::new(Opcode::Write, &[a.sge(0, 3000)]).to(b.buffer, b.key);
        a.run_expecting(&write, Status::Success);
    };
    let mut capture = Capture::start(&world, "--function f0 --snaplen 100 --count 5");
    (0..4).for_each(|_| write());
    capture.wait();
    let some = packets(&std::fs::read(&capture.file).expect("the file"));
    assert_eq!(some.len(), 5);
    assert!(some.iter().all(|packet| packet.bytes.len() <= 100));
    assert!(some.iter().any(|packet| packet.length > 3000 && packet.bytes.len() == 100));

    let capture = Capture::start(&world, "--function f0 --ring 3 --size 8000");
    (0..20).for_each(|_| write());
    let pid = Pid::from_raw(capture.child.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::INT).expect("a signal");
    let mut capture = capture;
    capture.wait();
    let mut frames = 0;
    for nth in 0..3 {
        let file = std::fs::read(world.folder.path(&format!("out.{nth}.pcapng"))).expect("a file");
        assert!(file.len() <= 8000, "{}", file.len());
        frames += packets(&file).iter().filter_map(Packet::roce).count();
    }
    assert!((8..20).contains(&frames), "{frames}");
    assert!(!world.folder.path("out.3.pcapng").exists());
    world.check();
}

#[test]
fn a_client_that_does_not_read_holds_nothing_up() {
    let world = World::with_fabric("copy");
    let [mut a, b] = world.connected(|_| {});
    let capture = Capture::start(&world, "--function f0");
    let pid = Pid::from_raw(capture.child.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::STOP).expect("a signal");
    let write = Wr::new(Opcode::Write, &[a.sge(0, 1 << 20)]).to(b.buffer, b.key);
    for _ in 0..150 {
        a.run_expecting(&write, Status::Success);
    }
    // Other captures run at the same time, up to the maximum number.
    let more: Vec<_> = (0..7).map(|_| Capture::start(&world, "--function f1")).collect();
    let why = world.vrnic("pcap --function f0 -w /dev/null");
    assert!(String::from_utf8_lossy(&why.stderr).contains("8 captures"));
    drop((capture, more));
    wait::until("room", || {
        let output = world.vrnic("pcap --function f9 -w /dev/null");
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        why.contains("no function 'f9'").then_some(())
    });
    wait::until("the log", || {
        let log = world.daemons[0].log();
        let lost =
            log.lines().find(|line| line.contains("a capture has ended") && line.contains("f0"));
        lost.map(|line| assert!(!line.contains("lost=0 "), "{line}"))
    });
    world.check();
}

#[test]
fn the_daemon_ends_while_a_capture_runs() {
    let mut world = World::with_fabric("copy");
    let mut capture = Capture::start(&world, "--function f0");
    let status = world.daemons[0].stop(Signal::TERM);
    assert!(status.success(), "{status}");
    capture.wait();
    assert!(packets(&std::fs::read(&capture.file).expect("the file")).is_empty());
}
