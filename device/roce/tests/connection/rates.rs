//! The rate of a requester that is notified of congestion (DCQCN).

use vrnic_packet::{Nanos, Rate};
use vrnic_roce::congestion::{Parameters, RateControl};
use vrnic_roce::requester::{Requester, Work};
use vrnic_roce::wire::{Body, Head, Packet, Qpn};

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
    notify(&mut requester, Nanos(52_001));
    assert_eq!(requester.counters().notifications_ignored, 1, "two in 4 µs are one");
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
    assert!(hit.numbers().congestion_rate.is_some_and(|rate| rate < LINE / 50));
}
