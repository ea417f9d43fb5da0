//! The frames that a flow selects by its headers.

use anyhow::{Result, ensure};

use super::{SOURCE6, sides};
use crate::suite::fixture::Env;
use crate::suite::fixture::frame::{self, Packet, plain, tagged, udp6};
use crate::suite::fixture::raw::RawSide;
use crate::suite::messages::raw::udp_port;
use vrnic_verbs::model::Spec;
use vrnic_verbs::model::flow::{Ethernet, Ipv4, Ipv6, Ports};

/// A set of headers, a frame that has them, and frames that nearly do.
struct Selection {
    name: &'static str,
    specs: Vec<Spec>,
    right: Vec<u8>,
    wrong: Vec<Vec<u8>>,
}

/// Checks that a flow selects the right frame and none of the wrong ones.
fn select(a: &RawSide, b: &RawSide, selections: Vec<Selection>) -> Result<()> {
    for Selection { name, specs, right, wrong } in selections {
        let flow = b.flow(&specs)?;
        for frame in &wrong {
            a.send(frame)?;
        }
        a.send(&right)?;
        let (found, _) = b.receive()?;
        let which = wrong.iter().position(|frame| *frame == found);
        ensure!(found == right, "{name}: {found:x?} came, the wrong frame {which:?}");
        b.end_flow(flow)?;
        a.send(&right)?;
    }
    b.expect_nothing()
}

/// Returns the frame with one byte changed.
pub(super) fn changed(frame: &[u8], at: usize, byte: u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at] = byte;
    frame
}

pub(super) fn by_ethernet(env: &Env) -> Result<()> {
    let [a, b] = sides(env)?;
    let frame = plain(a.station, b.station.mac, 100, 1);
    let none = Ethernet::default();
    let to = Ethernet { destination: b.station.mac, ..none };
    let to_mask = Ethernet { destination: [0xff; 6], ..none };
    let typed = |ether_type, mask| {
        let value = Ethernet { ether_type, ..to };
        vec![Spec::ethernet(value, Ethernet { ether_type: mask, ..to_mask })]
    };
    let vlan = |vlan, mask| {
        let value = Ethernet { vlan, ether_type: frame::ETHER_TEST, ..none };
        vec![Spec::ethernet(value, Ethernet { vlan: mask, ether_type: u16::MAX, ..none })]
    };
    let from = |source: [u8; 6]| {
        let value = Ethernet { source, ether_type: frame::ETHER_TEST, ..none };
        let mask = Ethernet { source: [0xff; 6], ether_type: u16::MAX, ..none };
        vec![Spec::ethernet(value, mask)]
    };
    let other_type = changed(&frame, 13, 0xb6);
    select(
        &a,
        &b,
        vec![
            Selection {
                name: "type",
                specs: typed(frame::ETHER_TEST, u16::MAX),
                right: frame.clone(),
                wrong: vec![other_type.clone()],
            },
            Selection {
                name: "a part of the type",
                specs: typed(0x88b6, 0xfff7),
                right: other_type,
                wrong: vec![frame.clone()],
            },
            Selection {
                name: "VLAN",
                specs: vlan(5, 0x0fff),
                right: tagged(&frame, 0x6005),
                wrong: vec![tagged(&frame, 6), frame.clone()],
            },
            Selection {
                name: "priority of a VLAN",
                specs: vlan(0x6005, 0xefff),
                right: tagged(&frame, 0x6005),
                wrong: vec![tagged(&frame, 0x4005), frame.clone()],
            },
            Selection {
                name: "source",
                specs: from(a.station.mac),
                right: frame.clone(),
                wrong: vec![],
            },
        ],
    )
}

