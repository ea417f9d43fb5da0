//! Single faults, each with its consequences.
//!
//! Shows: roce

use std::cell::Cell;
use std::rc::Rc;

use vrnic_packet::Nanos;
use vrnic_roce::Discard;
use vrnic_roce::requester::{Outcome, Work};
use vrnic_roce::wire::headers::Feth;
use vrnic_roce::wire::{Body, Nak, Part, ReadPart, Request, Response, SendEnd, Syndrome};
use vrnic_simlink::Fate;

use crate::host::{BASE, Host, RECEIVE, parsed, remote, request, work};
use crate::pair::{Options, Pair};

/// The memory of READs at the requester.
const SINK: u64 = BASE + (768 << 10);

/// Applies a fate to the `nth` frame (from 0) that `is` selects.
fn nth(
    nth: usize,
    fate: Fate,
    is: impl Fn(&Body) -> bool + 'static,
) -> impl FnMut(&[u8]) -> Fate + 'static {
    let mut seen = 0;
    move |frame| {
        if !is(&parsed(frame).body) {
            return Fate::Pass;
        }
        seen += 1;
        if seen == nth + 1 { fate } else { Fate::Pass }
    }
}

/// Counts the frames that `is` selects.
fn count(pair: &mut Pair, from: usize, is: impl Fn(&Body) -> bool + 'static) -> Rc<Cell<u32>> {
    let counter = Rc::new(Cell::new(0));
    let count = Rc::clone(&counter);
    pair.links[from].rule(move |frame| {
        count.set(count.get() + u32::from(is(&parsed(frame).body)));
        Fate::Pass
    });
    counter
}

fn is_write(body: &Body) -> bool {
    matches!(body, Body::Request(Request::Write(_)))
}

fn is_ack(body: &Body) -> bool {
    let Body::Response(Response::Acknowledge(aeth)) = body else { return false };
    matches!(aeth.syndrome, Syndrome::Ack(_))
}

fn is_atomic_answer(body: &Body) -> bool {
    matches!(body, Body::Response(Response::Atomic(..)))
}

fn is_read_answer(body: &Body) -> bool {
    matches!(body, Body::Response(Response::Read(_)))
}

fn is_read_request(body: &Body) -> bool {
    matches!(body, Body::Request(Request::Read(_)))
}

fn write(id: u64, length: u32) -> vrnic_roce::requester::WorkRequest {
    work(id, Work::Write(remote(256 << 10), None), length)
}

fn pair() -> Pair {
    Pair::new(1, Options::default())
}

/// Posts and runs work requests. Checks that all have succeeded.
fn succeed(pair: &mut Pair, post: impl FnOnce(&mut Host) -> usize) {
    let posted = post(&mut pair.hosts[0]);
    pair.run([posted, 0]);
    let outcomes: Vec<_> = pair.hosts[0].completions.iter().map(|done| done.outcome).collect();
    assert_eq!(outcomes, vec![Outcome::Success; posted]);
}

#[test]
fn a_lost_packet_in_the_middle_of_a_write() {
    let mut pair = pair();
    pair.links[0].rule(nth(3, Fate::Drop, is_write));
    succeed(&mut pair, |host| {
        host.post(write(1, 10_000), BASE);
        1
    });
    let (requester, peer) = (*pair.hosts[0].requester.counters(), &mut pair.hosts[1]);
    assert_eq!((requester.sequence_naks, requester.timeouts), (1, 0));
    // Ten packets. The fourth and later ones were sent again, without a second FIRST.
    assert_eq!((requester.sent, requester.resent), (17, 7));
    let responder = peer.responder().counters();
    assert_eq!((responder.executed, responder.early, responder.sequence_naks), (10, 6, 1));
    let from = 256 << 10;
    assert_eq!(pair.hosts[1].memory[from..from + 10_000], pair.hosts[0].memory[..10_000]);
}

