//! Which frames a QP of raw packets gets: flows, their headers, their order, and their end.
//!
//! Shows: raw

mod selection;

use std::net::SocketAddrV4;

use anyhow::{Result, ensure};
use rustix::io::Errno;

use self::selection::changed;
use super::raw::{experiments, udp_port};
use crate::suite::Case;
use crate::suite::fixture::frame::{Packet, Station, plain};
use crate::suite::fixture::raw::{RawSide, options};
use crate::suite::fixture::{Env, Options, Side, expect_errno};
use vrnic_verbs::model::flow::{DONT_TRAP, EGRESS, Ipv4, Ports, kind};
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

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("raw/flows_by_ethernet", selection::by_ethernet),
        Case::new("raw/flows_by_ipv4", selection::by_ipv4),
        Case::new("raw/flows_by_ipv6", selection::by_ipv6),
        Case::new("raw/flows_by_ports", selection::by_ports),
        Case::new("raw/flows_take_from_the_kernel", take),
        Case::new("raw/flows_in_order", order),
        Case::new("raw/default_flows", defaults),
        Case::new("raw/sniffers_see_all", sniffers),
        Case::new("raw/refused_flows", refused),
        Case::new("raw/flows_keep_their_queue_pair", keep),
        Case::new("raw/flows_end_with_their_process", end),
    ]
}

fn sides(env: &Env) -> Result<[RawSide; 2]> {
    Ok([RawSide::new(&env.a)?, RawSide::new(&env.b)?])
}

/// A frame that a flow takes does not reach the kernel, unless the flow says so.
///
/// Shows: raw: flows take frames from the kernel
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
