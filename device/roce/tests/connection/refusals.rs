//! Requests that violate the protocol, and responders that are not ready.
//!
//! Shows: roce

use vrnic_packet::Nanos;
use vrnic_roce::requester::{Outcome, Rejected, Work};
use vrnic_roce::wire::headers::{AtomicEth, Feth, Reth};
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::{Body, Head, Nak, Packet, Part, Request, Response, Rkey, SendEnd, Syndrome};
use vrnic_roce::{Discard, Psn};
use vrnic_simlink::Fate;

use crate::host::{BASE, Host, KEY, RECEIVE, parsed, remote, work};
use crate::pair::{Options, Pair};

const SINK: u64 = BASE + (768 << 10);

/// Sends requests with consecutive numbers to a responder. Returns the number and the syndrome of
/// its last acknowledgement.
fn answer(pair: &mut Pair, requests: &[(Request, usize)]) -> Option<(u32, Syndrome)> {
    let peer = pair.hosts[1].qpn;
    for (at, (request, length)) in requests.iter().enumerate() {
        let psn = Psn::new(0xff_fff0).plus(at as u32);
        let mut head = Head::new(Transport::Rc, peer, psn);
        head.ack_request = true;
        let frame = pair.hosts[0].build(&head, &Body::Request(*request), &vec![7; *length]);
        pair.links[0].send(pair.now, &frame);
    }
    let last = std::rc::Rc::new(std::cell::Cell::new(None));
    let seen = std::rc::Rc::clone(&last);
    pair.links[1].rule(move |frame| {
        let packet = parsed(frame);
        if let Body::Response(Response::Acknowledge(aeth)) = packet.body {
            let ahead = packet.head.psn.since(Psn::new(0xff_fff0));
            seen.set(Some((ahead, aeth.syndrome)));
        }
        Fate::Drop
    });
    pair.run_for(100_000);
    last.get()
}

fn reth(length: u32) -> Reth {
    Reth { addr: BASE + (256 << 10), key: KEY, length }
}

const FIRST: Request = Request::Send(Part::First(()));
const MIDDLE: Request = Request::Send(Part::Middle);
const LAST: Request = Request::Send(Part::Last(SendEnd::Plain));
const ONLY: Request = Request::Send(Part::Only((), SendEnd::Plain));

fn write_first(length: u32) -> Request {
    Request::Write(Part::First(reth(length)))
}

const WRITE_LAST: Request = Request::Write(Part::Last(None));

/// The last packet of each of these requests violates a rule: the responder sends a NAK "invalid
/// request", and the connection ends.
#[test]
fn requests_out_of_place_or_of_wrong_length_are_refused() {
    let atomic = AtomicEth { addr: BASE + 4, key: KEY, ..AtomicEth::default() };
    let cases: &[&[(Request, usize)]] = &[
        &[(MIDDLE, 1024)],
        &[(LAST, 5)],
        &[(FIRST, 1024), (FIRST, 1024)],
        &[(FIRST, 1024), (ONLY, 5)],
        &[(FIRST, 1024), (WRITE_LAST, 5)],
        &[(FIRST, 1024), (Request::Read(reth(5)), 0)],
        &[(FIRST, 1023)],
        &[(FIRST, 1025)],
        &[(FIRST, 1024), (MIDDLE, 1000)],
        &[(FIRST, 1024), (LAST, 0)],
        &[(FIRST, 1024), (LAST, 1025)],
        &[(ONLY, 1025)],
        &[(WRITE_LAST, 5)],
        &[(write_first(2000), 1024), (LAST, 976)],
        &[(write_first(2000), 1024), (WRITE_LAST, 975)],
        &[(write_first(2000), 1024), (WRITE_LAST, 977)],
        &[(write_first(1000), 1024)],
        &[(write_first((1 << 31) + 1), 1024)],
        &[(Request::Write(Part::Only(reth(6), None)), 5)],
        &[(Request::Write(Part::Only(reth(4), None)), 5)],
        &[(Request::Read(reth((1 << 31) + 1)), 0)],
        &[(Request::FetchAdd(atomic), 0)],
        &[(Request::CompareSwap(atomic), 0)],
        // No placement, or bits without a meaning.
        &[(Request::Flush(Feth(0), reth(8)), 0)],
        &[(Request::Flush(Feth(1 | 2 << 4), reth(8)), 0)],
        &[(Request::Flush(Feth(1 | 1 << 2), reth(8)), 0)],
        &[(FIRST, 1024), (Request::Flush(Feth(1), reth(8)), 0)],
        &[(Request::AtomicWrite(Reth { addr: BASE + 4, ..reth(8) }), 8)],
        &[(Request::AtomicWrite(reth(4)), 8)],
        &[(Request::AtomicWrite(reth(16)), 8)],
    ];
    for requests in cases {
        let mut pair = Pair::new(1, Options::default());
        pair.hosts[1].post_receive();
        let at = requests.len() as u32 - 1;
        let refused = Some((at, Syndrome::Nak(Nak::InvalidRequest)));
        assert_eq!(answer(&mut pair, requests), refused, "{requests:?}");
        assert_eq!(pair.hosts[1].failed, Some(Nak::InvalidRequest));
        assert_eq!(answer(&mut pair, &[(ONLY, 5)]), None, "nothing is answered any more");
        let counters = pair.hosts[1].responder().counters();
        assert_eq!(counters.discards.of(Discard::State), 1);
    }
}

