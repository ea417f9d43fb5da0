//! Strict classes, shares, rates.

use proptest::prelude::*;
use vrnic_lanes::{Class, Config, Lanes, Next, PauseFrame, PerClass, Service, Thresholds};
use vrnic_packet::{Nanos, Rate};

use crate::{Plain, SOURCE, at, class, lanes, plain, strict};

/// Sends frames of all classes for a time, while each class always has some. Returns the bytes of
/// each class.
fn busy(lanes: &mut Lanes<Plain>, len: impl Fn(Class) -> u32, span: u64) -> PerClass<u64> {
    let mut sent = PerClass::default();
    let mut now = Nanos(0);
    while now.0 < span {
        for class in Class::ALL {
            while lanes.waiting(class) < 4 {
                assert_eq!(lanes.push(class, plain(len(class), 0)), Ok(()));
            }
        }
        match lanes.pop(now) {
            Next::Frame(class, frame) => sent[class] += u64::from(frame.bytes),
            Next::Wait(at) => now = at,
            other => panic!("{other:?}"),
        }
    }
    sent
}

fn shares(shares: [u8; 8], rate: u64) -> Config {
    let mut config = Config { rate: Rate::new(rate), ..strict() };
    for class in Class::ALL {
        config.classes[class].service = match shares[usize::from(class.number())] {
            0 => Service::Strict,
            share => Service::Share(share),
        };
    }
    config
}

#[test]
fn frames_of_one_class_keep_their_order_and_higher_classes_overtake() {
    let mut lanes = lanes(strict());
    for number in 0..24 {
        let class = Class::of_bits(number as u8 % 3);
        assert_eq!(lanes.push(class, plain(100, number)), Ok(()));
    }
    let mut order = Vec::new();
    while let Next::Frame(_, frame) = lanes.pop(at(0)) {
        order.push(frame.number);
    }
    let expected = [2, 1, 0].into_iter().flat_map(|of| (0..24).filter(move |at| at % 3 == of));
    assert_eq!(order, expected.collect::<Vec<_>>());
    assert_eq!((lanes.pop(at(0)), lanes.is_empty()), (Next::Nothing, true));
}

/// Shows: network: shares and rates of classes
#[test]
fn a_strict_class_may_take_all_and_shares_divide_what_is_left() {
    let mut lanes = lanes(shares([60, 0, 20, 20, 0, 0, 0, 0], 1_000_000_000));
    let strict = class(7);
    for _ in 0..10 {
        assert_eq!(lanes.push(strict, plain(1000, 0)), Ok(()));
    }
    for of in [0, 2, 3].map(class) {
        for _ in 0..500 {
            assert_eq!(lanes.push(of, plain(1000, 0)), Ok(()));
        }
    }
    let (mut now, mut order) = (at(0), Vec::new());
    while order.len() < 510 {
        match lanes.pop(now) {
            Next::Frame(of, _) => order.push(of),
            Next::Wait(at) => now = at,
            other => panic!("{other:?}"),
        }
    }
    let (first, rest) = order.split_at(10);
    assert!(first.iter().all(|of| *of == strict));
    let counts = [0, 2, 3].map(|of| rest.iter().filter(|it| **it == class(of)).count());
    for (count, expected) in counts.into_iter().zip([300, 100, 100]) {
        assert!(count.abs_diff(expected) <= 4, "{counts:?}");
    }
}

#[test]
fn a_class_with_nothing_to_send_saves_nothing_for_later() {
    let mut lanes = lanes(shares([50, 50, 0, 0, 0, 0, 0, 0], 1_000_000_000));
    for _ in 0..500 {
        assert_eq!(lanes.push(class(0), plain(1000, 0)), Ok(()));
    }
    let mut now = at(0);
    let mut sent = [0_u32; 2];
    while sent[0] + sent[1] < 500 {
        // The other class comes late.
        if sent[0] > 200 && lanes.waiting(class(1)) < 4 {
            assert_eq!(lanes.push(class(1), plain(1000, 0)), Ok(()));
        }
        match lanes.pop(now) {
            Next::Frame(of, _) => sent[usize::from(of.number())] += 1,
            Next::Wait(at) => now = at,
            other => panic!("{other:?}"),
        }
    }
    let late = sent[0] - 201;
    assert!(late.abs_diff(sent[1]) <= 8, "half for each: {sent:?}");
}