#[test]
fn a_lost_last_packet_waits_for_the_timer() {
    let mut pair = pair();
    pair.links[0].rule(nth(9, Fate::Drop, is_write));
    succeed(&mut pair, |host| {
        host.post(write(1, 10_000), BASE);
        1
    });
    let counters = pair.hosts[0].requester.counters();
    assert_eq!((counters.sequence_naks, counters.timeouts), (0, 1));
    assert!(pair.now > 4096 << 8, "the time-out of code 8");
}

#[test]
fn a_lost_acknowledgement_makes_duplicates() {
    let mut pair = pair();
    pair.links[1].rule(nth(0, Fate::Drop, is_ack));
    pair.hosts[1].post_receive();
    succeed(&mut pair, |host| {
        host.post(work(1, Work::Send(SendEnd::Imm([1, 2, 3, 4])), 5000), BASE);
        1
    });
    assert_eq!(pair.hosts[1].received.len(), 1, "executed once");
    let counters = pair.hosts[1].responder().counters();
    // The first and the last packet that were sent again asked for an acknowledgement.
    assert_eq!((counters.duplicates, counters.acks), (5, 3));
}

#[test]
fn one_acknowledgement_answers_a_batch() {
    let mut pair = pair();
    let acks = count(&mut pair, 1, is_ack);
    // The link delivers one frame at a time, so all frames are delayed to the same moment.
    let mut sent = 0;
    pair.links[0].rule(move |_| {
        sent += 1;
        Fate::Delay(100_000 - sent * 26)
    });
    succeed(&mut pair, |host| {
        for id in 0..20 {
            host.post(write(id, 50), BASE);
        }
        20
    });
    assert!(acks.get() < 20, "{} acknowledgements", acks.get());
}

/// "Ghost" acknowledgements: late ones, and acknowledgements of packets that were never sent.
#[test]
fn acknowledgements_of_nothing_are_dropped() {
    let mut pair = pair();
    pair.links[1].rule(nth(0, Fate::Duplicate, is_ack));
    succeed(&mut pair, |host| {
        host.post(write(1, 50), BASE);
        1
    });
    pair.run_for(100_000);
    let discards = pair.hosts[0].requester.counters().discards;
    assert_eq!((discards.of(Discard::StaleAnswer), discards.total()), (1, 1));

    pair.hosts[0].post(write(2, 50), BASE);
    let psn = pair.hosts[0].requester.psn();
    let mut forged = vec![];
    pair.links[0].rule(|_| Fate::Drop);
    pair.step();
    for ahead in [1, 2, 1000] {
        let aeth = vrnic_roce::wire::Aeth::ack(vrnic_roce::Msn::new(9));
        let head = vrnic_roce::wire::Head::new(
            vrnic_roce::wire::opcode::Transport::Rc,
            pair.hosts[0].qpn,
            psn.plus(ahead),
        );
        let body = Body::Response(Response::Acknowledge(aeth));
        forged.push(pair.hosts[1].build(&head, &body, &[]));
    }
    for frame in forged {
        pair.links[1].send(pair.now, &frame);
    }
    pair.run_for(100_000);
    let discards = pair.hosts[0].requester.counters().discards;
    assert_eq!(discards.of(Discard::UnsentAnswer), 3);
    assert_eq!(pair.hosts[0].completions.len(), 1, "the second is outstanding");
}

#[test]
fn a_lost_read_response_is_asked_for_from_there_on() {
    for lost in 0..10 {
        let mut pair = pair();
        pair.links[1].rule(nth(lost, Fate::Drop, is_read_answer));
        let requests = Rc::new(Cell::new(Vec::new()));
        let seen = Rc::clone(&requests);
        pair.links[0].rule(move |frame| {
            if let Some(Request::Read(reth)) = request(frame) {
                let mut list = seen.take();
                list.push((reth.addr - BASE, reth.length));
                seen.set(list);
            }
            Fate::Pass
        });
        succeed(&mut pair, |host| {
            host.post(work(1, Work::Read(remote(100)), 10_000), SINK);
            1
        });
        let offset = lost as u32 * 1024;
        assert_eq!(requests.take(), [(100, 10_000), (100 + u64::from(offset), 10_000 - offset)]);
        let (sink, source) = (768 << 10, 100);
        let [host, peer] = &pair.hosts;
        assert_eq!(host.memory[sink..sink + 10_000], peer.memory[source..source + 10_000]);
        // Only the loss of the last packet is found by the timer.
        let counters = host.requester.counters();
        let by_timer = u64::from(lost == 9);
        assert_eq!((counters.implied_naks, counters.timeouts), (1 - by_timer, by_timer));
    }
}

