//! Datagrams: the network header before the data, queue keys, address handles, and multicast
//! groups.
//!
//! Shows: datagrams

use anyhow::{Result, ensure};
use rustix::io::Errno;

use crate::rpc::client::CallError;
use crate::suite::Case;
use crate::suite::fixture::side::QKEY;
use crate::suite::fixture::{End, Env, Options, Region, Side, expect_errno, expect_error};
use vrnic_verbs::model::{Destination, Op, Path, SendWr, State, Status, flags, mask, qp_type};

/// The network header before a datagram (IBTA volume 1, 11.4.2.1).
const HEADER: u64 = 40;
/// Destination QP of datagrams to groups.
const MULTICAST_QPN: u32 = 0x00ff_ffff;
/// The GID of the group 239.7.7.7.
const GROUP: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 7, 7, 7];
/// Time for which a case checks that nothing arrives, in milliseconds.
const QUIET_MS: u64 = 100;
/// A queue key with this bit means the sending QP's own queue key.
const OWN_KEY: u32 = 1 << 31;

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("datagrams/sizes_and_header", sizes),
        Case::new("datagrams/no_bytes", no_bytes),
        Case::new("datagrams/header_is_ipv4", ipv4_header),
        Case::new("datagrams/immediate_and_inline", immediate),
        Case::new("datagrams/to_oneself", to_oneself),
        Case::new("datagrams/queue_keys", queue_keys),
        Case::new("datagrams/longest", longest),
        Case::new("datagrams/too_short_receive_is_kept", too_short),
        Case::new("datagrams/address_handles", address_handles),
        Case::new("datagrams/operations_they_lack", operations),
        Case::new("multicast/members_receive", members),
        Case::new("multicast/several_members", several_members),
        Case::new("multicast/ipv6_group", ipv6_group),
        Case::new("multicast/blocked_loopback", blocked_loopback),
        Case::new("multicast/refused", refused),
        Case::new("multicast/ends_with_the_queue_pair", ends),
    ]
}

fn options() -> Options {
    Options { qp_type: qp_type::UD, ..Options::default() }.cap(|cap| cap.inline = 64)
}

/// Returns a side that is ready to send and receive.
pub(in crate::suite) fn ready(end: &End) -> Result<Side> {
    ready_with(end, &options())
}

fn ready_with(end: &End, options: &Options) -> Result<Side> {
    let side = Side::new(end, options)?;
    let attr = side.attr_towards(end, 0);
    let init = mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::QKEY;
    side.modify(State::Init, &attr, init)?;
    side.to(State::Rtr)?;
    side.modify(State::Rts, &attr, mask::STATE | mask::SQ_PSN)?;
    Ok(side)
}

fn path(from: &End, dgid: [u8; 16]) -> Path {
    Path { dgid, sgid_index: from.info.gid_index, hop_limit: 64, port: 1, ..Path::default() }
}

fn handle(side: &Side, path: Path) -> Result<u32, CallError> {
    side.end.agent.create_ah(side.pd, path)
}

/// Returns the path from one side to another.
pub(in crate::suite) fn towards(from: &Side, to: &Side) -> Result<Destination> {
    let ah = handle(from, path(&from.end, to.end.info.gid))?;
    Ok(Destination { ah, qpn: to.qpn, qkey: QKEY })
}

/// Returns the path to a group.
fn to_group(from: &Side, group: [u8; 16]) -> Result<Destination> {
    let ah = handle(from, path(&from.end, group))?;
    Ok(Destination { ah, qpn: MULTICAST_QPN, qkey: QKEY })
}

pub(in crate::suite) fn datagram(wr_id: u64, region: &Region, len: u64, to: Destination) -> SendWr {
    SendWr { to: Some(to), ..Side::request(Op::Send, wr_id, &[region.part(0, len)]) }
}

/// Sends `len` bytes. Checks that they arrive after the header.
fn transfer(from: &Side, to: &Side, way: Destination, len: u64, seed: u64) -> Result<()> {
    let (source, target) = (from.region(len.max(1), 3)?, to.region(HEADER + len, 5)?);
    source.fill(seed)?;
    to.post_recv(seed, &[target.sge()])?;
    from.run(datagram(seed, &source, len, way), Status::Success)?;
    let wc = to.expect_received(seed, Status::Success)?;
    ensure!(
        (u64::from(wc.byte_len), wc.src_qpn, wc.header) == (HEADER + len, from.qpn, true),
        "{len} bytes from QP {} came as {wc:?}",
        from.qpn
    );
    target.check_part(HEADER, len, seed, 0)?;
    source.deregister()?;
    target.deregister()
}