#[test]
fn requests_of_every_legal_length_are_accepted() {
    let cases: &[&[(Request, usize)]] = &[
        &[(ONLY, 0)],
        &[(ONLY, 1024)],
        &[(FIRST, 1024), (MIDDLE, 1024), (LAST, 1)],
        &[(FIRST, 1024), (LAST, 1024)],
        &[(write_first(2048), 1024), (WRITE_LAST, 1024)],
        &[(Request::Write(Part::Only(reth(0), None)), 0)],
        // Without bytes, the key and the address have no meaning (C9-88).
        &[(Request::Write(Part::Only(Reth { key: Rkey(9), ..reth(0) }, None)), 0)],
    ];
    for requests in cases {
        let mut pair = Pair::new(1, Options::default());
        pair.hosts[1].post_receive();
        let at = requests.len() as u32 - 1;
        let Some((psn, Syndrome::Ack(_))) = answer(&mut pair, requests) else {
            panic!("{requests:?}");
        };
        assert_eq!((psn, pair.hosts[1].failed), (at, None), "{requests:?}");
    }
}

#[test]
fn refusals_reach_the_work_request_and_end_the_queue() {
    let strange = vrnic_roce::requester::Remote { key: Rkey(9), ..remote(0) };
    let outside = remote(1 << 20);
    let cases = [
        (Work::Write(strange, None), 5000, Outcome::RemoteAccess),
        (Work::Write(outside, None), 50, Outcome::RemoteAccess),
        (Work::Read(strange), 5000, Outcome::RemoteAccess),
        (Work::FetchAdd { word: strange, add: 1 }, 8, Outcome::RemoteAccess),
        (Work::AtomicWrite(strange), 8, Outcome::RemoteAccess),
        (Work::Flush(Feth(Feth::GLOBAL), strange), 50, Outcome::RemoteAccess),
        (Work::Send(SendEnd::Plain), RECEIVE + 1, Outcome::RemoteInvalidRequest),
    ];
    for (bad, length, outcome) in cases {
        let mut pair = Pair::new(1, Options::default());
        pair.hosts[1].post_receive();
        for id in [1, 3, 4] {
            pair.hosts[0].post(work(id, Work::Write(remote(256 << 10), None), 3000), BASE);
            if id == 1 {
                pair.hosts[0].post(work(2, bad, length), SINK);
            }
        }
        pair.run([4, 0]);
        let outcomes: Vec<_> = pair.hosts[0].completions.iter().map(|done| done.outcome).collect();
        let flushed = Outcome::Flushed;
        assert_eq!(outcomes, [Outcome::Success, outcome, flushed, flushed], "{bad:?}");
        let rejected = pair.hosts[0].requester.push(work(5, bad, length));
        assert_eq!(rejected, Err(Rejected::Failed));
    }
}