#[test]
fn a_lost_read_request_is_missed_by_the_next_request() {
    let mut pair = pair();
    pair.links[0].rule(nth(0, Fate::Drop, is_read_request));
    succeed(&mut pair, |host| {
        host.post(work(1, Work::Read(remote(0)), 3000), SINK);
        host.post(write(2, 50), BASE);
        2
    });
    let counters = pair.hosts[0].requester.counters();
    assert_eq!((counters.sequence_naks, counters.timeouts), (1, 0));
}

/// The acknowledgement of a WRITE after a READ shows that the READ's answer was lost. Only the READ
/// is sent again.
#[test]
fn an_acknowledgement_implies_that_a_read_has_lost_its_answer() {
    let mut pair = pair();
    pair.links[1].rule(nth(0, Fate::Drop, is_read_answer));
    succeed(&mut pair, |host| {
        host.post(work(1, Work::Read(remote(0)), 1000), SINK);
        for id in 2..10 {
            host.post(write(id, 50), BASE);
        }
        9
    });
    let counters = pair.hosts[0].requester.counters();
    assert_eq!((counters.implied_naks, counters.resent, counters.timeouts), (1, 1, 0));
    assert_eq!(pair.hosts[1].responder().counters().duplicates, 1);
}

/// The answer of a READ and the WRITE after it are lost. The responder reports the WRITE once,
/// before it answers the READ again, so the requester has to remember the report.
#[test]
fn a_nak_behind_a_lost_answer_is_not_forgotten() {
    // In the second case, another part of the answer shows that a part before the NAK is missing.
    for length in [1000, 3000] {
        let mut pair = pair();
        pair.links[1].rule(nth(0, Fate::Drop, is_read_answer));
        pair.links[0].rule(nth(2, Fate::Drop, is_write));
        succeed(&mut pair, |host| {
            host.post(work(1, Work::Read(remote(0)), length), SINK);
            for id in 2..10 {
                host.post(write(id, 50), BASE);
            }
            9
        });
        let counters = pair.hosts[0].requester.counters();
        assert_eq!((counters.implied_naks, counters.timeouts, counters.probes), (1, 0, 0));
    }
}

#[test]
fn an_atomic_whose_answer_is_lost_is_executed_once() {
    let mut pair = pair();
    pair.links[1].rule(nth(0, Fate::Drop, is_atomic_answer));
    let word = remote(192 << 10);
    pair.hosts[1].bytes(word.addr, 8).expect("a word").copy_from_slice(&40_u64.to_le_bytes());
    succeed(&mut pair, |host| {
        host.post(work(1, Work::FetchAdd { word, add: 2 }, 8), SINK);
        host.post(work(2, Work::CompareSwap { word, compare: 42, swap: 7 }, 8), SINK);
        2
    });
    assert_eq!(pair.hosts[0].old_values, [(1, 40), (2, 42)]);
    assert_eq!(pair.hosts[1].bytes(word.addr, 8).expect("a word"), 7_u64.to_le_bytes());
    let counters = pair.hosts[1].responder().counters();
    assert!(counters.duplicates > 0 && counters.executed == 2, "{counters:?}");
}