fn sizes(env: &Env) -> Result<()> {
    let (a, b) = (ready(&env.a)?, ready(&env.b)?);
    for (from, to) in [(&a, &b), (&b, &a)] {
        let way = towards(from, to)?;
        for (n, len) in [0, 1, 7, 39, 40, 41, 255, 256, 1000, 1024].into_iter().enumerate() {
            transfer(from, to, way, len, 50 + n as u64)?;
        }
    }
    Ok(())
}

/// A request may have no segments, segments without bytes, or inline data without bytes.
fn no_bytes(env: &Env) -> Result<()> {
    let (a, b) = (ready(&env.a)?, ready(&env.b)?);
    let way = towards(&a, &b)?;
    let (source, target) = (a.region(8, 0)?, b.region(HEADER, 0)?);
    let empty = datagram(1, &source, 0, way);
    let none = SendWr { sges: Vec::new(), ..empty.clone() };
    let inline = |wr: &SendWr| SendWr { flags: wr.flags | flags::INLINE, ..wr.clone() };
    for wr in [inline(&none), inline(&empty), none, empty] {
        b.post_recv(3, &[target.sge()])?;
        a.run(wr.clone(), Status::Success)?;
        let wc = b.expect_received(3, Status::Success)?;
        ensure!(u64::from(wc.byte_len) == HEADER && wc.src_qpn == a.qpn, "{wr:?} came as {wc:?}");
    }
    Ok(())
}

/// An IPv4 header is in the last 20 of the 40 bytes. It has a valid checksum and both addresses.
fn ipv4_header(env: &Env) -> Result<()> {
    let (a, b) = (ready(&env.a)?, ready(&env.b)?);
    let (from, to) = (env.a.info.gid, env.b.info.gid);
    ensure!(from[10..12] == [0xff, 0xff], "this case needs an IPv4 address");
    let way = towards(&a, &b)?;
    let (source, target) = (a.region(64, 0)?, b.region(HEADER + 64, 0)?);
    b.post_recv(1, &[target.sge()])?;
    a.post(&[datagram(1, &source, 64, way)])?;
    b.expect_received(1, Status::Success)?;
    let header = b.end.agent.read(target.buffer, 0, HEADER)?;
    let ip = &header[20..];
    ensure!(ip[0] == 0x45, "version and length {:#x}", ip[0]);
    ensure!(ip[9] == 17, "protocol {}, not UDP", ip[9]);
    ensure!(ip[8] == 64, "hop limit {}", ip[8]);
    ensure!(ip[12..16] == from[12..] && ip[16..20] == to[12..], "addresses in {ip:x?}");
    let words = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    ensure!((sum & 0xffff) + (sum >> 16) == 0xffff, "checksum of {ip:x?}");
    // The version of an IPv6 header would be in the first byte.
    ensure!(header[0] >> 4 != 6, "an IPv6 header");
    Ok(())
}

fn immediate(env: &Env) -> Result<()> {
    let (a, b) = (ready(&env.a)?, ready(&env.b)?);
    let way = towards(&a, &b)?;
    let (source, target) = (a.region(64, 0)?, b.region(HEADER + 64, 0)?);
    source.fill(3)?;
    b.post_recv(1, &[target.sge()])?;
    let mut wr = datagram(1, &source, 64, way);
    (wr.op, wr.imm) = (Op::SendImm, 0x0102_0304);
    wr.flags |= flags::INLINE;
    a.run(wr, Status::Success)?;
    let wc = b.expect_received(1, Status::Success)?;
    ensure!(wc.imm == Some(0x0102_0304), "immediate {:x?}", wc.imm);
    target.check_part(HEADER, 64, 3, 0)
}

fn to_oneself(env: &Env) -> Result<()> {
    let (a, other) = (ready(&env.a)?, ready(&env.a)?);
    transfer(&a, &a, towards(&a, &a)?, 100, 4)?;
    transfer(&a, &other, towards(&a, &other)?, 100, 5)
}

/// A datagram without the receiver's queue key is dropped. If the highest bit is set, the sender's
/// own key is used.
fn queue_keys(env: &Env) -> Result<()> {
    let (a, b) = (ready(&env.a)?, ready(&env.b)?);
    let way = towards(&a, &b)?;
    let (source, target) = (a.region(8, 0)?, b.region(HEADER + 8, 0)?);
    b.post_recv(7, &[target.sge()])?;
    a.run(datagram(1, &source, 8, Destination { qkey: QKEY + 1, ..way }), Status::Success)?;
    b.expect_quiet(QUIET_MS)?;
    a.run(datagram(2, &source, 8, Destination { qkey: OWN_KEY | 5, ..way }), Status::Success)?;
    b.expect_received(7, Status::Success)?;
    // The key may change in RTS.
    let attr = vrnic_verbs::model::QpAttr { qkey: 77, ..Default::default() };
    b.modify(State::Rts, &attr, mask::STATE | mask::QKEY)?;
    b.post_recv(8, &[target.sge()])?;
    a.run(datagram(3, &source, 8, way), Status::Success)?;
    b.expect_quiet(QUIET_MS)?;
    a.run(datagram(4, &source, 8, Destination { qkey: 77, ..way }), Status::Success)?;
    b.expect_received(8, Status::Success).map(drop)
}

