//! Raw packets in the daemon: what the switch checks, and what network cards and other daemons see.
//!
//! Shows: raw

use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;

use vrnic_abi::cq::{Flags as CqeFlags, Status};
use vrnic_abi::flow::{Fields, Flags, Kind, Rule};
use vrnic_abi::qp::Type;
use vrnic_abi::sq::{Opcode, SegmentSeg};
use vrnic_packet::Writer;
use vrnic_packet::ip::{Addresses, Header, Protocol};
use vrnic_testdriver::flow::rule;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use crate::common;
use crate::common::capture::{Capture, Packet};
use crate::common::ethernet::{BROADCAST, STRANGER, frame, nothing_comes, receive, send};
use crate::common::joined::Joined;
use crate::common::switch::{Folder, wait_for_drops};
use crate::common::world::World;

const A: [u8; 6] = mac(0);
const B: [u8; 6] = mac(1);

const fn mac(number: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 1, number]
}

/// A function with a QP of raw packets, and the cable of its network card.
struct Function {
    qp: Endpoint,
    card: UnixStream,
}

/// Returns a daemon with two functions, which have these settings.
fn start(folder: &Folder, settings: [&str; 2]) -> (Daemon, [Function; 2]) {
    let texts = [0, 1].map(|number| {
        let rest = settings[number];
        format!(
            "name=f{number},mac=52:54:00:00:01:0{number},socket=@{number}.sock,net=@{number}{rest}"
        )
    });
    let mut options = vec![("--monitor", "@m")];
    options.extend(texts.iter().map(|text| ("--function", text.as_str())));
    let daemon = folder.daemon(0, &options);
    let functions = [0, 1].map(|number| {
        daemon.wait_for_log(&format!("is ready for a VMM function=\"f{number}\""));
        let card = folder.plug(&number.to_string());
        let guest = Guest::connect(&folder.path(&format!("{number}.sock")), mac(number));
        let guest = guest.expect("a VMM");
        guest.bring_up();
        Function { qp: endpoint(&guest), card }
    });
    for number in [0, 1] {
        daemon.wait_for_log(&format!("link up port=\"f{number}\""));
    }
    (daemon, functions)
}

/// Returns a QP of raw packets with some receives.
fn endpoint(guest: &Guest) -> Endpoint {
    let mut qp = Endpoint::new(guest, Setup { kind: Type::RawPacket, ..Setup::default() });
    qp.ready_for_frames();
    for at in 1..16 {
        let place = qp.sge(at * 16_384, 16_384);
        qp.post_recv(at * 16_384, &[place]);
    }
    qp
}

/// Sends a frame by the QP.
fn put(qp: &mut Endpoint, frame: &[u8]) {
    qp.fill(0, frame);
    let wr = Wr::new(Opcode::Send, &[qp.sge(0, frame.len() as u32)]);
    qp.run_expecting(&wr, Status::Success);
}

/// Waits for the next frame that the QP receives.
#[track_caller]
fn get(qp: &mut Endpoint) -> Vec<u8> {
    let cqe = qp.recv_cq.wait();
    assert_eq!(cqe.status, Status::Success as u8);
    qp.bytes(cqe.wr_id.get(), cqe.byte_len.get() as usize)
}

fn add(qp: &Endpoint, rule: &Rule) -> u32 {
    qp.add_flow(rule).expect("CREATE_FLOW")
}

/// Returns a rule for frames to this MAC.
fn to(mac: [u8; 6]) -> Rule {
    Rule {
        values: Fields { dmac: mac, ..Fields::default() },
        mask: Fields { dmac: [0xff; 6], ..Fields::default() },
        ..rule(Kind::Normal)
    }
}

#[test]
fn a_frame_that_a_rule_takes_does_not_reach_the_network_card() {
    let folder = Folder::new();
    let (mut daemon, [mut a, mut b]) = start(&folder, ["", ""]);
    let plain = frame(B, A, 100);
    put(&mut a.qp, &plain);
    assert_eq!(receive(&mut b.card), plain, "without a rule");
    send(&mut a.card, &plain);
    assert_eq!(receive(&mut b.card), plain);
    let all = add(&b.qp, &rule(Kind::AllDefault));
    for to in [B, BROADCAST] {
        let one = frame(to, A, 100);
        put(&mut a.qp, &one);
        assert_eq!(get(&mut b.qp), one, "from the other adapter");
        send(&mut a.card, &one);
        assert_eq!(get(&mut b.qp), one, "from the other network card");
    }
    b.qp.guest.destroy_flow(all).expect("DESTROY_FLOW");
    // With a rule that does not trap, both get it once.
    let passes = Flags::DONT_TRAP.bits();
    add(&b.qp, &Rule { flags: passes, ..to(B) });
    for len in [61, 9018] {
        let one = frame(B, A, len);
        put(&mut a.qp, &one);
        assert_eq!((get(&mut b.qp), receive(&mut b.card)), (one.clone(), one));
    }
    nothing_comes(&mut b.card);
    assert!(b.qp.recv_cq.poll().is_none());
    daemon.check();
}

