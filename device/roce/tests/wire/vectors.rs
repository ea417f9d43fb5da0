//! Frames whose CRC is known. The first three are public (the tests of Scapy's layer for RoCE). The
//! others were computed by a program that gives the right CRCs for these three.
//!
//! Shows: roce

use vrnic_packet::ip::{Addresses, Ecn};
use vrnic_roce::wire::headers::{Deth, Reth};
use vrnic_roce::wire::syndrome::Aeth;
use vrnic_roce::wire::{Body, Datagram, Frame, Packet, Part, Qpn, Request, Response, SendEnd};
use vrnic_roce::{Discard, Msn, Psn, icrc};

use crate::bytes;

const CNP: &str = "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118000000000000000000000000000000000000000082fd002a";
const UC_V4: &str = "248a07a8fa22248a07a8fa22080045010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff000000d300cf17104630818be28935d90e9a95505401be885e50000078f353f3";
const UC_V6: &str = "248a07a8fa22248a07a8fa2286dd6e21face002c11ff2022000000000000000000000000102320230000000000000000000000001024c00012b7002ce7c52460ffff000000d300cf17104630818be28935d90e9a95505401be885e5000003e5b743b";
const ACK: &str = "52540000000252540000000108004500003000014000401126a80a0900010a090002c12312b7001c00001100ffff00000011001234561f0000072c63be6f";
const READ: &str = "52540000000252540000000108004500003c000040004011269d0a0900010a090002c12312b7002800000c00ffff0000001180ffffff00007f00000010000000123400002710a7210137";
const EMPTY_WRITE: &str = "52540000000252540000000108004500003c000040004011269d0a0900010a090002c12312b7002800000a00ffff00000011800000000000000000000000000000000000000022b9a35c";
const HELLO: &str = "525400000002525400000001080045020034beef4000401167b30a0900010a090002c12312b70020000004f0ffff000000118000000568656c6c6f0000000fbccdea";
const GSI: &str = "52540000000252540000000108004500004400004000401126950a0900010a090002c12312b7003000006480ffff00000001000000098001000000000001000102030405060708090a0b0c0d0e0f4c4018fd";

fn parsed(frame: &[u8]) -> (Frame<'_>, Packet<'_>) {
    let frame = Frame::parse(frame).expect("headers").expect("RoCE");
    let packet = frame.packet().expect("a packet");
    (frame, packet)
}

#[test]
fn the_crc_of_each_is_known() {
    let vectors = [
        (CNP, 14, 0x82fd_002a),
        (UC_V4, 14, 0x78f3_53f3),
        (UC_V6, 14, 0x3e5b_743b),
        (ACK, 14, 0x2c63_be6f),
        (READ, 14, 0xa721_0137),
        (EMPTY_WRITE, 14, 0x22b9_a35c),
        (HELLO, 14, 0x0fbc_cdea),
        (GSI, 14, 0x4c40_18fd_u32),
    ];
    for (hex, at, crc) in vectors {
        let frame = bytes(hex);
        let covered = &frame[at..frame.len() - 4];
        assert_eq!(icrc::compute(covered), Some(crc.swap_bytes()), "{hex}");
        assert!(icrc::is_right(&frame[at..]), "{hex}");
    }
}

#[test]
fn a_congestion_notification() {
    let frame = bytes(CNP);
    let (frame, packet) = parsed(&frame);
    assert_eq!(packet.body, Body::Congestion);
    assert!(packet.head.backward_congestion && !packet.head.forward_congestion);
    assert_eq!((packet.head.destination, packet.head.psn), (Qpn::new(0x118), Psn::new(0)));
    assert_eq!(frame.network.traffic_class, 0xc2);
}

#[test]
fn unreliable_packets_over_both_families() {
    let (v4, v6) = (bytes(UC_V4), bytes(UC_V6));
    let ((v4, one), (v6, other)) = (parsed(&v4), parsed(&v6));
    assert!(matches!(v4.network.addresses, Addresses::V4 { .. }));
    assert!(matches!(v6.network.addresses, Addresses::V6 { .. }));
    assert_eq!((v6.network.traffic_class, v6.network.flow_label), (0xe2, 0x1_face));
    assert_eq!((v4.network.ecn(), v6.network.ecn()), (Ecn::Capable, Ecn::Capable));
    for packet in [one, other] {
        let send = Request::Send(Part::Only((), SendEnd::Plain));
        assert_eq!(packet.body, Body::Request(send));
        assert_eq!((packet.payload.len(), packet.head.psn), (18, Psn::new(0xcf_1710)));
    }
}