/// A packet is kept whose number then turns out to belong to a READ's answer. It is dropped.
#[test]
fn a_packet_within_the_numbers_of_a_read_is_not_kept() {
    let mut pair = Pair::new(1, Options { hold: 255, ..Options::default() });
    let (peer, first) = (&mut pair.hosts[1], Psn::new(0xff_fff0));
    for (at, request) in [(2, ONLY), (0, Request::Read(reth(5000))), (5, ONLY)] {
        peer.post_receive();
        let head = Head::new(Transport::Rc, peer.qpn, first.plus(at));
        let packet = Packet { head, body: Body::Request(request), payload: &[] };
        let frame = |host: &Host| host.build(&packet.head, &packet.body, &[]);
        peer.packet(Nanos::default(), &packet, &frame);
    }
    assert_eq!(peer.responder().expected(), first.plus(6));
    peer.poll(Nanos::default(), |_| {});
    let counters = peer.responder().counters();
    assert_eq!((counters.held, counters.executed, counters.sequence_naks), (1, 2, 0));
}

#[test]
fn a_read_whose_memory_fails_later_is_refused_in_the_middle() {
    let mut pair = Pair::new(1, Options::default());
    pair.hosts[1].reads_fail = true;
    pair.hosts[0].post(work(1, Work::Read(remote(0)), 5000), SINK);
    pair.run([1, 0]);
    assert_eq!(pair.hosts[0].completions[0].outcome, Outcome::RemoteOperational);
    assert_eq!(pair.hosts[1].failed, Some(Nak::RemoteOperational));
}

#[test]
fn more_reads_than_agreed_are_refused() {
    let options = Options { max_rd_atomic: 3, max_dest_rd_atomic: 2, ..Options::default() };
    let mut pair = Pair::new(1, options);
    // All three arrive before any of them is answered.
    let mut sent = 0;
    pair.links[0].rule(move |_| {
        sent += 1;
        Fate::Delay(100_000 - 15 * sent)
    });
    for id in 0..3 {
        pair.hosts[0].post(work(id, Work::Read(remote(0)), 100), SINK);
    }
    pair.run([3, 0]);
    let outcomes: Vec<_> = pair.hosts[0].completions.iter().map(|done| done.outcome).collect();
    assert_eq!(outcomes, [Outcome::Success, Outcome::Success, Outcome::RemoteInvalidRequest]);

    let mut pair = Pair::new(1, Options { max_dest_rd_atomic: 0, ..Options::default() });
    pair.hosts[0].post(work(1, Work::Read(remote(0)), 100), SINK);
    pair.run([1, 0]);
    assert_eq!(pair.hosts[0].completions[0].outcome, Outcome::RemoteInvalidRequest);
}

#[test]
fn a_receive_that_comes_late_is_waited_for() {
    let mut pair = Pair::new(1, Options { rnr_retry: 6, ..Options::default() });
    pair.hosts[1].refill_after = Some(70_000);
    pair.hosts[0].post(work(1, Work::Send(SendEnd::Plain), 5000), BASE);
    pair.hosts[0].post(work(2, Work::Write(remote(256 << 10), Some([1; 4])), 5000), BASE);
    pair.run([2, 0]);
    assert_eq!(pair.hosts[0].completions[1].outcome, Outcome::Success);
    assert_eq!(pair.hosts[1].received.len(), 2);
    let counters = pair.hosts[0].requester.counters();
    assert!((1..=6).contains(&counters.not_ready), "{counters:?}");
    // The packets after the refused packet were dropped without an answer.
    let responder = pair.hosts[1].responder().counters();
    assert!(responder.discards.of(Discard::BehindNotReady) > 0);
    assert_eq!(responder.sequence_naks, 0);
}

#[test]
fn a_responder_that_is_never_ready_is_given_up() {
    let mut pair = Pair::new(1, Options { rnr_retry: 3, ..Options::default() });
    pair.hosts[1].refill_after = None;
    pair.hosts[0].post(work(1, Work::Send(SendEnd::Plain), 50), BASE);
    pair.run([1, 0]);
    assert_eq!(pair.hosts[0].completions[0].outcome, Outcome::RnrRetryExceeded);
    assert_eq!(pair.hosts[0].requester.counters().not_ready, 4);
}

