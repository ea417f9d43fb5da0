//! The fields that rules compare.
//!
//! Shows: raw

use vrnic_abi::flow::{Fields, Kind, Network, Rule, Upper};
use vrnic_adapter::ethernet::{Frame, Offered};
use vrnic_packet::ip::Protocol;
use vrnic_testdriver::flow::rule;

use super::endpoint;
use super::frames::{PLAIN, Packet, V4, V6, mac, plain};
use crate::bus::Endpoint;
use crate::world::World;

/// Returns whether a rule takes a frame.
fn takes(qp: &Endpoint, rule: &Rule, frame: &[u8]) -> bool {
    let id = qp.add_flow(rule).expect("CREATE_FLOW");
    let offered = qp.guest.adapter.offer(Frame::copy(frame));
    qp.guest.destroy_flow(id).expect("DESTROY_FLOW");
    offered == Offered::Trapped
}

/// A field: its name, its value in the frame, its place in a rule, and the headers that it needs.
struct Case {
    name: &'static str,
    packet: Packet,
    network: Network,
    upper: Upper,
    set: fn(&mut Fields, &[u8]),
    value: Vec<u8>,
}

fn case(name: &'static str, set: fn(&mut Fields, &[u8]), value: &[u8]) -> Case {
    let (network, upper) = (Network::Any, Upper::Any);
    Case { name, packet: Packet::default(), network, upper, set, value: value.to_vec() }
}

impl Case {
    fn v4(self) -> Self {
        Self { network: Network::Ipv4, ..self }
    }

    fn v6(self) -> Self {
        let packet = Packet { addresses: V6, ..self.packet };
        Self { network: Network::Ipv6, packet, ..self }
    }

    fn upper(self, upper: Upper) -> Self {
        let protocol = if upper == Upper::Tcp { Protocol::TCP } else { Protocol::UDP };
        Self { upper, packet: Packet { protocol, ..self.packet }, ..self }
    }

    /// Returns a rule that compares the bits of `mask` with `value`.
    fn rule(&self, value: &[u8], mask: &[u8]) -> Rule {
        let mut rule =
            Rule { network: self.network as u8, upper: self.upper as u8, ..rule(Kind::Normal) };
        (self.set)(&mut rule.values, value);
        (self.set)(&mut rule.mask, mask);
        rule
    }
}

/// Copies bytes to the beginning of a field.
fn put(field: &mut [u8], bytes: &[u8]) {
    field[..bytes.len()].copy_from_slice(bytes);
}

fn cases() -> Vec<Case> {
    let v4 = |nth: usize| match V4[nth] {
        std::net::IpAddr::V4(address) => address.octets(),
        std::net::IpAddr::V6(_) => unreachable!("IPv4"),
    };
    let v6 = |nth: usize| match V6[nth] {
        std::net::IpAddr::V6(address) => address.octets(),
        std::net::IpAddr::V4(_) => unreachable!("IPv6"),
    };
    let tagged = Packet { vlan: Some(0x6007), ..Packet::default() };
    let marked = Packet { traffic_class: 0x2e, hop_limit: 9, flow_label: 0xabcde, ..tagged };
    let with = |packet, case| Case { packet, ..case };
    let source: fn(&mut Fields, &[u8]) = |fields, bytes| put(&mut fields.source, bytes);
    let destination: fn(&mut Fields, &[u8]) = |fields, bytes| put(&mut fields.destination, bytes);
    let tos: fn(&mut Fields, &[u8]) = |fields, bytes| fields.tos = bytes[0];
    let ttl: fn(&mut Fields, &[u8]) = |fields, bytes| fields.ttl = bytes[0];
    let protocol: fn(&mut Fields, &[u8]) = |fields, bytes| fields.protocol = bytes[0];
    let from: fn(&mut Fields, &[u8]) = |fields, bytes| put(&mut fields.source_port, bytes);
    let to: fn(&mut Fields, &[u8]) = |fields, bytes| put(&mut fields.destination_port, bytes);
    vec![
        case("dmac", |fields, bytes| put(&mut fields.dmac, bytes), &mac(2)),
        case("smac", |fields, bytes| put(&mut fields.smac, bytes), &mac(1)),
        case("type", |fields, bytes| put(&mut fields.ether_type, bytes), &[8, 0]),
        with(tagged, case("type", |fields, bytes| put(&mut fields.ether_type, bytes), &[8, 0])),
        with(tagged, case("vlan", |fields, bytes| put(&mut fields.vlan, bytes), &[0x60, 7])),
        case("source", source, &v4(0)).v4(),
        case("destination", destination, &v4(1)).v4(),
        with(marked, case("tos", tos, &[0x2e])).v4(),
        with(marked, case("ttl", ttl, &[9])).v4(),
        case("protocol", protocol, &[17]).v4(),
        case("fragment flags", |fields, bytes| fields.fragment_flags = bytes[0], &[2]).v4(),
        case("source", source, &v6(0)).v6(),
        case("destination", destination, &v6(1)).v6(),
        with(marked, case("traffic class", tos, &[0x2e])).v6(),
        with(marked, case("hop limit", ttl, &[9])).v6(),
        case("next header", protocol, &[17]).v6(),
        with(
            marked,
            case(
                "flow label",
                |fields, bytes| put(&mut fields.flow_label, bytes),
                &[0, 0x0a, 0xbc, 0xde],
            ),
        )
        .v6(),
        case("port from", from, &1000u16.to_be_bytes()).v4().upper(Upper::Udp),
        case("port to", to, &2000u16.to_be_bytes()).v4().upper(Upper::Tcp),
        case("port from", from, &1000u16.to_be_bytes()).v6().upper(Upper::Tcp),
        case("port to", to, &2000u16.to_be_bytes()).v6().upper(Upper::Udp),
    ]
}

