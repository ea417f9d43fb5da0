//! QPs of raw packets: frames, checksums, large TCP segments, and who may have such QPs.
//!
//! Shows: raw

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;

use crate::suite::Case;
use crate::suite::fixture::frame::{self, Packet, Station, checksums_are_right, plain};
use crate::suite::fixture::raw::{CHECKSUMS, LONGEST, RawSide, options, ready};
use crate::suite::fixture::{Env, Options, Side, expect_errno};
use vrnic_verbs::model::flow::{Ethernet, Ipv4, Ports};
use vrnic_verbs::model::{
    FlowAttr, Hash, Op, QpAttr, SendWr, Spec, State, Status, flags, mask, qp_type, wc_opcode,
};

/// Time for a datagram to reach a socket, in milliseconds.
const TIMEOUT_MS: u64 = 10_000;
/// Time for which a case checks that no datagram reaches a socket.
const QUIET_MS: u64 = 200;
/// Bytes of the headers of a large TCP segment.
const HEADERS: usize = 54;

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("raw/capabilities", capabilities),
        Case::new("raw/frames_between_guests", between),
        Case::new("raw/frames_within_a_guest", within),
        Case::new("raw/inline_and_pieces", pieces),
        Case::new("raw/many_frames_in_order", many),
        Case::new("raw/kernel_receives_checksums", kernel_receives),
        Case::new("raw/checksums_are_checked", checked),
        Case::new("raw/large_segments", large_segments),
        Case::new("raw/lengths_of_frames", lengths),
        Case::new("raw/too_short_receive_is_kept", too_short),
        Case::new("raw/states", states),
        Case::new("raw/operations_they_lack", operations),
        Case::new("raw/processes_without_the_right", without_right),
    ]
}

/// Returns a header that only frames for experiments to this station have.
pub(in crate::suite) fn experiments(to: Station) -> Spec {
    let value =
        Ethernet { destination: to.mac, ether_type: frame::ETHER_TEST, ..Ethernet::default() };
    let mask = Ethernet { destination: [0xff; 6], ether_type: 0xffff, ..Ethernet::default() };
    Spec::ethernet(value, mask)
}

/// Returns the headers of datagrams to a port.
pub(in crate::suite) fn udp_port(port: u16) -> [Spec; 2] {
    let ip = Ipv4::default();
    let (value, mask) =
        (Ports { destination: port, source: 0 }, Ports { destination: u16::MAX, source: 0 });
    [Spec::ipv4_addresses(ip, ip), Spec::udp(value, mask)]
}

fn capabilities(env: &Env) -> Result<()> {
    let caps = env.a.agent.raw_caps()?;
    ensure!(caps.checksums && caps.flows, "{caps:?}");
    // The longest segment of the adapter, without the longest headers.
    ensure!(caps.max_tso == (1 << 16) - 192, "{caps:?}");
    ensure!(caps.tso_types == 1 << qp_type::RAW_PACKET, "{caps:?}");
    ensure!(caps.rss_types == 1 << qp_type::RAW_PACKET, "{caps:?}");
    ensure!(caps.rss_functions == Hash::TOEPLITZ && caps.rss_fields == 0xff, "{caps:?}");
    ensure!(caps.rss_entries == 128 && caps.max_wq > 100, "{caps:?}");
    Ok(())
}

fn between(env: &Env) -> Result<()> {
    let sides = [RawSide::new(&env.a)?, RawSide::new(&env.b)?];
    for side in &sides {
        side.flow(&[experiments(side.station)])?;
    }
    let [a, b] = &sides;
    for (from, to) in [(a, b), (b, a)] {
        for (seed, length) in
            [14, 15, 59, 60, 61, 127, 512, 1000, 1513, 1514].into_iter().enumerate()
        {
            let frame = plain(from.station, to.station.mac, length, seed as u8);
            from.send(&frame)?;
            to.expect(&frame)?;
        }
    }
    Ok(())
}

/// Frames to the guest's own address reach another QP, and the QP that has sent them.
fn within(env: &Env) -> Result<()> {
    let (one, other) = (RawSide::new(&env.a)?, RawSide::new(&env.a)?);
    let flow = other.flow(&[experiments(other.station)])?;
    let frame = plain(one.station, one.station.mac, 200, 1);
    one.send(&frame)?;
    other.expect(&frame)?;
    other.end_flow(flow)?;
    one.flow(&[experiments(one.station)])?;
    one.send(&frame)?;
    one.expect(&frame)?;
    other.expect_nothing()
}

