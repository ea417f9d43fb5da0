//! Tests of the end of TCP connections of QPs, as drivers see it.
//!
//! Shows: iwarp

use std::time::Duration;

use vrnic_abi::admin::Opcode as Admin;
use vrnic_abi::connection::{Connection, ConnectionFlags, ConnectionStatus, Ending, Stage};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::ethernet::Frame;
use vrnic_packet::MacAddr;
use vrnic_simlink::{Fate, Faults};
use vrnic_tcp::SeqNum;
use vrnic_tcp::wire::frame::{self, Frame as TcpFrame, HEADROOM};
use vrnic_tcp::wire::{Flags, Header, Options};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{Setup, TO_RTS, attributes};
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::cable::Cable;

pub(crate) const MS: u64 = 1_000_000;

/// Returns two endpoints with an open connection.
pub(crate) fn connected(cable: &Cable) -> (Endpoint, Endpoint) {
    let (a, b) = (Endpoint::new(&cable.ga, Setup::default()), other(cable));
    stream::connect_pair(&a, &b);
    cable.run_until(|| [&a, &b].iter().all(|end| stage(end) == Stage::Open));
    (a, b)
}

pub(crate) fn other(cable: &Cable) -> Endpoint {
    Endpoint::new(&cable.gb, Setup::default())
}

/// Gives an endpoint its end of a connection, changed by `tune`.
pub(crate) fn open(end: &Endpoint, number: usize, peer: [u8; 6], tune: impl Fn(&mut Connection)) {
    end.guest.take_through(end.qpn, attributes(peer, 0), &TO_RTS[..1]);
    let mut connection = stream::connection(number, [end.guest.mac(), peer], stream::MSS);
    tune(&mut connection);
    end.guest.open_connection(end.qpn, &connection).expect("OPEN_CONNECTION");
}

pub(crate) fn query(end: &Endpoint) -> ConnectionStatus {
    end.guest.query_connection(end.qpn).expect("QUERY_CONNECTION")
}

pub(crate) fn stage(end: &Endpoint) -> Stage {
    Stage::from_raw(query(end).stage).expect("a stage")
}

pub(crate) fn ending(end: &Endpoint) -> Ending {
    Ending::from_raw(query(end).ending).expect("an ending")
}

/// Lets both ends work until the connection of `end` has reached a stage.
pub(crate) fn reach(cable: &Cable, end: &Endpoint, to: Stage) {
    cable.run_until(|| stage(end) as u8 >= to as u8);
    assert_eq!(stage(end), to, "{:?}", ending(end));
}

/// Moves the clock by this time.
pub(crate) fn pass(cable: &Cable, time: u64) {
    let end = cable.now() + time;
    cable.run_until(|| cable.now() >= end);
}

/// Drops all frames in both directions, or none.
pub(crate) fn lose(cable: &Cable, all: bool) {
    for link in &cable.links {
        let fate = if all { Fate::Drop } else { Fate::Pass };
        link.borrow_mut().rule(move |_| fate);
    }
}

/// Returns the number of events about a connection that the driver of an endpoint got.
pub(crate) fn connection_events(end: &Endpoint) -> usize {
    let events = end.guest.drain_events();
    events.iter().filter(|event| **event == (Kind::ConnectionChanged, end.qpn)).count()
}

/// Returns the frame in which the responder of [`stream::connection`] answers with `payload`.
pub(crate) fn reply(cable: &Cable, payload: &[u8]) -> Vec<u8> {
    first_segment(cable, 1, payload)
}

/// Returns the frame in which an end of [`stream::connection`] sends its first bytes: 0 is the
/// initiator, whose request has been sent, 1 is the responder.
pub(crate) fn first_segment(cable: &Cable, number: usize, payload: &[u8]) -> Vec<u8> {
    let macs = [cable.ga.mac(), cable.gb.mac()];
    let [sender, receiver] = [number, 1 - number]
        .map(|end| stream::connection(end, [macs[end], macs[1 - end]], stream::MSS));
    let header = Header {
        seq: SeqNum(receiver.receive_next.get()),
        ack: SeqNum(sender.receive_next.get()),
        flags: Flags::ACK,
        window: 1000,
        options: Options::default(),
    };
    frame_of(&sender, &header, payload)
}