#[test]
fn answers_and_requests() {
    let frames = [ACK, READ, EMPTY_WRITE].map(bytes);
    let [ack, read, write] = [&frames[0], &frames[1], &frames[2]].map(|frame| parsed(frame).1);
    let aeth = Aeth::ack(Msn::new(7));
    assert_eq!(ack.body, Body::Response(Response::Acknowledge(aeth)));
    assert_eq!(ack.head.psn, Psn::new(0x12_3456));
    let Some(Request::Read(reth)) = read.request() else { panic!("{read:?}") };
    assert_eq!((reth.addr, reth.key.0, reth.length), (0x7f00_0000_1000, 0x1234, 10_000));
    assert!(read.head.ack_request);
    let part = Part::Only(Reth::default(), None);
    assert_eq!(write.body, Body::Request(Request::Write(part)));
}

#[test]
fn payloads_and_flags() {
    let frames = [HELLO, GSI].map(bytes);
    let [(_, hello), (_, gsi)] = [&frames[0], &frames[1]].map(|frame| parsed(frame));
    assert_eq!(hello.payload, b"hello");
    assert!(hello.head.solicited && hello.head.migrated && hello.head.ack_request);
    let deth = Deth { qkey: 0x8001_0000, source: Qpn::new(1) };
    assert_eq!(gsi.body, Body::Datagram(Datagram { deth, imm: None }));
    assert_eq!((gsi.head.destination, gsi.payload.len()), (Qpn::GSI, 16));
}

#[test]
fn each_fault_has_its_reason() {
    let faulty = |hex: &str, at: usize, value: u8| {
        let mut frame = bytes(hex);
        frame[at] = value;
        match Frame::parse(&frame) {
            Ok(Some(frame)) => frame.packet().err(),
            Ok(None) => None,
            Err(discard) => Some(discard),
        }
    };
    assert_eq!(faulty(ACK, 24, 1), Some(Discard::IpHeader), "checksum");
    assert_eq!(faulty(ACK, 39, 0x1b), Some(Discard::UdpLength));
    assert_eq!(faulty(UC_V4, 40, 1), Some(Discard::UdpChecksum));
    assert_eq!(faulty(ACK, 61, 0), Some(Discard::Icrc));
    assert_eq!(faulty(HELLO, 55, b'a'), Some(Discard::Icrc));
    // Another port, another protocol, another type of frame: these are not RoCE.
    assert_eq!(faulty(ACK, 37, 0xb8), None);
    assert_eq!(faulty(ACK, 23, 6), None);
    assert_eq!(faulty(ACK, 13, 6), None);
}

/// Changes bytes after the UDP header, and corrects the CRC.
fn forged(hex: &str, change: impl FnOnce(&mut [u8])) -> Option<Discard> {
    let mut frame = bytes(hex);
    let end = frame.len() - 4;
    change(&mut frame[42..end]);
    let crc = icrc::compute(&frame[14..end]).expect("a packet").to_le_bytes();
    frame[end..].copy_from_slice(&crc);
    Frame::parse(&frame).expect("headers").expect("RoCE").packet().err()
}

#[test]
fn faults_behind_a_right_crc() {
    assert_eq!(forged(ACK, |bth| bth[1] |= 1), Some(Discard::Version));
    assert_eq!(forged(ACK, |bth| bth[0] = 0x15), Some(Discard::Opcode));
    assert_eq!(forged(ACK, |bth| bth[12] = 0x40), Some(Discard::Syndrome));
    assert_eq!(forged(ACK, |bth| bth[12] = 0x64), Some(Discard::Syndrome));
    assert_eq!(forged(ACK, |bth| bth[0] = 0x0c), Some(Discard::Truncated));
    assert_eq!(forged(READ, |bth| bth[0] = 0x11), Some(Discard::PayloadLength));
    assert_eq!(forged(ACK, |bth| bth[1] = 0x30), Some(Discard::Truncated));
}

#[test]
fn payload_and_padding_fill_whole_words() {
    let frame = bytes(HELLO);
    let packet = &frame[42..frame.len() - 4];
    assert_eq!(Packet::parse(packet).map(|packet| packet.payload.len()), Ok(5));
    assert_eq!(Packet::parse(&packet[..packet.len() - 1]), Err(Discard::PayloadLength));
    assert_eq!(Packet::parse(&packet[..12]), Err(Discard::Truncated), "padding and no payload");
}

#[test]
fn fragments_and_options_are_dropped() {
    let with = |change: fn(&mut [u8])| {
        let mut frame = bytes(HELLO);
        change(&mut frame[14..34]);
        frame[24..26].fill(0);
        let sum: u32 =
            frame[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        frame[24..26].copy_from_slice(&(!folded as u16).to_be_bytes());
        Frame::parse(&frame).map(|frame| frame.is_some())
    };
    assert_eq!(with(|_| {}), Ok(true));
    assert_eq!(with(|ip| ip[6] = 0x20), Err(Discard::Fragment), "more fragments");
    assert_eq!(with(|ip| ip[7] = 1), Ok(false), "a later fragment has no UDP header");
    assert_eq!(with(|ip| ip[3] = 200), Err(Discard::Truncated));
    assert_eq!(with(|ip| ip[3] = 10), Ok(false), "no UDP header within");
}