/// A frame may be inline data, or in several pieces, of which some are empty.
fn pieces(env: &Env) -> Result<()> {
    let options = options().cap(|cap| cap.send_sge = 4);
    let (a, b) = (RawSide::with(&env.a, options)?, RawSide::new(&env.b)?);
    b.flow(&[experiments(b.station)])?;
    let frame = plain(a.station, b.station.mac, 60, 3);
    a.send_with(&frame, flags::INLINE)?;
    b.expect(&frame)?;
    let frame = plain(a.station, b.station.mac, 700, 4);
    let whole = a.put(&frame)?;
    let part = |from: u64, to: u64| vrnic_verbs::model::Sge {
        addr: whole.addr + from,
        length: (to - from) as u32,
        lkey: whole.lkey,
    };
    let parts = [part(0, 3), part(3, 3), part(3, 19), part(19, 700)];
    a.side.run(Side::request(Op::Send, 1, &parts), Status::Success)?;
    b.expect(&frame)?;
    Ok(())
}

/// A chain of frames, of which the last one is signaled, arrives in order.
fn many(env: &Env) -> Result<()> {
    const COUNT: usize = 60;
    let (a, b) = (RawSide::new(&env.a)?, RawSide::new(&env.b)?);
    b.flow(&[experiments(b.station)])?;
    for round in 0..4 {
        let frames: Vec<_> = (0..COUNT)
            .map(|n| plain(a.station, b.station.mac, 64 + n, (round + n) as u8))
            .collect();
        let all = a.put(&frames.concat())?;
        let mut at = 0;
        let mut requests: Vec<SendWr> = Vec::new();
        for frame in &frames {
            let piece =
                vrnic_verbs::model::Sge { addr: all.addr + at, length: frame.len() as u32, ..all };
            requests.push(SendWr { flags: 0, ..Side::request(Op::Send, 5, &[piece]) });
            at += frame.len() as u64;
        }
        if let Some(last) = requests.last_mut() {
            last.flags = flags::SIGNALED;
        }
        a.side.post(&requests)?;
        a.side.expect_sent(5, Status::Success)?;
        for frame in &frames {
            b.expect(frame)?;
        }
    }
    Ok(())
}

/// The kernel at the other end receives a datagram that was composed by hand, if the device has
/// computed its checksums. It drops one with wrong checksums.
///
/// Shows: raw: checksums that the other guest's kernel checks
fn kernel_receives(env: &Env) -> Result<()> {
    let (a, agent) = (RawSide::new(&env.a)?, &env.b.agent);
    let (to, socket) = (Station::of(&env.b)?, env.b.agent.open_udp()?);
    let packet = Packet::udp(a.station, to, [4000, socket.port]);
    for (payload, seed) in [(&b"even"[..], 1u8), (b"odd", 2), (&[0xa5; 1400], 3)] {
        let bare = packet.bare(payload);
        a.send(&bare)?;
        a.send_with(&bare, CHECKSUMS)?;
        let found = agent.receive_udp(socket.socket, TIMEOUT_MS)?;
        ensure!(found.as_deref() == Some(payload), "datagram {seed}: {found:x?}");
        let next = agent.receive_udp(socket.socket, QUIET_MS)?;
        ensure!(next.is_none(), "a datagram without checksums came: {next:x?}");
        // A program may compute them itself.
        a.send(&packet.checked(payload))?;
        let found = agent.receive_udp(socket.socket, TIMEOUT_MS)?;
        ensure!(found.as_deref() == Some(payload), "datagram {seed}: {found:x?}");
    }
    Ok(())
}

/// The completion of a frame tells whether its checksums are right.
fn checked(env: &Env) -> Result<()> {
    let (a, b) = (RawSide::new(&env.a)?, RawSide::new(&env.b)?);
    b.flow(&udp_port(4001))?;
    let packet = Packet::udp(a.station, b.station, [4000, 4001]);
    let right = packet.checked(b"some payload");
    ensure!(b_received(&a, &b, &right, 0)?, "right checksums");
    let mut wrong = right.clone();
    wrong[frame::ETHERNET + 10] ^= 1;
    ensure!(!b_received(&a, &b, &wrong, 0)?, "a wrong checksum of IP");
    let mut wrong = right.clone();
    *wrong.last_mut().context("a frame")? ^= 1;
    ensure!(!b_received(&a, &b, &wrong, 0)?, "a wrong checksum of UDP");
    let bare = packet.bare(b"some payload");
    a.send_with(&bare, CHECKSUMS)?;
    let wc = b.expect(&right)?;
    ensure!(wc.checksums, "the device's own checksums");
    Ok(())
}