/// Returns the frame in which the sending end of a connection sends a segment.
pub(crate) fn frame_of(sender: &Connection, header: &Header, payload: &[u8]) -> Vec<u8> {
    let address = |ip: [u8; 16], port: u16| {
        let [a, b, c, d, ..] = ip;
        ([a, b, c, d], port).into()
    };
    let path = frame::Path {
        to: MacAddr(sender.dmac),
        from: MacAddr(sender.smac),
        vlan: None,
        source: address(sender.local, sender.local_port.get()),
        destination: address(sender.remote, sender.remote_port.get()),
        traffic_class: 0,
        hop_limit: 64,
    };
    let mut buffer = vec![0; HEADROOM];
    buffer.extend(payload);
    let range = frame::build(&path, 1, header, &mut buffer, payload.len()).expect("room");
    buffer[range].to_vec()
}

#[test]
fn a_graceful_end_lets_posted_messages_arrive() {
    let cable = Cable::new(5, Faults::default());
    let (mut a, mut b) = connected(&cable);
    let write = Wr::new(Opcode::Write, &[a.sge(0, 60_000)]).to(b.buffer, b.key);
    a.fill(0, &[7; 60_000]);
    (0..12).for_each(|_| a.post_send(&write));
    a.post_recv(1, &[]);
    b.post_recv(1, &[]);
    a.set_state(State::Sqd);
    let mut done = Vec::new();
    cable.run_until(|| {
        done.extend(a.send_cq.poll());
        done.len() == 12
    });
    assert!(done.iter().all(|done| status(done) == Status::Success));
    reach(&cable, &b, Stage::Gone);
    assert_eq!((ending(&b), b.state()), (Ending::Graceful, State::Err));
    reach(&cable, &a, Stage::Closed);
    assert_eq!((ending(&a), a.state()), (Ending::Graceful, State::Err));
    assert_eq!(b.bytes(0, 60_000), [7; 60_000]);
    // Requests that are posted later are flushed, and so are the receives.
    a.post_send(&write);
    for end in [&mut a, &mut b] {
        let mut flushed = None;
        cable.run_until(|| {
            flushed = flushed.or_else(|| end.recv_cq.poll());
            flushed.is_some()
        });
        assert_eq!(status(&flushed.expect("a flush")), Status::WrFlushErr);
    }
    pass(&cable, MS);
    assert_eq!(a.send_cq.poll().as_ref().map(status), Some(Status::WrFlushErr));
    assert!(connection_events(&a) >= 2 && connection_events(&b) >= 2);
    // For a minute, the adapter answers late segments.
    reach(&cable, &a, Stage::Gone);
    let others = a.guest.drain_events().into_iter().chain(b.guest.drain_events());
    assert!(others.into_iter().all(|(kind, _)| kind == Kind::ConnectionChanged));
}

#[test]
fn ends_that_close_at_once_both_end_gracefully() {
    let cable = Cable::new(6, Faults::default());
    let (mut a, mut b) = connected(&cable);
    a.set_state(State::Sqd);
    b.set_state(State::Sqd);
    for end in [&a, &b] {
        reach(&cable, end, Stage::Closed);
        assert_eq!(ending(end), Ending::Graceful);
    }
}

#[test]
fn a_graceful_end_survives_losses() {
    for seed in 0..20 {
        let cable = Cable::new(100 + seed, Faults::default());
        let (mut a, mut b) = connected(&cable);
        let write = Wr::new(Opcode::Write, &[a.sge(0, 100)]).to(b.buffer, b.key);
        assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success);
        for link in &cable.links {
            link.borrow_mut().faults(Faults { drop: 300_000, ..Faults::default() });
        }
        b.post_recv(1, &[]);
        a.set_state(State::Sqd);
        cable.run_until(|| [&a, &b].iter().all(|end| stage(end) as u8 >= Stage::Closed as u8));
        // All of the last acknowledgements may be lost.
        for end in [&a, &b] {
            assert!(matches!(ending(end), Ending::Graceful | Ending::TimedOut | Ending::Reset));
        }
        assert!(ending(&a) == Ending::Graceful || ending(&b) == Ending::Graceful, "{seed}");
    }
}