/// Pauses class 3 for ten frames of others out of each twenty. Returns the bytes of each class.
fn paused_now_and_then(lens: [u32; 8], config: Config, frames: usize) -> PerClass<u64> {
    let mut lanes = lanes(config);
    let mut sent = PerClass::default();
    for nth in 0..frames {
        if nth % 10 == 0 {
            let mut times = PerClass::default();
            times[Class::ROCE] = Some(if nth % 20 == 0 { 0xffff } else { 0 });
            lanes.obey(at(0), &PauseFrame { source: SOURCE, times });
        }
        for class in Class::ALL {
            let len = lens[usize::from(class.number())];
            while len > 0 && lanes.waiting(class) < 4 {
                assert_eq!(lanes.push(class, plain(len, 0)), Ok(()));
            }
        }
        match lanes.pop(at(0)) {
            Next::Frame(class, frame) => sent[class] += u64::from(frame.bytes),
            other => panic!("{other:?}"),
        }
    }
    sent
}

/// Shows: network: shares and rates of classes
#[test]
fn a_paused_class_keeps_its_turn_and_the_others_divide_its_share() {
    let mut config = Config { rate: None, ..shares([20, 75, 0, 5, 0, 0, 0, 0], 1_000_000_000) };
    let thresholds = Thresholds { xoff: 100_000, xon: 50_000, headroom: 80_000 };
    config.classes[Class::ROCE].pfc = Some(thresholds);
    // A frame of 9000 bytes takes 29 rounds, which ten frames of the others are not.
    let sent = paused_now_and_then([1000, 1000, 0, 9000, 0, 0, 0, 0], config, 20_000);
    let part = sent[Class::ROCE] as f64 / (sent[class(0)] + sent[class(1)]) as f64;
    // It has its share of half of the time.
    assert!((0.02..0.035).contains(&part), "{sent:?}");
    let ratio = sent[class(1)] as f64 / sent[class(0)] as f64;
    assert!((ratio / 3.75 - 1.0).abs() < 0.02, "{sent:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Shows: network: shares and rates of classes
    #[test]
    fn shares_and_the_rate_are_kept_whatever_the_lengths(
        weights in prop::collection::vec(1_u8..=12, 8),
        lens in prop::collection::vec(60_u32..9000, 8),
        rate in 100_000_000_u64..100_000_000_000,
    ) {
        let weights: [u8; 8] = weights.try_into().expect("eight");
        let mut lanes = lanes(shares(weights, rate));
        // Time for about 4000 long frames.
        let span = 4000 * 9000 * 8 * 1_000_000_000_u64 / rate;
        let sent = busy(&mut lanes, |class| lens[usize::from(class.number())], span);
        let total: u64 = sent.iter().map(|(_, bytes)| bytes).sum();
        let got = total as f64 * 8e9 / span as f64;
        prop_assert!((got / rate as f64 - 1.0).abs() < 0.02, "{got} instead of {rate}");
        let weight: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        for (class, bytes) in sent.iter() {
            let number = usize::from(class.number());
            let share = total as f64 * f64::from(weights[number]) / weight as f64;
            // The last round may be incomplete.
            let round = 64.0 * f64::from(weights[number]) + f64::from(lens[number]);
            let error = (*bytes as f64 - share).abs();
            prop_assert!(error < 0.02 * share + round, "{class:?}: {bytes} instead of {share}");
        }
    }
}