/// The data of a WRITE with immediate data have been placed when its last packet finds no receive.
/// Only that packet is sent again.
#[test]
fn immediate_data_without_a_receive_send_the_last_packet_again() {
    let mut pair = Pair::new(1, Options::default());
    pair.hosts[1].refill_after = Some(50_000);
    pair.hosts[0].post(work(1, Work::Write(remote(256 << 10), Some([1; 4])), 5000), BASE);
    pair.run([1, 0]);
    let counters = pair.hosts[0].requester.counters();
    assert_eq!(counters.resent, counters.not_ready);
    assert_eq!(pair.hosts[1].responder().counters().executed, 5);
}

#[test]
fn a_paused_queue_finishes_what_it_has_begun() {
    let mut pair = Pair::new(1, Options { window: 4, ..Options::default() });
    pair.hosts[0].post(work(1, Work::Write(remote(256 << 10), None), 20_000), BASE);
    pair.hosts[0].post(work(2, Work::Write(remote(256 << 10), None), 50), BASE);
    pair.step();
    pair.hosts[0].requester.pause(true);
    pair.run([2, 0]);
    assert_eq!(pair.hosts[0].completions.len(), 1);
    assert!(pair.hosts[0].requester.is_quiet());
    pair.hosts[0].requester.pause(false);
    pair.step();
    pair.run([2, 0]);
    assert_eq!(pair.hosts[0].completions.len(), 2);
}

#[test]
fn a_fence_waits_for_reads() {
    let mut pair = Pair::new(1, Options::default());
    let sent = std::rc::Rc::new(std::cell::Cell::new(Vec::new()));
    let seen = std::rc::Rc::clone(&sent);
    pair.links[0].rule(move |frame| {
        let mut list = seen.take();
        list.push(matches!(parsed(frame).request(), Some(Request::Read(_))));
        seen.set(list);
        Fate::Pass
    });
    let host = &mut pair.hosts[0];
    host.post(work(1, Work::Read(remote(0)), 100), SINK);
    host.post(work(2, Work::Write(remote(256 << 10), None), 50), BASE);
    let fenced = work(3, Work::Write(remote(256 << 10), None), 50);
    host.post(vrnic_roce::requester::WorkRequest { fence: true, ..fenced }, BASE);
    pair.step();
    let before = sent.take();
    assert_eq!(before, [true, false], "the fenced one waits");
    pair.run([3, 0]);
    assert_eq!(sent.take(), [false]);
}

/// The requester cannot read its own memory: the request ends with a local error when the requests
/// before it have ended.
#[test]
fn a_local_fault_ends_its_request_in_order() {
    let mut pair = Pair::new(1, Options::default());
    for id in 1..4 {
        pair.hosts[0].post(work(id, Work::Write(remote(256 << 10), None), 3000), BASE);
    }
    pair.hosts[0].requester.refuse(2);
    // A request after a failed request is flushed, even if it has a fault of its own.
    pair.hosts[0].requester.refuse(3);
    pair.step();
    assert!(pair.hosts[0].completions.is_empty(), "the first is outstanding");
    pair.run([3, 0]);
    let outcomes: Vec<_> = pair.hosts[0].completions.iter().map(|done| done.outcome).collect();
    assert_eq!(outcomes, [Outcome::Success, Outcome::Local, Outcome::Flushed]);
    assert_eq!(pair.hosts[1].responder().counters().executed, 3);
}

#[test]
fn what_cannot_be_sent_is_rejected() {
    let mut pair = Pair::new(1, Options { transport: Transport::Uc, ..Options::default() });
    let requester = &mut pair.hosts[0].requester;
    let read = work(1, Work::Read(remote(0)), 5);
    assert_eq!(requester.push(read), Err(Rejected::Operation));
    let invalidate = work(1, Work::Send(SendEnd::Invalidate(KEY)), 5);
    assert_eq!(requester.push(invalidate), Err(Rejected::Operation));
    let long = work(1, Work::Send(SendEnd::Plain), (1 << 31) + 1);
    assert_eq!(requester.push(long), Err(Rejected::Length));
    for id in 0..256 {
        assert_eq!(requester.push(work(id, Work::Send(SendEnd::Plain), 5)), Ok(()));
    }
    assert_eq!(requester.push(work(256, Work::Send(SendEnd::Plain), 5)), Err(Rejected::Full));
    let mut pair = Pair::new(1, Options::default());
    let atomic = work(1, Work::FetchAdd { word: remote(0), add: 1 }, 4);
    assert_eq!(pair.hosts[0].requester.push(atomic), Err(Rejected::Length));
}