#[test]
fn the_switch_checks_the_source_of_what_programs_compose() {
    for (source, strangers_pass) in [("own", false), ("strict", false), ("nested", true)] {
        let folder = Folder::new();
        let setting = format!(",source={source}");
        let (mut daemon, [mut a, mut b]) = start(&folder, [&setting, ""]);
        let monitor = folder.path("m");
        // The address of another function, no address, and the address of a group.
        for (count, forged) in [(1, B), (2, [0; 6]), (3, BROADCAST)] {
            put(&mut a.qp, &frame(B, forged, 64));
            wait_for_drops(&monitor, "f0", "forged", count);
        }
        let strange = frame(B, STRANGER, 65);
        put(&mut a.qp, &strange);
        if strangers_pass {
            assert_eq!(receive(&mut b.card), strange, "{source}");
            // The switch has learnt where the stranger is.
            let answer = frame(STRANGER, B, 66);
            put(&mut b.qp, &answer);
            assert_eq!(receive(&mut a.card), answer);
        } else {
            wait_for_drops(&monitor, "f0", "forged", 4);
        }
        let proper = frame(B, A, 67);
        put(&mut a.qp, &proper);
        assert_eq!(receive(&mut b.card), proper, "{source}");
        nothing_comes(&mut b.card);
        daemon.check();
    }
}

#[test]
fn a_sniffer_sees_the_frames_of_the_network_card_in_both_directions() {
    let folder = Folder::new();
    let (mut daemon, [mut a, mut b]) = start(&folder, ["", ""]);
    add(&a.qp, &rule(Kind::Sniffer));
    add(&b.qp, &rule(Kind::Sniffer));
    // To the other card, and to a group.
    for to in [B, BROADCAST] {
        let one = frame(to, A, 80);
        send(&mut a.card, &one);
        assert_eq!(receive(&mut b.card), one, "the card gets it");
        assert_eq!(get(&mut a.qp), one, "where it leaves");
        assert_eq!(get(&mut b.qp), one, "where it arrives");
    }
    // Frames to a station that the switch does not know are not for other guests.
    let one = frame(STRANGER, A, 80);
    send(&mut a.card, &one);
    assert_eq!(get(&mut a.qp), one, "where it leaves");
    nothing_comes(&mut b.card);
    // Of the other QP, too, once each.
    let one = frame(B, A, 81);
    put(&mut a.qp, &one);
    assert_eq!(receive(&mut b.card), one);
    assert_eq!((get(&mut a.qp), get(&mut b.qp)), (one.clone(), one));
    nothing_comes(&mut b.card);
    assert!(a.qp.recv_cq.poll().is_none() && b.qp.recv_cq.poll().is_none());
    daemon.check();
}

/// Returns a RoCE packet for a QP that does not exist.
fn roce(to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    let [source, destination] = [1, 2].map(|number| Ipv4Addr::new(10, 9, 0, number));
    let addresses = Addresses::V4 { source, destination };
    let network = Header { addresses, traffic_class: 0, hop_limit: 64, flow_label: 0 };
    let udp = [0xc0, 0, 0x12, 0xb7, 0, 24, 0, 0];
    // A SEND of a reliable connection, in one packet without data, to the QP 0x1234.
    let bth = [4, 0, 0xff, 0xff, 0, 0, 0x12, 0x34, 0, 0, 0, 1];
    let mut head = [0; 20];
    network.write(Protocol::UDP, 24, 1, &mut Writer::new(&mut head)).expect("room");
    [&to[..], &from, &[8, 0], &head, &udp, &bth, &[0; 4]].concat()
}

/// A rule for faults that keeps frames does not take them past the switch.
#[test]
fn the_switch_checks_frames_that_a_rule_for_faults_has_kept() {
    let world = World::one();
    let [mut a, b] = world.guests.each_ref().map(endpoint);
    let [own, to] = [a.guest.mac(), b.guest.mac()];
    let monitor = world.folder.path("monitor");
    for (rule, count) in [("delay by=20ms function=f0", 1), ("reorder behind=1 function=f0", 2)] {
        world.rule(rule);
        put(&mut a, &roce(to, STRANGER));
        put(&mut a, &roce(to, own));
        wait_for_drops(&monitor, "f0", "forged", count);
        assert_eq!(world.first("hit"), 2, "{rule}");
        wait::until("the proper frame", || {
            (world.stats()[1].rx_roce_discards.get() == count).then_some(())
        });
    }
    world.check();
}

