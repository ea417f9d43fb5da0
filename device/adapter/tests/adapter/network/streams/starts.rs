//! Tests of the start of TCP connections of QPs, as drivers see it.
//!
//! Shows: iwarp

use vrnic_abi::connection::{Ending, Stage};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::ethernet::Frame;
use vrnic_iwarp::mpa::start;
use vrnic_iwarp::wire::start::Start;
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::cable::Cable;

use crate::network::streams::ends::{
    MS, connected, connection_events, ending, lose, open, other, pass, query, reach, reply, stage,
};

#[test]
fn both_drivers_learn_that_a_connection_is_open() {
    let cable = Cable::new(1, Faults::default());
    let (a, b) = (Endpoint::new(&cable.ga, Setup::default()), other(&cable));
    assert!(a.guest.query_connection(a.qpn).is_err(), "no connection exists yet");
    open(&a, 0, cable.gb.mac(), |_| {});
    assert_eq!((stage(&a), connection_events(&a)), (Stage::Opening, 0));
    open(&b, 1, cable.ga.mac(), |connection| {
        (connection.ird, connection.ord) = (4.into(), 8.into());
        connection.private_len = 5.into();
        connection.private[..5].copy_from_slice(b"hello");
    });
    // The responder waits for the first message.
    assert_eq!(stage(&b), Stage::Opening);
    reach(&cable, &a, Stage::Open);
    reach(&cable, &b, Stage::Open);
    let (at_a, at_b) = (query(&a), query(&b));
    assert_eq!((at_a.was_open, at_a.ird.get(), at_a.ord.get()), (1, 16, 4));
    assert_eq!((at_b.was_open, at_b.ird.get(), at_b.ord.get()), (1, 4, 8));
    assert_eq!(&at_a.private[..usize::from(at_a.private_len.get())], b"hello");
    assert_eq!((ending(&a), ending(&b)), (Ending::None, Ending::None));
    let record = cable.ga.adapter.qp_records(a.qpn, 1).items[0];
    assert_eq!((record.connection, record.dmac), (Stage::Open as u8, cable.gb.mac()));
    assert_eq!((connection_events(&a), connection_events(&b)), (1, 1));
}

/// siw misses messages that arrive while it accepts the connection. An empty message makes it check
/// again.
///
/// Shows: iwarp: a silent peer: the initiator sends an empty message, and gives up in the end
#[test]
fn an_initiator_nudges_a_peer_that_is_silent() {
    let cable = Cable::new(1, Faults::default());
    let (a, b) = connected(&cable);
    let sent = |end: &Endpoint| end.guest.stats().tx_pkts.get();
    pass(&cable, 5 * MS);
    let before = (sent(&a), sent(&b));
    pass(&cable, 1000 * MS);
    // Each of them is acknowledged.
    assert_eq!((sent(&a) - before.0, sent(&b) - before.1), (3, 3));
    pass(&cable, 2000 * MS);
    assert_eq!(sent(&a) - before.0, 3);
    assert_eq!((stage(&a), stage(&b)), (Stage::Open, Stage::Open));
    assert_eq!((connection_events(&a), connection_events(&b)), (1, 1));
}

#[test]
fn an_initiator_does_not_nudge_a_peer_that_has_sent() {
    let cable = Cable::new(1, Faults::default());
    let (mut a, mut b) = connected(&cable);
    a.post_recv(1, &[a.sge(0, 8)]);
    let send = Wr::new(Opcode::Send, &[b.sge(0, 8)]);
    assert_eq!(status(&cable.complete(&mut b, &send)), Status::Success);
    pass(&cable, 5 * MS);
    let before = a.guest.stats().tx_pkts.get();
    pass(&cable, 1000 * MS);
    assert_eq!(a.guest.stats().tx_pkts.get(), before);
}

#[test]
fn a_rejected_initiator_has_the_private_data() {
    let cable = Cable::new(2, Faults::default());
    let a = Endpoint::new(&cable.ga, Setup::default());
    open(&a, 0, cable.gb.mac(), |_| {});
    pass(&cable, MS);
    let request = stream::connection(1, [cable.gb.mac(), cable.ga.mac()], stream::MSS);
    let request = &request.request[..usize::from(request.request_len.get())];
    let request = Start::parse(request).expect("a request");
    let reject = start::reject(&request, b"no thanks");
    assert!(cable.ga.adapter.offer(Frame::new(reply(&cable, reject.octets()))).other().is_none());
    reach(&cable, &a, Stage::Gone);
    let status = query(&a);
    assert_eq!((ending(&a), status.was_open), (Ending::Rejected, 0));
    assert_eq!(&status.private[..usize::from(status.private_len.get())], b"no thanks");
    assert_eq!(a.state(), State::Err);
    // The program has not connected by verbs of the QP, so it gets no events of the QP.
    assert!(a.guest.drain_events().iter().all(|(kind, _)| *kind == Kind::ConnectionChanged));
}

#[test]
fn a_malformed_reply_is_refused() {
    let cable = Cable::new(3, Faults::default());
    let a = Endpoint::new(&cable.ga, Setup::default());
    open(&a, 0, cable.gb.mac(), |_| {});
    pass(&cable, MS);
    let _taken = cable.ga.adapter.offer(Frame::new(reply(&cable, b"HTTP/1.1 400 Bad Request")));
    reach(&cable, &a, Stage::Gone);
    assert_eq!((ending(&a), query(&a).was_open), (Ending::Refused, 0));
}

#[test]
fn a_silent_peer_is_given_up() {
    let cable = Cable::new(4, Faults::default());
    lose(&cable, true);
    for (number, seconds) in [(0, 10), (1, 5)] {
        let guest = [&cable.ga, &cable.gb][number];
        let end = Endpoint::new(guest, Setup::default());
        let start = cable.now();
        open(&end, number, [&cable.gb, &cable.ga][number].mac(), |_| {});
        pass(&cable, seconds * 1000 * MS - MS);
        assert_eq!(stage(&end), Stage::Opening);
        reach(&cable, &end, Stage::Gone);
        assert_eq!((ending(&end), query(&end).was_open), (Ending::TimedOut, 0));
        assert!(cable.now() - start < (seconds * 1000 + 10) * MS);
    }
}

/// The reset arrives while the kernel still has the connection.
#[test]
fn a_peer_that_is_gone_before_the_responder_takes_over_is_given_up() {
    let cable = Cable::new(1, Faults::default());
    let (mut a, b) = (Endpoint::new(&cable.ga, Setup::default()), other(&cable));
    open(&a, 0, cable.gb.mac(), |_| {});
    pass(&cable, MS);
    a.set_state(State::Err);
    pass(&cable, MS);
    open(&b, 1, cable.ga.mac(), |_| {});
    reach(&cable, &b, Stage::Gone);
    assert_eq!((b.state(), ending(&b), query(&b).was_open), (State::Err, Ending::TimedOut, 0));
}
