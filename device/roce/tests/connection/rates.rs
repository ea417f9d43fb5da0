//! The rate of a requester that is notified of congestion (DCQCN).

use std::collections::VecDeque;
use std::time::Duration;

use vrnic_packet::{Nanos, Rate};
use vrnic_roce::congestion::{Parameters, RateControl};
use vrnic_roce::requester::{Recovery, Requester, Work};
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::{Aeth, Body, Head, Packet, Qpn, Response};
use vrnic_roce::{Msn, Psn};

use crate::host::{remote, work};
use crate::pair::Options;

const LINE: u64 = 8_000_000_000;
/// The bytes of a packet that count: those of the payload and of the headers.
const BYTES: u64 = 1024 + 74;

fn requester(options: Options) -> Requester {
    let mut requester = options.requester(Qpn::new(0x12), 0);
    requester.push(work(0, Work::Write(remote(0), None), 1 << 30)).expect("room");
    requester
}

fn with_rate(window: u32) -> Requester {
    let mut requester = requester(Options { window, timeout: 0, ..Options::default() });
    let parameters = Parameters::of_paper(Rate::nearest(LINE));
    requester.set_rate_control(Some(RateControl::new(parameters).expect("parameters")));
    requester
}

fn notify(requester: &mut Requester, now: Nanos) {
    let head = Head::congestion(Qpn::new(0x12));
    let packet = Packet { head, body: Body::Congestion, payload: &[] };
    assert!(requester.receive(now, &packet).is_ok());
}

/// Sends until a time as early as possible, and returns the number of packets.
fn send(requester: &mut Requester, from: Nanos, until: Nanos) -> u64 {
    let (mut now, mut sent) = (from, 0);
    while now < until {
        while requester.next(now).is_some() {
            sent += 1;
        }
        let Some(next) = requester.deadline().filter(|at| *at < until) else { break };
        assert!(next > now, "a deadline is later");
        now = next;
        requester.expire(now);
    }
    sent
}

#[test]
fn without_notifications_only_the_window_counts() {
    let mut requester = with_rate(100);
    assert_eq!(send(&mut requester, Nanos(0), Nanos(1)), 100);
    assert_eq!(requester.numbers().congestion_rate, Some(LINE));
    assert_eq!(requester.numbers().congestion_window, None, "a rate replaces the window");
}

/// Shows: roce: notifications of congestion reduce the rate of the sender
#[test]
fn a_notified_requester_sends_at_half_the_rate_and_does_not_retry() {
    let mut requester = with_rate(100_000);
    notify(&mut requester, Nanos(1000));
    let (from, until) = (Nanos(1000), Nanos(1000 + 50_000));
    let sent = send(&mut requester, from, until);
    // A byte takes 2 ns.
    let expected = 50_000 / 2 / BYTES;
    assert!((expected..expected + 6).contains(&sent), "{sent} packets instead of {expected}");
    let counters = requester.counters();
    assert_eq!((counters.notified, counters.timeouts, counters.resent), (1, 0, 0));
    notify(&mut requester, Nanos(52_000));
    let rate = requester.numbers().congestion_rate;
    notify(&mut requester, Nanos(52_001));
    assert_eq!(requester.numbers().congestion_rate, rate, "two in 4 µs are one");
    let counters = requester.counters();
    assert_eq!((counters.notified, counters.notifications_ignored), (3, 0));
}

/// The time from a packet to its acknowledgement.
const TRIP: Duration = Duration::from_micros(20);

fn acknowledge(requester: &mut Requester, now: Nanos, psn: Psn) {
    let body = Body::Response(Response::Acknowledge(Aeth::ack(Msn::new(0))));
    let head = Head::new(Transport::Rc, Qpn::new(0x12), psn);
    let _late = requester.receive(now, &Packet { head, body, payload: &[] });
}

/// Sends and acknowledges without losses from a time to another one, with notifications from
/// `notify_at` on that have this period. Returns the number of packets that did not ask for an
/// acknowledgement.
fn run(
    requester: &mut Requester,
    [from, until]: [Nanos; 2],
    mut notify_at: Nanos,
    period: Duration,
) -> u64 {
    let (mut now, mut silent) = (from, 0);
    let mut asked = VecDeque::new();
    while now < until {
        if notify_at <= now {
            notify(requester, now);
            notify_at = now.plus(period);
        }
        while let Some((_, psn)) = asked.pop_front_if(|(at, _)| *at <= now) {
            acknowledge(requester, now, psn);
        }
        while let Some(sent) = requester.next(now) {
            if sent.head.ack_request {
                asked.push_back((now.plus(TRIP), sent.head.psn));
            } else {
                silent += 1;
            }
        }
        let first = asked.front().map(|(at, _)| *at);
        let next = requester.deadline().into_iter().chain(first).chain([notify_at]).min();
        now = next.unwrap_or(until).max(Nanos(now.0 + 1));
        requester.expire(now);
    }
    silent
}