/// The answers of an ATOMIC WRITE and a FLUSH are lost. Both are sent again, with the bytes of the
/// ATOMIC WRITE, and are not executed again.
#[test]
fn an_atomic_write_and_a_flush_whose_answers_are_lost_are_executed_once() {
    let mut pair = pair();
    let mut lost = 0;
    pair.links[1].rule(move |frame| {
        lost += u32::from(is_read_answer(&parsed(frame).body));
        if lost <= 2 { Fate::Drop } else { Fate::Pass }
    });
    let writes = count(&mut pair, 0, |body| matches!(body, Body::Request(Request::AtomicWrite(_))));
    let word = remote(192 << 10);
    pair.hosts[0].bytes(BASE, 8).expect("a word").copy_from_slice(&40_u64.to_le_bytes());
    succeed(&mut pair, |host| {
        host.post(work(1, Work::AtomicWrite(word), 8), BASE);
        host.post(work(2, Work::Flush(Feth(Feth::GLOBAL), word), 8), 0);
        2
    });
    assert_eq!(pair.hosts[1].bytes(word.addr, 8).expect("a word"), 40_u64.to_le_bytes());
    assert_eq!((pair.hosts[1].executed_once, writes.get()), (2, 2));
    let counters = pair.hosts[1].responder().counters();
    assert!(counters.duplicates > 0 && counters.executed == 2, "{counters:?}");
}

/// No more of them are outstanding than `max_rd_atomic` says.
#[test]
fn atomic_writes_and_flushes_count_among_outstanding_reads() {
    let mut pair = Pair::new(1, Options { max_rd_atomic: 3, ..Options::default() });
    let requester = &mut pair.hosts[0].requester;
    for id in 0..8 {
        let flush = Work::Flush(Feth(Feth::GLOBAL), remote(0));
        let work = if id % 2 == 0 {
            work(id, Work::AtomicWrite(remote(0)), 8)
        } else {
            work(id, flush, 8)
        };
        requester.push(work).expect("room");
    }
    let sent: Vec<_> = std::iter::from_fn(|| requester.next(Nanos(0))).collect();
    assert_eq!(sent.iter().map(|sent| sent.range.len()).collect::<Vec<_>>(), [8, 0, 8]);
}

#[test]
fn doubled_packets_are_executed_once() {
    let mut pair = pair();
    pair.links[0].rule(|_| Fate::Duplicate);
    pair.links[1].rule(|_| Fate::Duplicate);
    let word = remote(192 << 10);
    pair.hosts[1].bytes(word.addr, 8).expect("a word").fill(0);
    for _ in 0..2 {
        pair.hosts[1].post_receive();
    }
    succeed(&mut pair, |host| {
        host.post(work(1, Work::Send(SendEnd::Plain), RECEIVE), BASE);
        host.post(work(2, Work::FetchAdd { word, add: 5 }, 8), SINK);
        host.post(work(3, Work::Read(remote(0)), 5000), SINK + 8);
        host.post(work(4, Work::Send(SendEnd::Plain), 0), BASE);
        4
    });
    assert_eq!(pair.hosts[1].received.len(), 2);
    assert_eq!(pair.hosts[1].bytes(word.addr, 8).expect("a word"), 5_u64.to_le_bytes());
}

#[test]
fn a_packet_that_was_overtaken_costs_one_nak() {
    let mut pair = Pair::new(1, Options { hold: 255, ..Options::default() });
    pair.links[0].rule(nth(3, Fate::Delay(1_000), is_write));
    succeed(&mut pair, |host| {
        host.post(write(1, 10_000), BASE);
        1
    });
    let counters = pair.hosts[1].responder().counters();
    assert_eq!((counters.executed, counters.sequence_naks), (10, 1));
}

/// A responder that keeps early packets executes them when the missing packet has arrived.
#[test]
fn held_packets_are_executed_in_order() {
    let mut pair = Pair::new(1, Options { hold: 255, ..Options::default() });
    pair.links[0].rule(nth(3, Fate::Drop, is_write));
    succeed(&mut pair, |host| {
        host.post(write(1, 10_000), BASE);
        1
    });
    let counters = pair.hosts[1].responder().counters();
    assert_eq!((counters.executed, counters.held), (10, 6));
    let from = 256 << 10;
    assert_eq!(pair.hosts[1].memory[from..from + 10_000], pair.hosts[0].memory[..10_000]);
}

