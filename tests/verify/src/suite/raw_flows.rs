//! Which frames a QP of raw packets gets: flows, their headers, their order, and their end.

use std::net::SocketAddrV4;

use anyhow::{Result, ensure};
use rustix::io::Errno;

use super::Case;
use super::fixture::frame::{self, Packet, Station, plain, tagged, udp6};
use super::fixture::raw::{RawSide, options};
use super::fixture::{Env, Options, Side, expect_errno};
use super::raw::{experiments, udp_port};
use vrnic_verbs::model::flow::{DONT_TRAP, EGRESS, Ethernet, Ipv4, Ipv6, Ports, kind};
use vrnic_verbs::model::{FlowAttr, Spec, qp_type};

/// Time for a datagram to reach a socket, in milliseconds.
const TIMEOUT_MS: u64 = 10_000;
/// Time for which a case checks that no datagram reaches a socket.
const QUIET_MS: u64 = 200;
/// Frames after which a case gives up.
const MANY: usize = 200;
/// 01:00:5e:07:07:07.
const GROUP: [u8; 6] = [0x01, 0x00, 0x5e, 7, 7, 7];
/// fd00::1.
const SOURCE6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("raw/flows_by_ethernet", by_ethernet),
        Case::new("raw/flows_by_ipv4", by_ipv4),
        Case::new("raw/flows_by_ipv6", by_ipv6),
        Case::new("raw/flows_by_ports", by_ports),
        Case::new("raw/flows_take_from_the_kernel", take),
        Case::new("raw/flows_in_order", order),
        Case::new("raw/default_flows", defaults),
        Case::new("raw/sniffers_see_all", sniffers),
        Case::new("raw/refused_flows", refused),
        Case::new("raw/flows_keep_their_queue_pair", keep),
        Case::new("raw/flows_end_with_their_process", end),
    ]
}

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

fn sides(env: &Env) -> Result<[RawSide; 2]> {
    Ok([RawSide::new(&env.a)?, RawSide::new(&env.b)?])
}

/// Returns the frame with one byte changed.
fn changed(frame: &[u8], at: usize, byte: u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at] = byte;
    frame
}

