//! The tests of the ratios.

use super::*;
use crate::plan::{SIZES, Test};
use crate::results::tests::sample;
use crate::results::{Bandwidth, Latency};

fn value(goals: &[Goal], name: &str) -> Option<f64> {
    goals.iter().find(|goal| goal.name == Some(name)).and_then(|goal| goal.value)
}

#[test]
fn ratios_are_of_this_run_and_absent_without_figures() {
    let goals = goals(&sample());
    let expected = [
        ("native_write64_latency_us", Some(0.25)),
        ("native_write64_mops", None),
        ("guest_write64k_vs_memcpy", Some(0.8)),
        ("guest_write64k_vs_rxe", Some(500.0)),
        ("guest_rate8_vs_rxe", Some(25.0)),
        ("guest_rate8_vs_siw", None),
        ("guest_write_lat8_vs_relay", Some(1.125)),
        ("guest_write_lat8_siw_over_vrnic", Some(5.0)),
        ("guest_read_lat8_siw_over_vrnic", None),
    ];
    for (name, ratio) in expected {
        assert_eq!(value(&goals, name), ratio, "{name}");
    }
}

#[test]
fn packets_have_goals_of_their_own() {
    let mut results = Results { wire: true, ..sample() };
    let trunk = Subject::Messages(64 << 10, Native::Write, Way::Packets(Link::Trunk));
    let figures = [(trunk, 1.5), (Subject::Tcp, 2.0)];
    let figures = figures.map(|(subject, rate)| (Figure(subject, Quantity::Gigabytes), rate));
    results.native.as_mut().expect("a run").figures = figures.into();
    let goals = goals(&results);
    assert_eq!(value(&goals, "wire_write64k_trunk_vs_tcp"), Some(0.75));
    assert_eq!(value(&goals, "wire_guest_write64k_vs_rxe"), Some(500.0));
    assert_eq!(value(&goals, "wire_write64k_tap_vs_bare"), None);
    assert_eq!(value(&goals, "guest_write64k_vs_rxe"), None);
}

#[test]
fn iwarp_has_goals_of_its_own() {
    let mut results = Results { iwarp: true, ..sample() };
    let figures = [(Protocol::Iwarp, 0.5), (Protocol::Roce, 0.4)].map(|(protocol, median)| {
        (Figure(Subject::Latency(Way::OneDaemon(protocol)), Quantity::Median), median)
    });
    results.native.as_mut().expect("a run").figures = figures.into();
    results.latency.iter_mut().filter(|it| it.device == Device::Vrnic).for_each(|it| {
        it.device = Device::Iwarp;
    });
    let goals = goals(&results);
    assert_eq!(value(&goals, "iwarp_pair_latency_vs_roce"), Some(1.25));
    assert_eq!(value(&goals, "iwarp_guest_write_lat8_vs_siw"), Some(0.2));
    assert_eq!(value(&goals, "iwarp_guest_write64k_vs_siw"), None);
    for (device, rate) in [(Device::Mixed, 10.0), (Device::Siw, 20.0)] {
        let point = Bandwidth::new(device, Operation::Write, 64 << 10, rate, 0.0);
        results.bandwidth.push(point);
    }
    assert_eq!(value(&super::goals(&results), "iwarp_to_siw_write64k"), Some(0.5));
}

#[test]
fn an_aim_is_reached_or_not() {
    let goal = |aim, value| Goal { name: None, meaning: "", aim, value };
    assert!(goal(Aim::AtLeast(2.0), Some(2.0)).reached());
    assert!(!goal(Aim::AtLeast(2.0), Some(1.9)).reached());
    assert!(goal(Aim::AtMost(2.0), Some(1.9)).reached());
    assert!(!goal(Aim::AtMost(2.0), Some(2.1)).reached());
    assert!(!goal(Aim::AtMost(2.0), None).reached());
}

#[test]
fn the_least_of_several_needs_all_of_them() {
    let least = |goals: Vec<Goal>| {
        goals.into_iter().find(|goal| goal.meaning.starts_with("the least")).map(|g| g.value)
    };
    let mut results = sample();
    assert_eq!(least(goals(&results)), Some(None));
    for (operation, mib_s) in [(Operation::Write, 8000.0), (Operation::Read, 7000.0)] {
        for bytes in LARGE {
            let point = Bandwidth::new(Device::Vrnic, operation, bytes, mib_s, 0.1);
            results.bandwidth.insert(0, point);
            let memcpy = crate::host::Memcpy { operation, bytes, mib_s: 10_000.0 };
            results.memcpy.push(memcpy);
        }
    }
    assert_eq!(least(goals(&results)), Some(Some(0.7)));
}

/// Adds a figure of each test of each device that is measured first.
fn measure_quoted(results: &mut Results, devices: &[Device]) {
    for &device in devices {
        for test in Test::all(&SIZES).into_iter().filter(|test| test.is_quoted()) {
            match test {
                Test::Latency(operation) => {
                    let latency = Latency { device, operation, bytes: 8, typical_us: 2.0 };
                    results.latency.push(latency);
                }
                Test::Bandwidth(operation, bytes) => {
                    results.bandwidth.push(Bandwidth::new(device, operation, bytes, 10.0, 0.1));
                    let memcpy = crate::host::Memcpy { operation, bytes, mib_s: 20.0 };
                    results.memcpy.push(memcpy);
                }
            }
        }
    }
}

#[test]
fn the_tests_that_come_first_are_all_that_the_ratios_in_guests_need() {
    use Device::{Iwarp, Mixed, Rxe, Siw, Vrnic};
    let relay = crate::host::Relay { gear: "spin".into(), half_round_us: 1.0 };
    let mut results = Results { relay: vec![relay], ..Results::default() };
    measure_quoted(&mut results, &[Vrnic, Rxe, Siw]);
    assert!(guests(&results).iter().all(|goal| goal.value.is_some()));
    let wire = wire(&results).into_iter().filter(|goal| goal.meaning.starts_with("ib_"));
    assert!(wire.map(|goal| goal.value).all(|value| value.is_some()));
    measure_quoted(&mut results, &[Iwarp, Mixed]);
    let iwarp = iwarp_in_guests(&results).into_iter().chain(to_siw(&results));
    assert!(iwarp.map(|goal| goal.value).all(|value| value.is_some()));
}