#[test]
fn the_end_is_sent_again_by_a_qp_in_error() {
    let cable = Cable::new(7, Faults::default());
    let (mut a, mut b) = connected(&cable);
    let write = Wr::new(Opcode::Write, &[b.sge(0, 100)]).to(a.buffer, a.key);
    assert_eq!(status(&cable.complete(&mut b, &write)), Status::Success);
    pass(&cable, 100 * MS);
    // The FIN of the peer arrives. For a while, the answers to it are lost.
    cable.links[1].borrow_mut().rule(|_| Fate::Drop);
    a.set_state(State::Sqd);
    reach(&cable, &b, Stage::Closing);
    assert_eq!((b.state(), ending(&b)), (State::Err, Ending::None));
    pass(&cable, 100 * MS);
    assert_eq!((stage(&a), stage(&b)), (Stage::Open, Stage::Closing));
    lose(&cable, false);
    reach(&cable, &b, Stage::Gone);
    reach(&cable, &a, Stage::Closed);
    assert_eq!((ending(&a), ending(&b)), (Ending::Graceful, Ending::Graceful));
}

#[test]
fn a_close_that_the_peer_does_not_answer_is_a_reset() {
    let cable = Cable::new(8, Faults::default());
    let (mut a, b) = connected(&cable);
    lose(&cable, true);
    a.set_state(State::Sqd);
    let start = cable.now();
    reach(&cable, &a, Stage::Gone);
    assert_eq!((ending(&a), a.state()), (Ending::TimedOut, State::Err));
    assert!((4900..5100).contains(&((cable.now() - start) / MS)));
    assert_eq!(stage(&b), Stage::Open);
}

/// Shows: iwarp: keepalive: an idle connection ends if its peer answers no probe
#[test]
fn an_idle_connection_ends_when_its_peer_answers_no_probe() {
    const IDLE: u64 = 5_000 * MS;
    let cable = Cable::new(20, Faults::default());
    let guests = [&cable.ga, &cable.gb];
    guests.iter().for_each(|it| it.adapter.set_keepalive(Some(Duration::from_nanos(IDLE))));
    let (a, b) = connected(&cable);
    pass(&cable, 1000 * MS);
    let sent = || guests.map(|guest| guest.stats().tx_pkts.get());
    let before = sent();
    pass(&cable, 12 * IDLE);
    for (guest, before) in guests.iter().zip(before) {
        let stats = guest.stats();
        assert!((12..=24).contains(&(stats.tx_pkts.get() - before)), "probes and answers");
        assert_eq!((stats.tx_terminates.get(), stats.rx_terminates.get()), (0, 0));
    }
    assert_eq!([stage(&a), stage(&b)], [Stage::Open; 2]);
    let events = [&a, &b].map(connection_events);
    assert!(events.iter().all(|count| *count > 0));
    lose(&cable, true);
    let cut = cable.now();
    for end in [&a, &b] {
        reach(&cable, end, Stage::Gone);
        assert_eq!((ending(end), end.state()), (Ending::TimedOut, State::Err));
        assert_eq!(connection_events(end), 1);
    }
    assert!((9 * IDLE..=10 * IDLE).contains(&(cable.now() - cut)));
}

#[test]
fn a_program_that_ends_its_qp_resets_the_peer() {
    for (seed, state) in [(9, State::Err), (10, State::Reset)] {
        let cable = Cable::new(seed, Faults::default());
        let (mut a, mut b) = connected(&cable);
        b.post_recv(1, &[]);
        a.set_state(state);
        if state == State::Err {
            reach(&cable, &a, Stage::Gone);
            assert_eq!(ending(&a), Ending::Local);
        } else {
            assert!(
                a.guest.query_connection(a.qpn).is_err(),
                "the adapter still knows the connection"
            );
        }
        reach(&cable, &b, Stage::Gone);
        assert_eq!((ending(&b), b.state()), (Ending::Reset, State::Err));
    }
}