#[test]
fn a_peer_that_is_gone_is_given_up_after_all_retries() {
    let mut pair = Pair::new(1, Options { retry_count: 3, ..Options::default() });
    pair.links[0].rule(|_| Fate::Drop);
    for id in 0..3 {
        pair.hosts[0].post(write(id, 50), BASE);
    }
    pair.run([3, 0]);
    let outcomes: Vec<_> = pair.hosts[0].completions.iter().map(|done| done.outcome).collect();
    assert_eq!(outcomes, [Outcome::RetryExceeded, Outcome::Flushed, Outcome::Flushed]);
    // The time-out after the first transmission counts, too.
    let timeout = 4096 << 8;
    assert!((4 * timeout..4 * timeout + 1000).contains(&pair.now), "{} ns", pair.now);
    assert_eq!(pair.hosts[0].requester.counters().sent, 4 * 3);
}

/// Answers that do not match the request.
#[test]
fn bad_answers_end_the_connection() {
    let aeth = vrnic_roce::wire::Aeth::ack(vrnic_roce::Msn::new(1));
    let nak = vrnic_roce::wire::Aeth { syndrome: Syndrome::Nak(Nak::RemoteAccess), ..aeth };
    let cases = [
        (Response::Atomic(aeth, 0), 0, Outcome::BadResponse),
        (Response::Read(ReadPart::Only(nak)), 1000, Outcome::BadResponse),
        (Response::Read(ReadPart::Only(aeth)), 1001, Outcome::LocalLength),
        (Response::Read(ReadPart::Only(aeth)), 999, Outcome::LocalLength),
        (Response::Read(ReadPart::Only(aeth)), 0, Outcome::LocalLength),
        (Response::Acknowledge(nak), 0, Outcome::RemoteAccess),
    ];
    for (response, length, outcome) in cases {
        let mut pair = pair();
        pair.links[0].rule(|_| Fate::Drop);
        pair.hosts[0].post(work(1, Work::Read(remote(0)), 1000), SINK);
        let before = pair.hosts[0].memory.clone();
        let psn = pair.hosts[0].requester.psn();
        pair.step();
        let transport = vrnic_roce::wire::opcode::Transport::Rc;
        let head = vrnic_roce::wire::Head::new(transport, pair.hosts[0].qpn, psn);
        let frame = pair.hosts[1].build(&head, &Body::Response(response), &vec![7; length]);
        pair.links[1].send(pair.now, &frame);
        pair.run([1, 0]);
        assert_eq!(pair.hosts[0].completions[0].outcome, outcome, "{response:?}");
        assert!(pair.hosts[0].memory == before, "nothing was placed: {response:?}");
    }
}

#[test]
fn the_first_packet_brings_the_address_and_the_last_the_immediate_data() {
    let mut pair = pair();
    let parts = Rc::new(Cell::new(Vec::new()));
    let seen = Rc::clone(&parts);
    pair.links[0].rule(move |frame| {
        if let Some(Request::Write(part)) = request(frame) {
            let mut list = seen.take();
            list.push((part, parsed(frame).head.solicited, parsed(frame).head.ack_request));
            seen.set(list);
        }
        Fate::Pass
    });
    pair.hosts[1].post_receive();
    succeed(&mut pair, |host| {
        let request = work(1, Work::Write(remote(256 << 10), Some([9; 4])), 2500);
        host.post(vrnic_roce::requester::WorkRequest { solicited: true, ..request }, BASE);
        1
    });
    let parts = parts.take();
    assert_eq!(parts.len(), 3);
    assert!(matches!(parts[0], (Part::First(reth), false, false) if reth.length == 2500));
    assert_eq!(parts[1], (Part::Middle, false, false));
    assert_eq!(parts[2], (Part::Last(Some([9; 4])), true, true));
}