/// Returns a requester whose rate has this minimum.
fn with_lowest(lowest: u64, options: Options) -> Requester {
    let mut requester = requester(options);
    let parameters = Parameters::of_paper(Rate::nearest(LINE));
    let parameters = Parameters { min: Rate::nearest(lowest), ..parameters };
    requester.set_rate_control(Some(RateControl::new(parameters).expect("parameters")));
    requester
}

/// Returns the numbers of time-outs, packets that were sent again, and probes.
fn retries(requester: &Requester) -> [u64; 3] {
    let counters = requester.counters();
    [counters.timeouts, counters.resent, counters.probes]
}

/// Shows: roce: notifications of congestion reduce the rate of the sender
#[test]
fn a_requester_with_a_low_rate_neither_retries_nor_probes() {
    for recovery in [Recovery::GoBackN, Recovery::Leap] {
        for (window, timeout, divisor) in [(128, 8, 1000), (512, 8, 1000), (128, 8, 80)] {
            let options = Options { window, timeout, recovery, ..Options::default() };
            let mut requester = with_lowest(LINE / divisor, options);
            let period = Duration::from_micros(50);
            let times = [0, 10_000_000, 50_000_000].map(Nanos);
            let first = run(&mut requester, [times[0], times[1]], Nanos(100_000), period);
            let sent = requester.counters().sent;
            let later = run(&mut requester, [times[1], times[2]], times[1], period);
            assert!(first > 100, "packets at the rate of the link ask seldom: {first}");
            // A packet takes longer than the round trip.
            assert_eq!(later, 0);
            assert_eq!(retries(&requester), [0; 3], "{recovery:?}, {window}, {divisor}");
            assert!(requester.counters().sent > sent + 30);
        }
    }
}

#[test]
fn a_rate_that_falls_while_a_packet_waits_is_no_reason_to_retry() {
    for recovery in [Recovery::GoBackN, Recovery::Leap] {
        for start in 0..100 {
            let options = Options { recovery, ..Options::default() };
            let mut requester = with_lowest(LINE / 10_000, options);
            let period = Duration::from_micros(4);
            let times = [0, 30_000_000].map(Nanos);
            run(&mut requester, times, Nanos(100_000 + start * 200), period);
            assert_eq!(retries(&requester), [0; 3], "{recovery:?}, {start}");
        }
    }
}

#[test]
fn a_flood_of_notifications_slows_only_its_own_requester() {
    let [mut hit, mut other] = [with_rate(100_000), with_rate(100_000)];
    let mut now = Nanos(1000);
    let mut sent = [0_u64, 0];
    for _ in 0..1000 {
        notify(&mut hit, now);
        let until = Nanos(now.0 + 5_000);
        sent[0] += send(&mut hit, now, until);
        sent[1] += u64::from(other.next(now).is_some());
        now = until;
    }
    assert_eq!(sent[1], 1000);
    // 5 ms at a thousandth of the link, and the first burst.
    let lowest = 5_000_000 / 1000 / BYTES;
    assert!((1..lowest + 40).contains(&sent[0]), "{}", sent[0]);
    assert_eq!(hit.numbers().congestion_rate, Some(LINE / 1000));
}

#[test]
fn packets_that_are_not_sent_take_nothing_of_the_rate() {
    let mut requester = with_rate(100_000);
    notify(&mut requester, Nanos(1000));
    let mut now = Nanos(2000);
    // In 10 µs, the rate and the first burst are enough for 8 packets.
    for _ in 0..1000 {
        let transmit = requester.next(now).expect("a packet");
        requester.not_sent(&transmit);
        now.0 += 10;
        assert!(requester.stall(transmit.head.psn, now));
        requester.expire(now);
    }
    while requester.next(now).is_some() {}
    assert_eq!(requester.upcoming_bytes(now), None, "it waits for its turn");
    let at = requester.deadline().expect("a time");
    assert!(requester.upcoming_bytes(at).is_some());
}
