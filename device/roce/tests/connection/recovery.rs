//! Retransmission after losses; probes; congestion.
//!
//! Shows: roce

use std::cell::RefCell;
use std::rc::Rc;

use vrnic_packet::Nanos;
use vrnic_roce::requester::{Outcome, Recovery, Work};
use vrnic_roce::wire::{Body, Head, Packet};
use vrnic_simlink::{Fate, Faults};

use crate::host::{BASE, parsed, remote, work};
use crate::pair::{Options, Pair};

fn options(hold: u32) -> Options {
    Options { hold, recovery: Recovery::Leap, ..Options::default() }
}

/// Sends a WRITE of 100 packets in which each of the packets `lost` is lost once. Returns the
/// positions of the packets that were sent again.
fn resent(pair: &mut Pair, lost: &'static [u32]) -> Vec<u32> {
    let first = pair.hosts[0].requester.psn();
    let sent = Rc::new(RefCell::new(Vec::new()));
    let list = Rc::clone(&sent);
    pair.links[0].rule(move |frame| {
        let place = parsed(frame).head.psn.since(first);
        let again = list.borrow().contains(&place);
        list.borrow_mut().push(place);
        if lost.contains(&place) && !again { Fate::Drop } else { Fate::Pass }
    });
    let id = pair.hosts[0].completions.len();
    pair.hosts[0].post(work(id as u64, Work::Write(remote(256 << 10), None), 100 << 10), BASE);
    pair.run([id + 1, 0]);
    assert_eq!(pair.hosts[0].completions[id].outcome, Outcome::Success);
    let (from, length) = (256 << 10, 100 << 10);
    assert!(pair.hosts[1].memory[from..from + length] == pair.hosts[0].memory[..length]);
    let sent = sent.borrow();
    let mut seen = Vec::new();
    let mut again = Vec::new();
    for place in sent.iter() {
        if seen.contains(place) { again.push(*place) } else { seen.push(*place) }
    }
    again
}

#[test]
fn only_lost_packets_are_sent_again_to_a_peer_that_keeps_the_others() {
    let mut pair = Pair::new(1, options(255));
    assert_eq!(resent(&mut pair, &[10, 20, 21, 50]), [10, 20, 21, 50]);
    assert_eq!(resent(&mut pair, &[0, 98]), [0, 98], "it is remembered");
    assert_eq!(pair.hosts[0].requester.counters().timeouts, 0);
}

#[test]
fn everything_is_sent_again_to_a_peer_that_keeps_nothing() {
    let mut pair = Pair::new(1, options(0));
    let from = |first| (first..100).collect::<Vec<u32>>();
    assert_eq!(resent(&mut pair, &[10]), from(10), "one round trip is lost to find out");
    assert_eq!(resent(&mut pair, &[90]), from(90));
    assert_eq!(pair.hosts[0].requester.counters().timeouts, 0);
}

#[test]
fn a_lost_tail_is_found_by_a_probe() {
    for hold in [0, 255] {
        let mut pair = Pair::new(1, options(hold));
        // Measures the round trip first.
        assert!(resent(&mut pair, &[]).is_empty());
        let start = pair.now;
        resent(&mut pair, &[97, 98, 99]);
        let counters = pair.hosts[0].requester.counters();
        assert_eq!((counters.timeouts, counters.probes > 0), (0, true));
        assert!(pair.now - start < 4096 << 8, "before the time-out: {} ns", pair.now - start);
    }
}

/// The acknowledgement of a WRITE and the answer of the READ after it are lost. A probe for the
/// READ brings both, since the responder does not acknowledge the WRITE again by itself.
#[test]
fn a_lost_answer_behind_a_lost_acknowledgement_is_found_by_a_probe() {
    let mut pair = Pair::new(1, options(255));
    assert!(resent(&mut pair, &[]).is_empty());
    let (start, mut lost) = (pair.now, 0);
    pair.links[1].rule(move |_| {
        lost += 1;
        if lost <= 2 { Fate::Drop } else { Fate::Pass }
    });
    pair.hosts[0].post(work(1, Work::Write(remote(256 << 10), None), 10), BASE);
    pair.hosts[0].post(work(2, Work::Read(remote(0)), 10), BASE + (768 << 10));
    pair.run([3, 0]);
    let counters = pair.hosts[0].requester.counters();
    assert_eq!((counters.timeouts, counters.probes, counters.resent), (0, 1, 1));
    assert!(pair.now - start < 4096 << 8, "before the time-out: {} ns", pair.now - start);
}