/// Sends a frame, which must arrive as it is. Returns whether its checksums were found right.
fn b_received(a: &RawSide, b: &RawSide, frame: &[u8], more: u32) -> Result<bool> {
    a.send_with(frame, more)?;
    Ok(b.expect(frame)?.checksums)
}

/// A large TCP segment arrives as frames whose sequence numbers, lengths, flags and checksums fit.
///
/// Shows: raw: large TCP segments
fn large_segments(env: &Env) -> Result<()> {
    const MSS: u16 = 1400;
    let a = RawSide::with(&env.a, Options { max_headers: HEADERS as u16, ..options() })?;
    let b = RawSide::new(&env.b)?;
    let ip = Ipv4::default();
    let (value, mask) =
        (Ports { destination: 4002, source: 0 }, Ports { destination: u16::MAX, source: 0 });
    b.flow(&[Spec::ipv4_addresses(ip, ip), Spec::tcp(value, mask)])?;
    let packet =
        Packet { protocol: frame::PROTOCOL_TCP, ..Packet::udp(a.station, b.station, [4000, 4002]) };
    let headers = packet.bare(&[]);
    ensure!(headers.len() == HEADERS);
    for length in [1, 1400, 1401, 40_000, 65_536 - HEADERS] {
        let payload: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let data = a.put(&payload)?;
        let request =
            SendWr { headers: headers.clone(), mss: MSS, ..Side::request(Op::Tso, 9, &[data]) };
        let wc = a.side.run(request, Status::Success)?;
        ensure!(wc.opcode == wc_opcode::TSO, "opcode {}", wc.opcode);
        for (index, piece) in payload.chunks(MSS.into()).enumerate() {
            let (frame, wc) = b.receive()?;
            let at = index * usize::from(MSS);
            check_segment(&frame, at, piece, at + piece.len() == length)
                .with_context(|| format!("byte {at} of {length}"))?;
            ensure!(wc.checksums, "the completion says that the checksums are wrong");
        }
    }
    b.expect_nothing()
}

/// Checks a frame of a large TCP segment: `payload` from byte `at` on.
fn check_segment(frame: &[u8], at: usize, payload: &[u8], is_last: bool) -> Result<()> {
    ensure!(frame.len() == HEADERS + payload.len(), "{} bytes", frame.len());
    ensure!(frame[HEADERS..] == *payload, "another payload");
    let length = u16::from_be_bytes([frame[16], frame[17]]);
    ensure!(usize::from(length) == frame.len() - frame::ETHERNET, "length {length} of IP");
    let sequence = u32::from_be_bytes([frame[38], frame[39], frame[40], frame[41]]);
    ensure!(sequence as usize == 1000 + at, "sequence number {sequence}");
    // FIN and PSH are only for the last frame.
    let wanted = if is_last { 0x19 } else { 0x10 };
    ensure!(frame[47] == wanted, "flags {:#x}", frame[47]);
    ensure!(checksums_are_right(frame), "checksums of {frame:x?}");
    Ok(())
}

/// A frame is at least a header of Ethernet, and at most as long as the adapter takes it.
fn lengths(env: &Env) -> Result<()> {
    for length in [13, LONGEST + 1] {
        let a = RawSide::new(&env.a)?;
        let data = a.put(&vec![0x11; length as usize])?;
        a.side.run(Side::request(Op::Send, 1, &[data]), Status::LocLenErr)?;
        a.side.expect_state(State::Sqe)?;
    }
    Ok(())
}