/// A frame that a network card gets by the switch has arrived once, as one that a rule takes.
#[test]
fn a_capture_has_each_frame_once() {
    let world = World::one();
    let [mut a, mut b] = world.guests.each_ref().map(endpoint);
    let mut card = b.guest.cable.lock().take().expect("a netdev");
    let capture = Capture::start(&world, "--function f1");
    let by_switch = frame(b.guest.mac(), a.guest.mac(), 70);
    put(&mut a, &by_switch);
    assert_eq!(receive(&mut card), by_switch);
    add(&b, &rule(Kind::AllDefault));
    let direct = frame(b.guest.mac(), a.guest.mac(), 71);
    put(&mut a, &direct);
    assert_eq!(get(&mut b), direct);
    let packets = capture.end();
    for frame in [by_switch, direct] {
        let is = |packet: &&Packet| packet.bytes == frame;
        assert_eq!(packets.iter().filter(is).count(), 1, "{} bytes", frame.len());
    }
    world.check();
}

#[test]
fn frames_to_the_own_function_reach_its_card() {
    let folder = Folder::new();
    let (mut daemon, [mut a, mut b]) = start(&folder, [",source=nested", ""]);
    let own = frame(A, A, 90);
    put(&mut a.qp, &own);
    assert_eq!(receive(&mut a.card), own);
    // A station behind the card.
    send(&mut a.card, &frame(B, STRANGER, 60));
    receive(&mut b.card);
    let behind = frame(STRANGER, A, 91);
    put(&mut a.qp, &behind);
    assert_eq!(receive(&mut a.card), behind);
    nothing_comes(&mut b.card);
    daemon.check();
}

#[test]
fn a_port_of_one_vlan_adds_and_removes_its_tag() {
    let folder = Folder::new();
    let (mut daemon, [mut a, mut b]) = start(&folder, [",vlan=5", ",vlan=5+7"]);
    add(&b.qp, &rule(Kind::AllDefault));
    add(&a.qp, &rule(Kind::AllDefault));
    let plain = frame(B, A, 60);
    put(&mut a.qp, &plain);
    let tagged = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
    assert_eq!(get(&mut b.qp), tagged);
    let answer = |vlan: u8| [&A[..], &B, &[0x81, 0, 0, vlan], &[9; 60]].concat();
    put(&mut b.qp, &answer(5));
    assert_eq!(get(&mut a.qp), [&A[..], &B, &[9; 60]].concat());
    // Into another VLAN, and with a tag of the guest's own.
    put(&mut b.qp, &answer(7));
    put(&mut b.qp, &answer(6));
    wait_for_drops(&folder.path("m"), "f1", "vlan", 1);
    put(&mut a.qp, &tagged);
    assert_eq!(a.qp.guest.stats().tx_roce_discards.get(), 1);
    nothing_comes(&mut b.card);
    assert!(a.qp.recv_cq.poll().is_none() && b.qp.recv_cq.poll().is_none());
    daemon.check();
}

#[test]
fn frames_and_segments_pass_a_trunk() {
    let mut joined = Joined::by_trunk();
    let [mut a, mut b] = joined.guests.each_ref().map(endpoint);
    add(&b, &rule(Kind::AllDefault));
    let macs = [b.guest.mac(), a.guest.mac()];
    for len in [14, 60, 1514, 9216] {
        let one = frame(macs[0], macs[1], len);
        put(&mut a, &one);
        assert_eq!(get(&mut b), one, "{len} bytes");
    }
    // Headers of TCP over IPv4, whose lengths and checksums the adapter writes.
    let ip = [0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let tcp = [0, 7, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
    let head = [&macs.concat()[..], &[8, 0], &ip, &tcp].concat();
    let mss = 1400;
    let seg = SegmentSeg { mss: mss.into(), header_len: 54.into(), reserved: [0; 12] };
    let data = common::pattern(5000, 3);
    a.fill(0, &data);
    let body = [seg.as_bytes(), &head, &[0; 10]].concat();
    let wr = Wr::new(Opcode::Segment, &[a.sge(0, 5000)]).body(&body);
    a.run_expecting(&wr, Status::Success);
    let mut back = Vec::<u8>::new();
    for _ in 0..4 {
        let cqe = b.recv_cq.wait();
        assert_ne!(cqe.flags.get() & CqeFlags::IP_CSUM_OK.bits(), 0);
        let len = cqe.byte_len.get() as usize;
        back.extend(&b.bytes(cqe.wr_id.get(), len)[54..]);
    }
    assert!(back == data);
    joined.check();
}