fn by_ethernet(env: &Env) -> Result<()> {
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

fn by_ipv4(env: &Env) -> Result<()> {
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

fn by_ipv6(env: &Env) -> Result<()> {
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

fn by_ports(env: &Env) -> Result<()> {
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

/// A frame that a flow takes does not reach the kernel, unless the flow says so.
fn take(env: &Env) -> Result<()> {
    let [a, b] = sides(env)?;
    let (agent, socket) = (&env.b.agent, env.b.agent.open_udp()?);
    let frame = Packet::udp(a.station, b.station, [4000, socket.port]).checked(b"payload");
    let arrives = |ms| Ok::<_, anyhow::Error>(agent.receive_udp(socket.socket, ms)?.is_some());
    a.send(&frame)?;
    ensure!(arrives(TIMEOUT_MS)?, "without a flow, the kernel has the frame");
    let flow = b.flow(&udp_port(socket.port))?;
    a.send(&frame)?;
    b.expect(&frame)?;
    ensure!(!arrives(QUIET_MS)?, "the flow has taken the frame");
    b.end_flow(flow)?;
    let specs = udp_port(socket.port).to_vec();
    b.flow_with(&FlowAttr { flags: DONT_TRAP, specs, ..FlowAttr::default() })?;
    a.send(&frame)?;
    b.expect(&frame)?;
    ensure!(arrives(TIMEOUT_MS)?, "the flow leaves the frame to the kernel");
    Ok(())
}

/// The flow with the smallest priority gets a frame, and of equal ones the oldest.
fn order(env: &Env) -> Result<()> {
    let a = RawSide::new(&env.a)?;
    let (one, two) = (RawSide::new(&env.b)?, RawSide::new(&env.b)?);
    let frame = plain(a.station, one.station.mac, 100, 1);
    let flow = |side: &RawSide, priority, flags| {
        let specs = vec![experiments(side.station)];
        side.flow_with(&FlowAttr { priority, flags, specs, ..FlowAttr::default() })
    };
    let gets = |side: &RawSide, other: &RawSide| {
        a.send(&frame)?;
        side.expect(&frame)?;
        other.expect_nothing()
    };
    let last = flow(&one, 7, 0)?;
    gets(&one, &two)?;
    let first = flow(&two, 0, 0)?;
    gets(&two, &one)?;
    two.end_flow(first)?;
    gets(&one, &two)?;
    let younger = flow(&two, 7, 0)?;
    gets(&one, &two)?;
    one.end_flow(last)?;
    gets(&two, &one)?;
    // A flow that does not keep the frame lets the next one have it, too.
    flow(&one, 3, DONT_TRAP)?;
    a.send(&frame)?;
    one.expect(&frame)?;
    two.expect(&frame)?;
    two.end_flow(younger)
}

/// Default flows get what others do not want. They are at end a, because the calls of end b come by
/// the network, and a flow that takes the rest takes those, too.
fn defaults(env: &Env) -> Result<()> {
    let (own, b) = (RawSide::new(&env.a)?, RawSide::new(&env.b)?);
    let sides = [RawSide::new(&env.a)?, RawSide::new(&env.a)?, RawSide::new(&env.a)?];
    let [normal, groups, all] = &sides;
    let to = normal.station;
    let default = |kind| FlowAttr { kind, ..FlowAttr::default() };
    // In the reverse order of what counts.
    let some = groups.flow_with(&default(kind::MC_DEFAULT))?;
    let selected = FlowAttr { priority: 7, specs: vec![experiments(to)], ..FlowAttr::default() };
    normal.flow_with(&selected)?;
    let one = plain(b.station, to.mac, 100, 1);
    let group = plain(b.station, GROUP, 100, 3);
    b.send(&one)?;
    normal.expect(&one)?;
    b.send(&group)?;
    sees(groups, &group)?;
    groups.end_flow(some)?;
    let rest = all.flow_with(&default(kind::ALL_DEFAULT))?;
    let one = plain(own.station, to.mac, 100, 4);
    let other = changed(&one, 13, 0xb6);
    own.send(&other)?;
    sees(all, &other)?;
    own.send(&one)?;
    normal.expect(&one)?;
    all.end_flow(rest)?;
    normal.expect_nothing()
}

/// Waits until a QP has received a frame. The network has other frames, too.
fn sees(side: &RawSide, wanted: &[u8]) -> Result<()> {
    for _ in 0..MANY {
        if side.receive()?.0 == wanted {
            return Ok(());
        }
    }
    anyhow::bail!("{MANY} other frames came, and not {wanted:x?}")
}

/// A sniffer gets copies of frames that another flow or the kernel gets, and of what the kernel and
/// QPs send. It is at end a, whose calls do not come by the network.
fn sniffers(env: &Env) -> Result<()> {
    let (sniffer, taker) = (RawSide::new(&env.a)?, RawSide::new(&env.a)?);
    let (b, agent) = (RawSide::new(&env.b)?, &env.a.agent);
    let (here, there) = (taker.station, b.station);
    let socket = agent.open_udp()?;
    taker.flow(&[experiments(here)])?;
    sniffer.flow_with(&FlowAttr { kind: kind::SNIFFER, ..FlowAttr::default() })?;
    let frame = plain(there, here.mac, 100, 1);
    b.send(&frame)?;
    taker.expect(&frame)?;
    sees(&sniffer, &frame)?;
    let datagram = Packet::udp(there, here, [4000, socket.port]).checked(b"in");
    b.send(&datagram)?;
    let found = agent.receive_udp(socket.socket, TIMEOUT_MS)?;
    ensure!(found.as_deref() == Some(&b"in"[..]), "the kernel has {found:x?}");
    sees(&sniffer, &datagram)?;
    let text = b"out of the kernel";
    agent.send_udp(socket.socket, SocketAddrV4::new(there.ip, 4006), text.to_vec())?;
    let is_sent = |frame: &[u8]| frame.ends_with(text) && frame[6..12] == here.mac;
    let sent = (0..MANY).try_fold(false, |found, _| {
        Ok::<_, anyhow::Error>(found || is_sent(&sniffer.receive()?.0))
    });
    ensure!(sent?, "the kernel's datagram was not seen");
    let frame = plain(here, there.mac, 100, 2);
    taker.send(&frame)?;
    sees(&sniffer, &frame)
}

fn refused(env: &Env) -> Result<()> {
    let a = RawSide::new(&env.a)?;
    let (agent, to) = (&env.a.agent, a.station);
    let (invalid, missing) = (Errno::INVAL, Errno::OPNOTSUPP);
    let good = FlowAttr { specs: vec![experiments(to)], ..FlowAttr::default() };
    let with = |specs: Vec<Spec>| FlowAttr { specs, ..FlowAttr::default() };
    let none = Ports::default();
    let ip = Spec::ipv4_addresses(Ipv4::default(), Ipv4::default());
    let short = Spec { mask: vec![0; 4], ..experiments(to) };
    for (what, attr, errno) in [
        ("port 2", FlowAttr { port: Some(2), ..good.clone() }, invalid),
        ("priority 8", FlowAttr { priority: 8, ..good.clone() }, invalid),
        ("an unknown kind", FlowAttr { kind: 7, ..good.clone() }, invalid),
        ("an unknown flag", FlowAttr { flags: 1, ..good.clone() }, invalid),
        ("frames that leave", FlowAttr { flags: EGRESS, ..good.clone() }, missing),
        ("a sniffer of some", FlowAttr { kind: kind::SNIFFER, ..good.clone() }, invalid),
        ("some of the rest", FlowAttr { kind: kind::ALL_DEFAULT, ..good.clone() }, invalid),
        (
            "a copy of the rest",
            FlowAttr { kind: kind::ALL_DEFAULT, flags: DONT_TRAP, ..FlowAttr::default() },
            invalid,
        ),
        ("VXLAN", with(vec![Spec::vxlan()]), missing),
        ("a mark", with(vec![experiments(to), Spec::tag()]), missing),
        ("Ethernet twice", with(vec![experiments(to), experiments(to)]), invalid),
        ("IPv4 of an experiment", with(vec![experiments(to), ip.clone()]), invalid),
        ("TCP and UDP", with(vec![ip, Spec::tcp(none, none), Spec::udp(none, none)]), invalid),
        ("UDP alone", with(vec![Spec::udp(none, none)]), invalid),
        ("a header of no kind", with(vec![Spec { kind: 0x77, ..short }]), invalid),
        ("eleven headers", with(vec![experiments(to); 11]), invalid),
    ] {
        expect_errno(what, agent.create_flow(a.side.qp, attr), errno)?;
    }
    let connected = Side::new(&env.a, &Options::default())?;
    expect_errno("a connection", agent.create_flow(connected.qp, good.clone()), invalid)?;
    if env.a.cm.is_none() {
        let datagrams = Side::new(&env.a, &Options { qp_type: qp_type::UD, ..Options::default() })?;
        expect_errno("datagrams", agent.create_flow(datagrams.qp, good.clone()), missing)?;
    }
    // Nothing has changed.
    let flow = a.flow_with(&good)?;
    let frame = plain(a.station, to.mac, 100, 1);
    a.send(&frame)?;
    a.expect(&frame)?;
    a.end_flow(flow)
}

/// A QP cannot be destroyed before its flows.
fn keep(env: &Env) -> Result<()> {
    let side = Side::new(&env.a, &options())?;
    let agent = &env.a.agent;
    let attr = FlowAttr { specs: vec![experiments(Station::of(&env.a)?)], ..FlowAttr::default() };
    let flow = agent.create_flow(side.qp, attr)?;
    expect_errno("a QP with a flow", agent.destroy_qp(side.qp), Errno::BUSY)?;
    agent.destroy_flow(flow)?;
    side.destroy()
}

/// The flows of a process that is killed do not take frames any more.
fn end(env: &Env) -> Result<()> {
    let [a, b] = sides(env)?;
    let dying = env.another_b()?;
    for _ in 0..3 {
        let side = RawSide::new(&dying)?;
        for priority in 0..8 {
            let specs = vec![experiments(side.station)];
            side.flow_with(&FlowAttr { priority, specs, ..FlowAttr::default() })?;
        }
    }
    // The agent does not answer.
    let _crashed = dying.agent.crash();
    let flow = FlowAttr { priority: 7, specs: vec![experiments(b.station)], ..FlowAttr::default() };
    b.flow_with(&flow)?;
    let frame = plain(a.station, b.station.mac, 100, 1);
    // The kernel ends the process at its own time.
    for _ in 0..50 {
        a.send(&frame)?;
        if !env.b.agent.poll(b.side.recv_cq, 1, QUIET_MS)?.is_empty() {
            return Ok(());
        }
    }
    anyhow::bail!("the flows of a dead process still take frames")
}