/// A frame that is too long for the next receive is dropped, and the receive stays.
fn too_short(env: &Env) -> Result<()> {
    let a = RawSide::new(&env.a)?;
    let b = Side::new(&env.b, &options())?;
    ready(&b)?;
    let to = Station::of(&env.b)?;
    let attr = FlowAttr { specs: vec![experiments(to)], ..FlowAttr::default() };
    env.b.agent.create_flow(b.qp, attr)?;
    let target = b.region(100, 0)?;
    b.post_recv(3, &[target.sge()])?;
    a.send(&plain(a.station, to.mac, 101, 1))?;
    let frame = plain(a.station, to.mac, 100, 2);
    a.send(&frame)?;
    let wc = b.expect_received(3, Status::Success)?;
    ensure!(wc.byte_len == 100, "{wc:?}");
    ensure!(env.b.agent.read(target.buffer, 0, 100)? == frame, "another frame");
    // Without a receive, frames are dropped.
    a.send(&frame)?;
    b.expect_quiet(QUIET_MS)
}

fn states(env: &Env) -> Result<()> {
    let side = Side::new(&env.a, &options())?;
    let attr = QpAttr { port: 1, ..QpAttr::default() };
    let invalid = Errno::INVAL;
    let to = |state, mask: u32| side.modify(state, &attr, mask | mask::STATE);
    expect_errno("Init without a port", to(State::Init, 0), invalid)?;
    expect_errno("Init with a key", to(State::Init, mask::PORT | mask::PKEY_INDEX), invalid)?;
    expect_errno("to RTR at once", to(State::Rtr, mask::PORT), invalid)?;
    to(State::Init, mask::PORT)?;
    expect_errno("to RTS at once", to(State::Rts, 0), invalid)?;
    to(State::Rtr, 0)?;
    let refused = side.try_post(&[Side::request(Op::Send, 1, &[])])?.refused;
    ensure!(refused.is_some_and(|why| why.errno == Some(invalid.raw_os_error())), "a send in RTR");
    expect_errno("RTS with a PSN", to(State::Rts, mask::SQ_PSN), invalid)?;
    to(State::Rts, 0)?;
    side.expect_state(State::Rts)?;
    let queried = side.query()?;
    ensure!(queried.port == 1 && queried.cap == side.cap, "{queried:?}, not {:?}", side.cap);
    // Work requests in the queues are flushed.
    let target = side.region(2000, 0)?;
    side.post_recv(8, &[target.sge()])?;
    to(State::Err, 0)?;
    side.expect_received(8, Status::WrFlushErr)?;
    to(State::Reset, 0)?;
    ready(&side)
}

/// Operations that raw packets do not have, and flags that others do not have, are refused.
fn operations(env: &Env) -> Result<()> {
    let invalid = Errno::INVAL.raw_os_error();
    let a = RawSide::new(&env.a)?;
    for op in [Op::Write, Op::Read, Op::FetchAdd, Op::CmpSwp, Op::SendInv] {
        let data = a.put(&[0; 64])?;
        let refused = a.side.try_post(&[Side::request(op, 1, &[data])])?.refused;
        ensure!(refused.is_some(), "{op:?} was accepted");
    }
    // The queue pair was created without room for headers.
    let request = SendWr { headers: vec![0; HEADERS], mss: 1000, ..Side::request(Op::Tso, 1, &[]) };
    let refused = a.side.try_post(std::slice::from_ref(&request))?.refused;
    let missing = Errno::OPNOTSUPP.raw_os_error();
    ensure!(refused.as_ref().is_some_and(|why| why.errno == Some(missing)), "{refused:?}");
    let other = RawSide::with(&env.a, Options { max_headers: HEADERS as u16 - 1, ..options() })?;
    let refused = other.side.try_post(&[request])?.refused;
    ensure!(refused.as_ref().is_some_and(|why| why.errno == Some(invalid)), "{refused:?}");
    let connected = Side::new(&env.a, &Options { max_headers: 60, ..Options::default() });
    ensure!(connected.is_err(), "a connection with large TCP segments");
    Ok(())
}

/// Processes need the right to use raw packets (CAP_NET_RAW), both for QPs and for flows.
fn without_right(env: &Env) -> Result<()> {
    let end = env.another_a()?;
    let before = RawSide::new(&end)?;
    end.agent.renounce_raw_packets()?;
    let attr = FlowAttr { specs: vec![experiments(before.station)], ..FlowAttr::default() };
    expect_errno("a flow", end.agent.create_flow(before.side.qp, attr), Errno::PERM)?;
    let created = Side::new(&end, &options());
    let Err(error) = created else { anyhow::bail!("a QP of raw packets was created") };
    ensure!(format!("{error:#}").contains("os error 1"), "{error:#}");
    Ok(())
}