#[test]
fn a_qp_that_is_destroyed_resets_the_peer() {
    let cable = Cable::new(11, Faults::default());
    let (a, b) = connected(&cable);
    a.guest.on_object(Admin::DestroyQp, a.qpn).expect("DESTROY_QP");
    reach(&cable, &b, Stage::Gone);
    assert_eq!(ending(&b), Ending::Reset);
}

#[test]
fn an_adapter_that_is_reset_resets_the_peers() {
    let cable = Cable::new(12, Faults::default());
    let (_a, b) = connected(&cable);
    cable.ga.adapter.reset();
    reach(&cable, &b, Stage::Gone);
    assert_eq!(ending(&b), Ending::Reset);
}

#[test]
fn the_driver_can_abort_a_connection_that_it_closes() {
    let cable = Cable::new(13, Faults::default());
    let (mut a, b) = connected(&cable);
    lose(&cable, true);
    a.set_state(State::Sqd);
    pass(&cable, MS);
    assert_eq!(stage(&a), Stage::Open);
    a.set_state(State::Err);
    reach(&cable, &a, Stage::Gone);
    assert_eq!((ending(&a), stage(&b)), (Ending::Local, Stage::Open));
}

#[test]
fn a_terminate_ends_both_ends() {
    let cable = Cable::new(14, Faults::default());
    let (mut a, mut b) = connected(&cable);
    b.post_recv(1, &[]);
    let write = Wr::new(Opcode::Write, &[a.sge(0, 5000)]).to(b.buffer, b.key ^ 1);
    assert_eq!(status(&cable.complete(&mut a, &write)), Status::RemAccessErr);
    reach(&cable, &a, Stage::Gone);
    assert_eq!((ending(&a), ending(&b)), (Ending::TerminateReceived, Ending::TerminateSent));
    cable.run_until(|| stage(&b) == Stage::Gone);
    let kinds = |end: &Endpoint| end.guest.drain_events().iter().map(|event| event.0).collect();
    let (at_a, at_b): (Vec<_>, Vec<_>) = (kinds(&a), kinds(&b));
    let count = |end: &Endpoint| {
        let stats = end.guest.stats();
        (stats.tx_terminates.get(), stats.rx_terminates.get())
    };
    assert_eq!((count(&a), count(&b)), ((0, 1), (1, 0)));
    assert!(at_a.contains(&Kind::QpFatal) && at_b.contains(&Kind::QpAccessError), "{at_b:?}");
}

#[test]
fn a_peer_that_closes_while_messages_are_outstanding_ends_them() {
    let cable = Cable::new(15, Faults::default());
    let (mut a, mut b) = connected(&cable);
    cable.links[1].borrow_mut().rule(|_| Fate::Drop);
    b.post_send(&Wr::new(Opcode::Send, &[b.sge(0, 100)]));
    pass(&cable, MS);
    a.set_state(State::Sqd);
    cable.run_until(|| stage(&b) as u8 >= Stage::Closed as u8);
    assert_eq!((ending(&b), b.state()), (Ending::Abortive, State::Err));
    cable.run_until(|| stage(&b) == Stage::Gone);
    assert_eq!(b.send_cq.poll().as_ref().map(status), Some(Status::WrFlushErr));
}

#[test]
fn a_connection_that_is_over_leaves_its_addresses() {
    let cable = Cable::new(16, Faults::default());
    let (mut a, _b) = connected(&cable);
    let again = Endpoint::new(&cable.ga, Setup::default());
    a.set_state(State::Err);
    reach(&cable, &a, Stage::Gone);
    open(&again, 0, cable.gb.mac(), |_| {});
    assert_eq!((stage(&a), stage(&again)), (Stage::Gone, Stage::Opening));
}

#[test]
fn no_frame_follows_the_end() {
    let cable = Cable::new(17, Faults::default());
    let (mut a, _b) = connected(&cable);
    a.set_state(State::Err);
    reach(&cable, &a, Stage::Gone);
    let late = reply(&cable, b"late");
    assert!(TcpFrame::parse(&late).is_ok_and(|parsed| parsed.is_some()));
    // The late frame goes to the guest's network card.
    assert!(cable.ga.adapter.offer(Frame::new(late)).other().is_some());
}

