//! Random frames: frames that are built are parsed again, frames that are changed are dropped.
//!
//! Shows: roce

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use vrnic_packet::ip::{self, Addresses};
use vrnic_packet::{Ethernet, MacAddr};
use vrnic_roce::wire::build::FRAME_MAX;
use vrnic_roce::wire::headers::{AtomicEth, Deth, Feth, Imm, Reth};
use vrnic_roce::wire::numbers::Srqn;
use vrnic_roce::wire::opcode::{Opcode, Transport};
use vrnic_roce::wire::syndrome::{Aeth, Syndrome};
use vrnic_roce::wire::{
    Body, Datagram, Frame, Head, Layout, Packet, Part, Path, Qpn, ReadPart, Request, Response,
    Rkey, SendEnd,
};
use vrnic_roce::{Discard, Msn, Psn};

fn reth() -> impl Strategy<Value = Reth> {
    (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(addr, key, length)| Reth {
        addr,
        key: Rkey(key),
        length,
    })
}

fn atomic() -> impl Strategy<Value = AtomicEth> {
    any::<[u64; 4]>().prop_map(|[addr, key, swap_or_add, compare]| AtomicEth {
        addr,
        key: Rkey(key as u32),
        swap_or_add,
        compare,
    })
}

fn aeth() -> impl Strategy<Value = Aeth> {
    (any::<u8>(), any::<u32>()).prop_filter_map("reserved", |(byte, msn)| {
        let syndrome = Syndrome::from_byte(byte).ok()?;
        Some(Aeth { syndrome, msn: Msn::new(msn) })
    })
}

fn send() -> impl Strategy<Value = Request> {
    let end = prop_oneof![
        Just(SendEnd::Plain),
        any::<Imm>().prop_map(SendEnd::Imm),
        any::<u32>().prop_map(|key| SendEnd::Invalidate(Rkey(key))),
    ];
    let part = (any::<bool>(), proptest::option::of(end));
    part.prop_map(|(first, end)| Request::Send(Part::new(first.then_some(()), end)))
}

fn write() -> impl Strategy<Value = Request> {
    let end = proptest::option::of(any::<Imm>());
    let part = (proptest::option::of(reth()), proptest::option::of(end));
    part.prop_map(|(start, end)| Request::Write(Part::new(start, end)))
}

fn response() -> impl Strategy<Value = Response> {
    prop_oneof![
        aeth().prop_map(|aeth| Response::Read(ReadPart::First(aeth))),
        Just(Response::Read(ReadPart::Middle)),
        aeth().prop_map(|aeth| Response::Read(ReadPart::Last(aeth))),
        aeth().prop_map(|aeth| Response::Read(ReadPart::Only(aeth))),
        aeth().prop_map(Response::Acknowledge),
        (aeth(), any::<u64>()).prop_map(|(aeth, old)| Response::Atomic(aeth, old)),
    ]
}

fn body() -> impl Strategy<Value = Body> {
    let datagram = (any::<u32>(), any::<u32>(), proptest::option::of(any::<Imm>()));
    prop_oneof![
        4 => send().prop_map(Body::Request),
        4 => write().prop_map(Body::Request),
        1 => reth().prop_map(|reth| Body::Request(Request::Read(reth))),
        1 => atomic().prop_map(|atomic| Body::Request(Request::CompareSwap(atomic))),
        1 => atomic().prop_map(|atomic| Body::Request(Request::FetchAdd(atomic))),
        1 => reth().prop_map(|reth| Body::Request(Request::Flush(Feth(reth.length), reth))),
        1 => reth().prop_map(|reth| Body::Request(Request::AtomicWrite(reth))),
        4 => response().prop_map(Body::Response),
        1 => datagram.prop_map(|(qkey, source, imm)| {
            Body::Datagram(Datagram { deth: Deth { qkey, source: Qpn::new(source) }, imm })
        }),
        1 => Just(Body::Congestion),
    ]
}

/// Returns a header that fits the body.
fn head(body: &Body, bits: u8, numbers: [u32; 4]) -> Head {
    let [destination, psn, srqn, pkey] = numbers;
    let set = |bit: u8| bits >> bit & 1 != 0;
    let transport = match body {
        Body::Congestion => Transport::Cnp,
        Body::Datagram(_) => Transport::Ud,
        body if set(0) && Opcode::new(Transport::Uc, body.operation()).is_some() => Transport::Uc,
        _ if set(1) => Transport::Xrc,
        _ => Transport::Rc,
    };
    let request = transport == Transport::Xrc && matches!(body, Body::Request(_));
    Head {
        transport,
        solicited: set(2),
        migrated: set(3),
        pkey: pkey as u16,
        forward_congestion: set(4),
        backward_congestion: set(5),
        destination: Qpn::new(destination),
        ack_request: set(6),
        psn: Psn::new(psn),
        srqn: Srqn::new(if request { srqn } else { 0 }),
    }
}