/// Returns the bytes of an `enum ibv_mtu`.
fn mtu_bytes(mtu: u32) -> u64 {
    128 << mtu
}

/// A datagram may be as long as the port's MTU, and not longer.
fn longest(env: &Env) -> Result<()> {
    let (a, b) = (ready(&env.a)?, ready(&env.b)?);
    let way = towards(&a, &b)?;
    let mtu = mtu_bytes(env.a.info.active_mtu);
    transfer(&a, &b, way, mtu, 9)?;
    let source = a.region(mtu + 1, 0)?;
    a.run(datagram(1, &source, mtu + 1, way), Status::LocLenErr).map(drop)
}

fn too_short(env: &Env) -> Result<()> {
    let (a, b) = (ready(&env.a)?, ready(&env.b)?);
    let way = towards(&a, &b)?;
    let (source, target) = (a.region(100, 0)?, b.region(HEADER + 50, 0)?);
    source.fill(2)?;
    b.post_recv(1, &[target.sge()])?;
    a.run(datagram(1, &source, 51, way), Status::Success)?;
    b.expect_quiet(QUIET_MS)?;
    a.run(datagram(2, &source, 50, way), Status::Success)?;
    b.expect_received(1, Status::Success)?;
    target.check_part(HEADER, 50, 2, 0)
}

fn address_handles(env: &Env) -> Result<()> {
    let side = Side::new(&env.a, &options())?;
    let good = path(&env.a, env.b.info.gid);
    expect_error("port 2", handle(&side, Path { port: 2, ..good }))?;
    expect_error("source GID 250", handle(&side, Path { sgid_index: 250, ..good }))?;
    let many: Vec<_> = (0..500).map(|_| handle(&side, good)).collect::<Result<_, _>>()?;
    for ah in many {
        side.end.agent.destroy_ah(ah)?;
    }
    Ok(())
}

/// Operations that datagrams do not have are refused, at posting or by the completion.
fn operations(env: &Env) -> Result<()> {
    for op in [Op::Write, Op::Read, Op::FetchAdd, Op::CmpSwp] {
        let a = ready(&env.a)?;
        let way = towards(&a, &a)?;
        let source = a.region(8, 0)?;
        let wr = SendWr { op, ..datagram(1, &source, 8, way) };
        if a.try_post(&[wr])?.refused.is_none() {
            a.expect_sent(1, Status::LocQpOpErr)?;
        }
    }
    Ok(())
}

fn attach(side: &Side, gid: [u8; 16]) -> Result<(), CallError> {
    side.end.agent.attach_mcast(side.qp, gid, 0xc000)
}

fn detach(side: &Side, gid: [u8; 16]) -> Result<(), CallError> {
    side.end.agent.detach_mcast(side.qp, gid, 0xc000)
}

/// Returns whether a datagram from `from` to a group arrives at `to`.
fn reaches(from: &Side, to: &Side, way: Destination, seed: u64) -> Result<bool> {
    let (source, target) = (from.region(16, 0)?, to.region(HEADER + 16, 0)?);
    source.fill(seed)?;
    to.post_recv(seed, &[target.sge()])?;
    from.run(datagram(seed, &source, 16, way), Status::Success)?;
    let done = to.end.agent.poll(to.recv_cq, 1, QUIET_MS)?;
    let came = !done.is_empty();
    if came {
        target.check_part(HEADER, 16, seed, 0)?;
    }
    Ok(came)
}

fn members(env: &Env) -> Result<()> {
    let (a, b) = (ready(&env.a)?, ready(&env.b)?);
    let way = to_group(&a, GROUP)?;
    ensure!(!reaches(&a, &b, way, 1)?, "b is no member yet");
    attach(&b, GROUP)?;
    // The earlier receive is still there, and comes first.
    let source = a.region(16, 0)?;
    a.run(datagram(2, &source, 16, way), Status::Success)?;
    b.expect_received(1, Status::Success)?;
    ensure!(reaches(&a, &b, way, 3)?, "b is a member");
    let mut other = GROUP;
    other[15] ^= 1;
    ensure!(!reaches(&a, &b, to_group(&a, other)?, 4)?, "of another group b is not");
    detach(&b, GROUP)?;
    ensure!(!reaches(&a, &b, way, 5)?, "b has left");
    Ok(())
}