pub(super) fn by_ipv4(env: &Env) -> Result<()> {
    let [a, b] = sides(env)?;
    let packet = Packet::udp(a.station, b.station, [4000, 4003]);
    let with = |change: &dyn Fn(&mut Packet)| {
        let mut packet = packet;
        change(&mut packet);
        packet.checked(b"payload")
    };
    let right = with(&|packet| (packet.tos, packet.ttl) = (0x28, 33));
    let elsewhere = |from: bool| {
        let far = std::net::Ipv4Addr::new(192, 0, 2, 9);
        with(&|packet| match from {
            true => packet.from.ip = far,
            false => packet.to.ip = far,
        })
    };
    let none = Ipv4::default();
    let (from, to) = (a.station.ip.octets(), b.station.ip.octets());
    let addresses = Ipv4 { source: from, destination: to, ..none };
    let all = Ipv4 { source: [0xff; 4], destination: [0xff; 4], ..none };
    let network = Ipv4 { source: [from[0], from[1], 0, 0], ..none };
    let ports = udp_port(4003);
    let (protocol, tos, ttl, flags) = (17, 0x28, 33, 0b010);
    let fields = |protocol, tos, ttl, flags| Ipv4 { protocol, tos, ttl, flags, ..addresses };
    let whole = Ipv4 { protocol: 0xff, tos: 0xff, ttl: 0xff, flags: 0b110, ..all };
    let fragment = changed(&right, 20, 0x00);
    select(
        &a,
        &b,
        vec![
            Selection {
                name: "addresses",
                specs: vec![Spec::ipv4_addresses(addresses, all), ports[1].clone()],
                right: right.clone(),
                wrong: vec![elsewhere(true), elsewhere(false)],
            },
            Selection {
                name: "a network",
                specs: vec![
                    Spec::ipv4(network, Ipv4 { source: [0xff, 0xff, 0, 0], ..none }),
                    ports[1].clone(),
                ],
                right: right.clone(),
                wrong: vec![elsewhere(true)],
            },
            Selection {
                name: "all fields",
                specs: vec![Spec::ipv4(fields(protocol, tos, ttl, flags), whole), ports[1].clone()],
                right: right.clone(),
                wrong: vec![
                    with(&|packet| (packet.tos, packet.ttl) = (0x28, 34)),
                    with(&|packet| (packet.tos, packet.ttl) = (0x2c, 33)),
                    fragment,
                ],
            },
        ],
    )
}

pub(super) fn by_ipv6(env: &Env) -> Result<()> {
    let [a, b] = sides(env)?;
    let right = udp6(a.station, b.station, SOURCE6, [4000, 4004]);
    let none = Ipv6::default();
    let value = Ipv6 {
        source: SOURCE6,
        destination: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
        flow_label: 0xabcde,
        next_header: 17,
        traffic_class: 0x21,
        hop_limit: 9,
    };
    let mask = Ipv6 {
        source: [0xff; 16],
        destination: [0xff; 16],
        flow_label: 0xfffff,
        next_header: 0xff,
        traffic_class: 0xff,
        hop_limit: 0xff,
    };
    let (port, port_mask) =
        (Ports { destination: 4004, source: 0 }, Ports { destination: u16::MAX, source: 0 });
    select(
        &a,
        &b,
        vec![
            Selection {
                name: "all fields",
                specs: vec![Spec::ipv6(value, mask), Spec::udp(port, port_mask)],
                right: right.clone(),
                wrong: vec![
                    changed(&right, 15, 0x1b),
                    changed(&right, 17, 0xdf),
                    changed(&right, 21, 8),
                    changed(&right, 37, 2),
                    changed(&right, 53, 3),
                ],
            },
            Selection {
                name: "a network",
                specs: vec![
                    Spec::ipv6(
                        Ipv6 { source: SOURCE6, ..none },
                        Ipv6 {
                            source: [0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                            ..none
                        },
                    ),
                    Spec::udp(port, port_mask),
                ],
                right: right.clone(),
                wrong: vec![changed(&right, 22, 0xfc)],
            },
        ],
    )
}

pub(super) fn by_ports(env: &Env) -> Result<()> {
    let [a, b] = sides(env)?;
    let udp = |ports| Packet::udp(a.station, b.station, ports);
    let tcp = |ports| Packet { protocol: frame::PROTOCOL_TCP, ..udp(ports) }.checked(b"payload");
    let udp = |ports| udp(ports).checked(b"payload");
    let ip = Spec::ipv4_addresses(Ipv4::default(), Ipv4::default());
    let (ports, all) = (
        Ports { source: 4000, destination: 4005 },
        Ports { source: u16::MAX, destination: u16::MAX },
    );
    let range = Ports { source: 0, destination: 0xfffe };
    let typed = Ethernet { ether_type: frame::ETHER_IPV4, ..Ethernet::default() };
    let typed = Spec::ethernet(typed, Ethernet { ether_type: u16::MAX, ..Ethernet::default() });
    select(
        &a,
        &b,
        vec![
            Selection {
                name: "UDP",
                specs: vec![ip.clone(), Spec::udp(ports, all)],
                right: udp([4000, 4005]),
                wrong: vec![tcp([4000, 4005]), udp([4001, 4005]), udp([4000, 4006])],
            },
            Selection {
                name: "TCP",
                specs: vec![ip.clone(), Spec::tcp(ports, all)],
                right: tcp([4000, 4005]),
                wrong: vec![udp([4000, 4005]), tcp([4001, 4005]), tcp([4000, 4006])],
            },
            Selection {
                name: "two ports",
                specs: vec![ip, Spec::udp(Ports { source: 0, destination: 4004 }, range)],
                right: udp([1, 4005]),
                wrong: vec![udp([1, 4006]), udp([1, 4003])],
            },
            Selection {
                name: "UDP behind an EtherType",
                specs: vec![typed, Spec::udp(ports, all)],
                right: udp([4000, 4005]),
                wrong: vec![udp([4000, 4006])],
            },
        ],
    )
}