/// Each bit of each field: a rule that names the frame's value takes it, a rule with another bit
/// does not, unless the bit is not in the mask.
#[test]
fn each_bit_of_each_field_is_compared_if_the_mask_names_it() {
    let world = World::default();
    let qp = endpoint(&world.guest(2));
    for case in cases() {
        let Case { name, value, packet, .. } = &case;
        let (frame, all) = (packet.frame(b"data"), vec![0xff; value.len()]);
        assert!(takes(&qp, &case.rule(value, &all), &frame), "{name} of {packet:?}");
        for (at, bit) in (0..value.len()).flat_map(|at| (0..8).map(move |bit| (at, 1u8 << bit))) {
            let mut other = value.clone();
            other[at] ^= bit;
            assert!(!takes(&qp, &case.rule(&other, &all), &frame), "{name}: bit {bit} of {at}");
            let mut mask = vec![0; value.len()];
            mask[at] = bit;
            let one: Vec<u8> = value.iter().zip(&mask).map(|(value, mask)| value & mask).collect();
            assert!(takes(&qp, &case.rule(&one, &mask), &frame), "{name}: only bit {bit} of {at}");
            let mut rest = all.clone();
            rest[at] ^= bit;
            let most: Vec<u8> = value.iter().zip(&rest).map(|(value, mask)| value & mask).collect();
            assert!(takes(&qp, &case.rule(&most, &rest), &frame), "{name}: without {bit} of {at}");
        }
    }
}

#[test]
fn a_rule_needs_the_headers_that_it_names() {
    let world = World::default();
    let qp = endpoint(&world.guest(2));
    let udp = Packet::default().frame(b"");
    let tcp = Packet { protocol: Protocol::TCP, ..Packet::default() }.frame(b"");
    let other = Packet { protocol: Protocol(47), ..Packet::default() }.frame(b"");
    let six = Packet { addresses: V6, ..Packet::default() }.frame(b"");
    let none = plain(mac(2), 60);
    assert_eq!(none[12..14], PLAIN.0.to_be_bytes());
    // A header that ends before its ports.
    let short = udp[..36].to_vec();
    // The second fragment of a datagram has no ports.
    let mut fragment = udp.clone();
    fragment[21] = 1;
    // An IP header of another version than the frame's type.
    let mut wrong = udp.clone();
    wrong[14] = 0x65;
    let frames = [&udp, &tcp, &other, &six, &none, &short, &fragment, &wrong];
    for (network, upper, taken) in [
        (Network::Any, Upper::Any, [true; 8]),
        (Network::Ipv4, Upper::Any, [true, true, true, false, false, true, true, false]),
        (Network::Ipv6, Upper::Any, [false, false, false, true, false, false, false, false]),
        (Network::Ipv4, Upper::Udp, [true, false, false, false, false, false, false, false]),
        (Network::Ipv4, Upper::Tcp, [false, true, false, false, false, false, false, false]),
        (Network::Ipv6, Upper::Udp, [false, false, false, true, false, false, false, false]),
    ] {
        let rule = Rule { network: network as u8, upper: upper as u8, ..rule(Kind::Normal) };
        let got = frames.map(|frame| takes(&qp, &rule, frame));
        assert_eq!(got, taken, "{network:?}, {upper:?}");
    }
}

#[test]
fn a_rule_of_a_vlan_takes_no_frame_without_a_tag() {
    let world = World::default();
    let qp = endpoint(&world.guest(2));
    let [plain, zero, seven] = [None, Some(0xe000), Some(7)]
        .map(|vlan| Packet { vlan, ..Packet::default() }.frame(b"data"));
    let rule = |value: u16, mask: u16| Rule {
        values: Fields { vlan: value.to_be_bytes(), ..Fields::default() },
        mask: Fields { vlan: mask.to_be_bytes(), ..Fields::default() },
        ..rule(Kind::Normal)
    };
    for (value, mask, taken) in [
        (0, 0, [true, true, true]),
        (0, 0x0fff, [false, true, false]),
        (7, 0x0fff, [false, false, true]),
        (0, 0xe000, [true, false, true]),
    ] {
        let got = [&plain, &zero, &seven].map(|frame| takes(&qp, &rule(value, mask), frame));
        assert_eq!(got, taken, "{value:#x} of {mask:#x}");
    }
}

/// Fields of headers that a rule does not name are not compared.
#[test]
fn fields_of_other_headers_are_ignored() {
    let world = World::default();
    let qp = endpoint(&world.guest(2));
    let mut wrong = rule(Kind::Normal);
    (wrong.values.protocol, wrong.mask.protocol) = (99, 0xff);
    (wrong.values.source_port, wrong.mask.source_port) = ([9, 9], [0xff; 2]);
    let frame = Packet::default().frame(b"data");
    assert!(takes(&qp, &wrong, &frame));
    wrong.network = Network::Ipv4 as u8;
    assert!(!takes(&qp, &wrong, &frame), "the protocol is compared");
    (wrong.values.protocol, wrong.mask.protocol) = (17, 0xff);
    assert!(takes(&qp, &wrong, &frame));
    wrong.upper = Upper::Udp as u8;
    assert!(!takes(&qp, &wrong, &frame), "the port is compared");
}