/// Members on both ends, two of them on one end, including the sender. Each gets the datagram once.
fn several_members(env: &Env) -> Result<()> {
    let sides = [ready(&env.a)?, ready(&env.b)?, ready(&env.b)?];
    let mut targets = Vec::new();
    for side in &sides {
        attach(side, GROUP)?;
        let target = side.region(HEADER + 16, 0)?;
        side.post_recv(7, &[target.sge()])?;
        side.post_recv(8, &[target.sge()])?;
        targets.push(target);
    }
    let [a, ..] = &sides;
    let source = a.region(16, 0)?;
    source.fill(6)?;
    a.run(datagram(1, &source, 16, to_group(a, GROUP)?), Status::Success)?;
    for (side, target) in sides.iter().zip(&targets) {
        let wc = side.expect_received(7, Status::Success)?;
        ensure!(wc.src_qpn == a.qpn, "from QP {}", wc.src_qpn);
        target.check_part(HEADER, 16, 6, 0)?;
        side.expect_quiet(QUIET_MS / 2)?;
        detach(side, GROUP)?;
    }
    Ok(())
}

/// Datagrams of a QP that blocks its loopback reach only the members of the other end.
fn blocked_loopback(env: &Env) -> Result<()> {
    let sides = [ready(&env.a)?, ready(&env.b)?];
    let sender = ready_with(&env.a, &Options { block_loopback: true, ..options() })?;
    for side in sides.iter().chain([&sender]) {
        attach(side, GROUP)?;
    }
    let way = to_group(&sender, GROUP)?;
    ensure!(!reaches(&sender, &sides[0], way, 1)?, "a member of the own end has received");
    ensure!(reaches(&sender, &sides[1], way, 2)?, "the member of the other end has not");
    sender.expect_quiet(QUIET_MS / 2)?;
    for side in sides.iter().chain([&sender]) {
        detach(side, GROUP)?;
    }
    Ok(())
}

/// From the link-local address, which is always the first GID.
fn ipv6_group(env: &Env) -> Result<()> {
    const GROUP6: [u8; 16] = [0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7];
    let (a, b) = (ready(&env.a)?, ready(&env.b)?);
    let path = Path { sgid_index: 0, ..path(&env.a, GROUP6) };
    let way = Destination { ah: handle(&a, path)?, qpn: MULTICAST_QPN, qkey: QKEY };
    ensure!(!reaches(&a, &b, way, 1)?, "b is no member yet");
    attach(&b, GROUP6)?;
    let target = b.region(HEADER + 16, 0)?;
    b.post_recv(2, &[target.sge()])?;
    let source = a.region(16, 0)?;
    for seed in [1, 2] {
        source.fill(seed)?;
        a.run(datagram(seed, &source, 16, way), Status::Success)?;
        // The first receive belongs to the attempt above.
        b.expect_received(seed, Status::Success)?;
    }
    target.check_part(HEADER, 16, 2, 0)?;
    let header = b.end.agent.read(target.buffer, 0, HEADER)?;
    ensure!(header[0] >> 4 == 6 && header[24..40] == GROUP6, "no IPv6 header: {header:x?}");
    Ok(detach(&b, GROUP6)?)
}

fn refused(env: &Env) -> Result<()> {
    let side = ready(&env.a)?;
    let invalid = Errno::INVAL;
    expect_errno("an address of one station", attach(&side, env.b.info.gid), invalid)?;
    expect_errno("to leave without having joined", detach(&side, GROUP), invalid)?;
    let connected = Side::new(&env.a, &Options::default())?;
    expect_errno("a connected QP", attach(&connected, GROUP), invalid)?;
    // Joining twice gives one membership.
    attach(&side, GROUP)?;
    attach(&side, GROUP)?;
    detach(&side, GROUP)?;
    expect_errno("to leave twice", detach(&side, GROUP), invalid)
}

/// A QP that is a member cannot be destroyed, by the rules of the verbs. When its process is
/// killed, it leaves the group.
fn ends(env: &Env) -> Result<()> {
    let side = ready(&env.a)?;
    attach(&side, GROUP)?;
    ensure!(side.destroy().is_err(), "a member was destroyed");
    detach(&side, GROUP)?;
    side.destroy()?;
    let dying = env.another_a()?;
    for _ in 0..20 {
        attach(&ready(&dying)?, GROUP)?;
    }
    // The agent does not answer.
    let _crashed = dying.agent.crash();
    let (a, b) = (ready(&env.a)?, ready(&env.b)?);
    attach(&b, GROUP)?;
    ensure!(reaches(&a, &b, to_group(&a, GROUP)?, 3)?, "b is a member");
    Ok(detach(&b, GROUP)?)
}
