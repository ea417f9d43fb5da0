//! Captures of iWARP connections: the tests read the files that `vrnic pcap` writes, reassemble the
//! streams, and check the CRC of every FPDU.
//!
//! Shows: faults

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_iwarp::crc;
use vrnic_iwarp::wire::ddp::Header;
use vrnic_iwarp::wire::fpdu;
use vrnic_iwarp::wire::rdmap::{self, Opcode as Message};
use vrnic_tcp::wire::Frame;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::vfio::Endpoint;
use vrnic_testdriver::wr::Wr;
use vrnic_testdriver::{stream, wait};

use crate::common::capture::{Capture, Packet, tshark};
use crate::common::world::World;
use crate::common::{Span, write_and_read};

/// The octets of a start frame without private data of the program.
const START: usize = 24;

/// Connects a pair and executes each operation. The last operation is refused by the peer.
fn operations(world: &World) {
    let [mut a, mut b] = world.guests.each_ref().map(|g| Endpoint::new(g, Setup::default()));
    stream::connect_pair(&a, &b);
    write_and_read(&mut a, &b, Span { len: 60_000, from: 3, to: 5 });
    write_and_read(&mut b, &a, Span { len: 100, from: 0, to: 1 });
    b.post_recv(1, &[b.sge(0, 20_000)]);
    a.run_expecting(&Wr::new(Opcode::Send, &[a.sge(0, 20_000)]), Status::Success);
    wait::until("the receive", || b.recv_cq.poll());
    let add = Wr::new(Opcode::FetchAdd, &[a.sge(8, 8)]).atomic(2, 0).to(b.buffer + 64, b.key);
    a.run_expecting(&add, Status::Success);
    // A WRITE may complete before its refusal arrives.
    let wrong = Wr::new(Opcode::Read, &[a.sge(0, 8)]).to(b.buffer, b.key ^ 0x55);
    a.run_expecting(&wrong, Status::RemAccessErr);
}

/// Returns the messages of each direction, with the number of FPDUs of each message. Checks that
/// the first frame is a start frame, that no octet is missing, and each CRC.
fn messages(packets: &[Packet]) -> BTreeMap<SocketAddr, BTreeMap<u8, usize>> {
    let mut streams: BTreeMap<SocketAddr, BTreeMap<u32, Vec<u8>>> = BTreeMap::new();
    let mut first: BTreeMap<SocketAddr, u32> = BTreeMap::new();
    for packet in packets {
        let Some(Frame { path, segment }) = Frame::parse(&packet.bytes).expect("right checksums")
        else {
            continue;
        };
        let seq = segment.header.seq.0;
        let start = *first.entry(path.source).or_insert(seq);
        let of = streams.entry(path.source).or_default();
        if !segment.payload.is_empty() {
            of.entry(seq.wrapping_sub(start)).or_insert_with(|| segment.payload.to_vec());
        }
    }
    streams.into_iter().map(|(from, segments)| (from, fpdus(&octets(segments)))).collect()
}

/// Reassembles a stream.
fn octets(segments: BTreeMap<u32, Vec<u8>>) -> Vec<u8> {
    let mut octets = Vec::new();
    for (at, segment) in segments {
        let known = octets.len().checked_sub(at as usize).expect("no hole");
        octets.extend(segment.get(known..).unwrap_or_default());
    }
    octets
}

fn fpdus(stream: &[u8]) -> BTreeMap<u8, usize> {
    let (start, mut rest) = stream.split_at(START);
    assert!(start.starts_with(b"MPA ID Re"), "a start frame first");
    let mut messages = BTreeMap::new();
    while let Some((length, _)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length));
        let (whole, behind) = rest.split_at(fpdu::size(length));
        assert!(crc::is_right(whole), "an FPDU of {length} octets");
        let ulpdu = &whole[fpdu::LENGTH..][..length];
        rdmap::Segment::parse(ulpdu, true).expect("a segment");
        let (header, _) = Header::parse(ulpdu).expect("a header");
        let opcode = Message::of(header.control).expect("an opcode");
        *messages.entry(opcode as u8).or_default() += 1;
        rest = behind;
    }
    messages
}

/// Checks that tshark, if it is installed, finds each FPDU with the right CRC.
fn tshark_finds_them(world: &World, fpdus: usize) {
    let file = world.folder.path("out.pcapng");
    // Otherwise tshark takes data at the responder's port for GSM.
    let run = |args: &[&str]| tshark(&file, &[&["--disable-protocol", "gsm_ipa"], args].concat());
    let Some(details) = run(&["-V", "-Y", "iwarp_mpa.fpdu"]) else { return };
    let checked = details.matches("(Good CRC32)").count();
    assert!(checked >= fpdus && !details.contains("Bad CRC"), "{checked} of {fpdus}\n{details}");
    assert_eq!(run(&["-Y", "_ws.malformed"]).expect("it runs again"), "");
}

#[test]
fn segments_are_shown_at_functions_and_at_uplinks() {
    let worlds = || [(World::one(), "--function f0"), (World::one(), "--function f1")];
    let apart = || [(World::two(), "--function f0"), (World::two(), "--uplink up")];
    for (world, place) in worlds().into_iter().chain(apart()) {
        let capture = Capture::start(&world, place);
        operations(&world);
        let packets = capture.end();
        let messages = messages(&packets);
        assert_eq!(messages.len(), 2, "{place}: both directions");
        let [from_a, from_b] = [4000, 5000].map(|port| {
            let of = messages.iter().find(|(source, _)| source.port() == port);
            of.expect("a stream").1.keys().copied().collect::<BTreeSet<_>>()
        });
        let set = |opcodes: &[Message]| opcodes.iter().map(|of| *of as u8).collect();
        let a = [Message::Write, Message::ReadRequest, Message::ReadResponse, Message::Send];
        let a: BTreeSet<u8> = set(&[&a[..], &[Message::AtomicRequest]].concat());
        let b = [Message::Write, Message::ReadRequest, Message::ReadResponse, Message::Terminate];
        let b: BTreeSet<u8> = set(&[&b[..], &[Message::AtomicResponse]].concat());
        assert_eq!((from_a, from_b), (a, b), "{place}");
        tshark_finds_them(&world, messages.values().flat_map(BTreeMap::values).sum());
        world.check();
    }
}

#[test]
fn lost_segments_are_shown_before_they_are_lost() {
    let world = World::one();
    world.rule("drop prob=0.02 seed=3");
    let capture = Capture::start(&world, "--function f0");
    operations(&world);
    let packets = capture.end();
    assert!(world.first("hit") > 0);
    let written = messages(&packets).into_values().filter_map(|of| of.get(&0).copied()).max();
    // 60,000 octets in segments of 1,460.
    assert!(written >= Some(42), "{written:?}");
    world.check();
}
