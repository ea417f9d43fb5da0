//! Eight senders and one receiver: the shape of the figures in the DCQCN paper.

use std::time::Duration;

use vrnic_fabric::charts::{self, Named};
use vrnic_fabric::scenario::XOFF;
use vrnic_fabric::{Scenario, run};
use vrnic_packet::Rate;

const SENDERS: usize = 8;
/// The goodput of a link of 40 Gbit/s with packets of 1024 bytes of payload.
const LINE: f64 = 4e10 * 1024.0 / 1082.0;
/// The depth above which all packets are marked, and what arrives until the senders know of it.
const MARKED: u64 = 200_000 + 50_000;

fn incast() -> Scenario {
    Scenario::incast(SENDERS)
}

/// Shows: roce: DCQCN keeps queues short and rates equal
#[test]
fn with_dcqcn_the_queue_stays_near_the_marks_and_senders_get_equal_shares() {
    let outcome = run(&incast().with_dcqcn().with_pfc());
    assert_eq!((outcome.drops, outcome.resent), (0, 0));
    assert!(outcome.fairness() > 0.9, "{}: {:?}", outcome.fairness(), outcome.goodput());
    assert!(outcome.depth(0.99) < MARKED, "{}", outcome.depth(0.99));
    assert!(outcome.depth(0.5) > 5_000, "the link is never idle: {}", outcome.depth(0.5));
    assert!(outcome.total() > 0.95 * LINE, "{}", outcome.total());
    let counters = outcome.port.expect("counters");
    assert!(counters.marks > 100 && outcome.notified > 100, "{counters:?}");
}

#[test]
fn without_dcqcn_the_queue_is_full_and_pfc_pauses() {
    let outcome = run(&incast().with_pfc());
    assert_eq!((outcome.drops, outcome.resent), (0, 0), "PFC keeps class 3 without loss");
    assert!(outcome.depth(0.5) > 4 * u64::from(XOFF), "{}", outcome.depth(0.5));
    // Each sender sends an eighth of the time.
    let paused = outcome.paused.iter().min().expect("senders");
    assert!(*paused > Duration::from_millis(30), "{:?}", outcome.paused);
    assert!(outcome.total() > 0.97 * LINE, "{}", outcome.total());
}

#[test]
fn without_both_packets_are_dropped() {
    let outcome = run(&incast());
    assert!(outcome.drops > 100 && outcome.resent > 100, "{}", outcome.drops);
    assert!(outcome.paused.iter().all(Duration::is_zero));
}

#[test]
fn with_dcqcn_senders_are_hardly_paused() {
    let alone = run(&incast().with_pfc());
    let both = run(&incast().with_dcqcn().with_pfc());
    let paused = |of: &[Duration]| of.iter().sum::<Duration>();
    assert!(paused(&both.paused) * 20 < paused(&alone.paused), "{:?}", both.paused);
}

/// Shows: network: PFC pauses a class and no other
#[test]
fn a_slow_receiver_pauses_only_its_class() {
    let slow = Scenario {
        bystanders: true,
        slow_receiver: Some(Rate::nearest(1_000_000_000)),
        // More than the receiver and the switch hold before the sender is paused.
        window: 512,
        ..Scenario::incast(1).with_pfc()
    };
    let outcome = run(&slow);
    assert_eq!(outcome.drops, 0);
    assert!(outcome.paused[0] > slow.span / 2, "{:?}", outcome.paused);
    assert_eq!(outcome.paused_other[0], Duration::ZERO);
    let goodput = outcome.goodput();
    assert!((0.85e9..0.96e9).contains(&goodput[0]), "{goodput:?}");
    assert!(goodput[1] > 30e9, "the other class has the rest of the link: {goodput:?}");
}

#[test]
fn a_scenario_has_the_same_outcome_each_time() {
    let short = |seed| Scenario {
        span: Duration::from_millis(5),
        seed,
        ..incast().with_dcqcn().with_pfc()
    };
    let outcome = run(&short(3));
    assert_eq!(outcome, run(&short(3)));
    assert_ne!(outcome, run(&short(4)));
    let named = [Named { name: "DCQCN", outcome: &outcome }];
    let svg = charts::depths("A queue", &named) + &charts::rates("Rates", &outcome);
    assert_eq!(svg.matches("<polyline").count(), 1 + SENDERS);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}