fn path() -> impl Strategy<Value = Path> {
    let addresses = prop_oneof![
        any::<[[u8; 4]; 2]>().prop_map(|[source, destination]| Addresses::V4 {
            source: Ipv4Addr::from(source),
            destination: Ipv4Addr::from(destination),
        }),
        any::<[[u8; 16]; 2]>().prop_map(|[source, destination]| Addresses::V6 {
            source: Ipv6Addr::from(source),
            destination: Ipv6Addr::from(destination),
        }),
    ];
    let rest = any::<([u8; 6], [u8; 6], Option<u16>, u8, u8, u32, u16)>();
    (addresses, rest).prop_map(
        |(addresses, (destination, source, vlan, traffic_class, hop_limit, flow, source_port))| {
            let v6 = matches!(addresses, Addresses::V6 { .. });
            let flow_label = if v6 { flow & 0x000f_ffff } else { 0 };
            Path {
                ethernet: Ethernet {
                    destination: MacAddr(destination),
                    source: MacAddr(source),
                    vlan,
                },
                network: ip::Header { addresses, traffic_class, hop_limit, flow_label },
                source_port,
            }
        },
    )
}

/// Builds a frame. Its payload is as long as the body allows.
fn build(path: &Path, head: &Head, body: &Body, payload: &[u8]) -> (Vec<u8>, usize) {
    let length = [payload.len(), 8, 0].into_iter().find(|length| body.allows(*length));
    let length = length.expect("a length");
    let mut buffer = vec![0xee; FRAME_MAX];
    let layout = Layout::write(&mut buffer, path, head, body, length).expect("room");
    let payload: Vec<u8> = payload.iter().copied().chain(0..8).take(length).collect();
    buffer[layout.payload()].copy_from_slice(&payload);
    let end = layout.seal(&mut buffer).expect("room");
    buffer.truncate(end);
    (buffer, length)
}

proptest! {
    #[test]
    fn what_is_built_is_parsed_again(
        path in path(),
        body in body(),
        bits: u8,
        numbers: [u32; 4],
        payload in proptest::collection::vec(any::<u8>(), 0..300),
        trailer in 0..50_usize,
    ) {
        let head = head(&body, bits, numbers);
        let (mut frame, length) = build(&path, &head, &body, &payload);
        // Ethernet pads short frames.
        frame.resize(frame.len() + trailer, 0);
        let frame = Frame::parse(&frame).expect("headers").expect("RoCE");
        let found = Path {
            ethernet: frame.ethernet,
            network: frame.network,
            source_port: frame.source_port,
        };
        prop_assert_eq!(found, path);
        let packet = frame.packet().expect("a packet");
        prop_assert_eq!((packet.head, packet.body), (head, body));
        prop_assert_eq!(packet.payload.len(), length);
        if length == payload.len() {
            prop_assert_eq!(packet.payload, &payload[..]);
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed_unless_routers_may_flip_it(
        path in path(),
        body in body(),
        payload in proptest::collection::vec(any::<u8>(), 0..60),
        at: proptest::sample::Index,
        bit in 0..8_u8,
    ) {
        let head = head(&body, 0, [7, 8, 9, 10]);
        let (mut frame, _) = build(&path, &head, &body, &payload);
        let at = at.index(frame.len());
        frame[at] ^= 1 << bit;
        let whole = frame.clone();
        if let Ok(Some(parsed)) = Frame::parse(&whole)
            && parsed.packet().is_ok()
        {
            let ip = path.ethernet.header_len();
            let (udp, variant): (usize, &[usize]) = match path.network.addresses {
                // The header checksum finds a changed IPv4 field.
                Addresses::V4 { .. } => (ip + 20, &[]),
                Addresses::V6 { .. } => (ip + 40, &[0, 1, 2, 3, 7]),
            };
            let masked = at < ip || at == udp + 12 || variant.contains(&(at.wrapping_sub(ip)));
            prop_assert!(masked, "byte {} of {}", at, whole.len());
        }
    }

    #[test]
    fn no_bytes_make_the_parsers_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        kind in 0..4_u8,
    ) {
        let mut frame = bytes.clone();
        if kind > 0 && frame.len() > 62 {
            // The frame begins as a real one, so that the parser does not reject it at once.
            frame[12..14].copy_from_slice(if kind == 1 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
            frame[14] = if kind == 1 { 0x60 } else { 0x45 };
            frame[23] = 17;
            frame[20] = if kind == 1 { 17 } else { 0 };
            let port = if kind == 1 { 56 } else { 36 };
            frame[port..port + 2].copy_from_slice(&4791_u16.to_be_bytes());
        }
        if let Ok(Some(frame)) = Frame::parse(&frame) {
            let _ = frame.packet();
        }
        let _ = Packet::parse(&bytes);
    }

    #[test]
    fn a_packet_that_ends_early_is_dropped(
        path in path(),
        body in body(),
        payload in proptest::collection::vec(any::<u8>(), 0..60),
        cut in 1..200_usize,
    ) {
        let head = head(&body, 0, [7, 8, 9, 10]);
        let (frame, _) = build(&path, &head, &body, &payload);
        let cut = &frame[..frame.len().saturating_sub(cut)];
        match Frame::parse(cut) {
            Ok(None) => prop_assert!(cut.len() < path.ethernet.header_len() + path.network.header_len() + 8),
            Ok(Some(_)) => prop_assert!(false, "accepted"),
            Err(reason) => prop_assert!(
                matches!(reason, Discard::Truncated | Discard::IpHeader),
                "{:?}", reason
            ),
        }
    }
}