#[test]
fn probes_do_not_prolong_the_time_out() {
    let mut pair = Pair::new(1, Options { retry_count: 2, ..options(255) });
    assert!(resent(&mut pair, &[]).is_empty());
    let start = pair.now;
    pair.links[0].rule(|_| Fate::Drop);
    pair.hosts[0].post(work(1, Work::Write(remote(256 << 10), None), 10), BASE);
    pair.run([2, 0]);
    assert_eq!(pair.hosts[0].completions[1].outcome, Outcome::RetryExceeded);
    let (time, timeout) = (pair.now - start, 4096 << 8);
    assert!((3 * timeout..3 * timeout + 1000).contains(&time), "{time} ns");
    assert_eq!(pair.hosts[0].requester.counters().probes, 2);
}

/// The answer of the first of eight READs loses a packet. All READs are requested again, and each
/// is answered again once.
#[test]
fn a_lost_answer_costs_each_read_once() {
    let mut pair = Pair::new(1, Options { max_rd_atomic: 8, max_dest_rd_atomic: 8, ..options(0) });
    let sent = Rc::new(RefCell::new(0));
    let count = Rc::clone(&sent);
    pair.links[1].rule(move |_| {
        *count.borrow_mut() += 1;
        if *count.borrow() == 2 { Fate::Drop } else { Fate::Pass }
    });
    for id in 0..8 {
        let sink = BASE + (768 << 10) + id * 4096;
        pair.hosts[0].post(work(id, Work::Read(remote(id * 4096)), 4096), sink);
    }
    pair.run([8, 0]);
    assert_eq!(pair.hosts[0].requester.counters().timeouts, 0);
    assert_eq!(pair.hosts[0].memory[768 << 10..800 << 10], pair.hosts[1].memory[..32 << 10]);
    assert!((33..64).contains(&*sent.borrow()), "{} packets for 32", sent.borrow());
}

/// Returns the number of packets with which 4 MiB are sent over a link that loses one packet in a
/// hundred.
fn cost(hold: u32, recovery: Recovery) -> u64 {
    let mut pair = Pair::new(3, Options { hold, recovery, ..Options::default() });
    pair.links[0].faults(Faults { drop: 10_000, ..Faults::default() });
    for id in 0..40 {
        pair.hosts[0].post(work(id, Work::Write(remote(256 << 10), None), 100 << 10), BASE);
    }
    pair.run([40, 0]);
    pair.hosts[0].requester.counters().sent
}

#[test]
fn leaping_costs_little_more_than_what_was_lost() {
    let leap = cost(255, Recovery::Leap);
    let back = cost(0, Recovery::GoBackN);
    assert!((4000..4200).contains(&leap), "{leap} packets for 4000");
    assert!(back > 4500, "{back} packets for 4000");
}

#[test]
fn notifications_make_the_window_smaller() {
    let mut pair = Pair::new(1, Options { congestion_control: true, ..Options::default() });
    let (head, body) = (Head::congestion(pair.hosts[0].qpn), Body::Congestion);
    let outstanding = |pair: &mut Pair| {
        let id = pair.hosts[0].completions.len() as u64;
        let before = pair.hosts[0].requester.counters().sent;
        pair.hosts[0].post(work(id, Work::Write(remote(256 << 10), None), 200 << 10), BASE);
        let now = Nanos(pair.now);
        let link = &mut pair.links[0];
        pair.hosts[0].poll(now, |frame| link.send(now.0, frame));
        let sent = pair.hosts[0].requester.counters().sent - before;
        pair.run([id as usize + 1, 0]);
        sent
    };
    assert_eq!(outstanding(&mut pair), 64, "it begins with 64 KiB");
    assert!(outstanding(&mut pair) > 64, "and grows");
    let packet = Packet { head, body, payload: &[] };
    for _ in 0..3 {
        pair.hosts[0].packet(Nanos(pair.now), &packet, &|_| unreachable!());
    }
    let counters = pair.hosts[0].requester.counters();
    assert_eq!((counters.notified, counters.notifications_ignored), (1, 2));
    assert!(outstanding(&mut pair) < 100, "it is smaller than the window of 128");
}
