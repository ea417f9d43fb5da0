//! Such memory as source and sink of messages.
//!
//! Shows: direct: memory of other devices, by messages to the VMM, as source and sink of messages

use std::sync::atomic::Ordering;

use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Attr, AttrMask, State, Type};
use vrnic_abi::sq::{DatagramSeg, Opcode};
use vrnic_testdriver::qp::{ALL, Setup, attributes};
use vrnic_testdriver::vmm::vfio::Endpoint;
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use super::device::{ALL_WAYS, FAR, LEN, Manner, Rig, WAYS, counter, far};
use crate::common::switch::Folder;
use crate::common::{connected, pattern};

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
    let [mut a, b] = connected(&rig.guests, Setup { region: 1 << 20, ..Setup::default() });
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