/// Shows: iwarp
#[test]
fn a_waiting_segment_does_not_reach_the_next_owner_of_the_number() {
    let cable = Cable::new(20, Faults::default());
    let mac = cable.ga.mac();
    let (first, mut next) = (other(&cable), other(&cable));
    open(&first, 1, mac, |_| {});
    // No message has these bytes, so a connection that gets them ends.
    let segment = first_segment(&cable, 0, &[0; 40]);
    assert!(cable.gb.adapter.offer(Frame::new(segment)).other().is_none());
    let destroy = |qpn| cable.gb.on_object(Admin::DestroyQp, qpn).expect("DESTROY_QP");
    destroy(first.qpn);
    while next.qpn != first.qpn {
        destroy(next.qpn);
        next.set_qp(&next.params());
    }
    open(&next, 1, mac, |connection| connection.remote_port = 4001.into());
    pass(&cable, MS);
    assert_eq!(ending(&next), Ending::None);
}

/// Shows: iwarp
#[test]
fn frames_of_a_connection_never_reach_the_guest() {
    let cable = Cable::new(18, Faults::default());
    let (a, _b) = connected(&cable);
    let good = reply(&cable, b"late");
    // The offset of an IPv4 fragment, the protocol, the port of the sender.
    let (place, protocol, port) = (21, 23, 35);
    let changed = |changes: &[(usize, u8)]| {
        let mut frame = good.clone();
        changes.iter().for_each(|(at, value)| frame[*at] = *value);
        frame
    };
    let offer = |frame: &[u8]| cable.ga.adapter.offer(Frame::new(frame.to_vec())).other().is_some();
    let sends = |frame: &[u8]| {
        let mut back = frame.to_vec();
        back[26..34].rotate_left(4);
        back[34..38].rotate_left(2);
        !cable.ga.adapter.has_taken_over(&back)
    };
    for (changes, passes) in [
        (&[][..], false),
        // A wrong checksum, and a fragment without ports.
        (&[(good.len() - 1, 0)], false),
        (&[(place, 1)], false),
        (&[(place, 1), (port, 1)], false),
        (&[(port, 1)], true),
        (&[(place, 1), (protocol, 17)], true),
        (&[(place, 1), (29, 77)], true),
    ] {
        let frame = changed(changes);
        assert_eq!((offer(&frame), sends(&frame)), (passes, passes), "{changes:?}");
    }
    let to_a_group = changed(&[(0, good[0] | 1)]);
    assert!(offer(&to_a_group), "a frame to a group reached a connection");
    cable.run_until(|| cable.ga.adapter.has_frame_room());
    assert_eq!(stage(&a), Stage::Open);
}

/// Returns the frame of a TCP segment from `peer` to `local` with the ports of
/// [`stream::connection`], after this many IPv6 headers with destination options.
fn behind_options(peer: [u8; 16], local: [u8; 16], count: usize) -> Vec<u8> {
    let (tcp, options) = (6, 60);
    let first = if count == 0 { tcp } else { options };
    let mut frame = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, first, 64]].concat();
    frame.extend([peer, local].concat());
    for left in (0..count).rev() {
        frame.extend([if left == 0 { tcp } else { options }, 0, 1, 4, 0, 0, 0, 0]);
    }
    for port in [5000_u16, 4000] {
        frame.extend(port.to_be_bytes());
    }
    frame.extend([0; 16]);
    frame
}

#[test]
fn segments_behind_extension_headers_never_reach_the_guest() {
    let cable = Cable::new(19, Faults::default());
    let a = Endpoint::new(&cable.ga, Setup::default());
    let address = |last| std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last).octets();
    let (local, peer) = (address(1), address(2));
    open(&a, 0, cable.gb.mac(), |connection| {
        connection.flags |= ConnectionFlags::IPV6.bits();
        (connection.local, connection.remote) = (local, peer);
    });
    let passes = |peer, count| {
        let frame = behind_options(peer, local, count);
        cable.ga.adapter.offer(Frame::new(frame)).other().is_some()
    };
    for count in [0, 1, 8, 9, 20] {
        assert!(!passes(peer, count), "{count} headers");
        assert!(passes(address(3), count), "{count} headers, from another host");
    }
}
