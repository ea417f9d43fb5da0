//! Memory, marks, drops.

use proptest::prelude::*;
use vrnic_lanes::{Class, Config, Frame, Lanes, Mapping, Mark, Next, PauseFrame, Red, ecn};

use crate::{SOURCE, at, class, lanes, plain, strict};

#[test]
fn a_full_queue_drops_and_leaves_the_others_their_room() {
    let mut config = strict();
    config.classes[class(1)].limit = 64 << 10;
    let mut lanes = lanes(config);
    let fits = (64 << 10) / 1000;
    for number in 0..100 {
        assert_eq!(lanes.push(class(1), plain(1000, number)).is_ok(), number < fits);
    }
    assert_eq!(lanes.push(class(0), plain(1000, 0)), Ok(()));
    let counters = lanes.counters(at(0), class(1));
    assert_eq!((counters.drops, counters.deepest), (100 - fits, fits * 1000));
    assert_eq!(lanes.depth(class(1)), fits * 1000);
}

/// Shows: memory: queues of classes
#[test]
fn short_frames_take_the_room_that_their_memory_takes() {
    let mut lanes = lanes(strict());
    let passed = (0..100_000).filter(|_| lanes.push(class(1), plain(14, 0)).is_ok()).count();
    // A class has 1 MiB, and no buffer has fewer than 256 bytes.
    assert_eq!(passed, (1 << 20) / 256);
    assert_eq!(lanes.depth(class(1)), 14 * passed as u64);
}

/// Shows: network: nothing is lost in a class with PFC
#[test]
fn classes_without_flow_control_leave_their_room_to_those_with_it() {
    let mut egress = lanes(Config::default());
    for of in Class::ALL.into_iter().filter(|of| *of != Class::ROCE) {
        while egress.push(of, plain(1000, 0)).is_ok() {}
    }
    // Eight ports send as much as they may before and after they are paused.
    for _ in 0..8 {
        let mut ingress = lanes(Config::default());
        while ingress.arrived(Class::ROCE, 1000) {
            assert_eq!(egress.push(Class::ROCE, plain(1000, 0)), Ok(()));
        }
    }
    assert_eq!(egress.counters(at(0), Class::ROCE).drops, 0);
    assert!(egress.counters(at(0), class(0)).drops > 0, "they have filled what they may");
}

#[test]
fn frames_are_marked_when_their_queue_is_long() {
    let mut config = strict();
    config.classes[class(3)].ecn = Some(Red { min: 10_000, max: 20_000, probability: 100_000 });
    let mut lanes = lanes(config);
    for number in 0..40 {
        assert_eq!(lanes.push(class(3), plain(1000, number)), Ok(()));
    }
    let mut marked = Vec::new();
    while let Next::Frame(_, frame) = lanes.pop(at(0)) {
        marked.push(frame.marked);
    }
    assert!(marked[..11].iter().all(|mark| !mark), "{marked:?}");
    assert!(marked[21..].iter().all(|mark| *mark), "{marked:?}");
    let count = marked.iter().filter(|mark| **mark).count() as u64;
    assert_eq!(lanes.counters(at(0), class(3)).marks, count);
}

/// A frame whose sender does not react to marks.
struct Deaf;

impl Frame for Deaf {
    fn bytes(&self) -> u32 {
        1000
    }

    fn mark(&mut self) -> Mark {
        Mark::Refused
    }
}

#[test]
fn frames_that_refuse_marks_are_dropped_if_their_class_drops() {
    let mut config = Config::default();
    let red = Some(Red { min: 10_000, max: 20_000, probability: 1 });
    for of in [class(1), Class::ROCE] {
        config.classes[of].ecn = red;
    }
    let mut lanes = Lanes::new(config, SOURCE).expect("a configuration");
    let mut passed = |of| (0..40).filter(|_| lanes.push(of, Deaf).is_ok()).count();
    assert_eq!((passed(class(1)), passed(Class::ROCE)), (21, 40));
    let counters = [class(1), Class::ROCE].map(|of| lanes.counters(at(0), of));
    assert_eq!(counters.map(|of| (of.early_drops, of.marks)), [(19, 0), (0, 0)]);
}

/// What a test does with the lanes of a port.
#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u8, u32),
    Pop,
    Later(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..8, 0_u32..70_000).prop_map(|(class, bytes)| Step::Push(class, bytes)),
        2 => Just(Step::Pop),
        1 => (0_u64..100_000).prop_map(Step::Later),
    ]
}

proptest! {
    /// Shows: memory: queues of classes
    #[test]
    fn no_queue_grows_beyond_its_limit_and_nothing_disappears(
        steps in prop::collection::vec(step(), 1..400),
        limits in prop::collection::vec(65_536_u32..300_000, 8),
    ) {
        let mut config = strict();
        config.budget = 600_000;
        for class in Class::ALL {
            config.classes[class].limit = limits[usize::from(class.number())];
        }
        let mut lanes = lanes(config.clone());
        let (mut now, mut queued, mut left) = (at(0), 0_u64, 0_u64);
        for step in steps {
            match step {
                Step::Push(class, bytes) => {
                    queued += u64::from(lanes.push(Class::of_bits(class), plain(bytes, 0)).is_ok());
                }
                Step::Pop => left += u64::from(matches!(lanes.pop(now), Next::Frame(..))),
                Step::Later(by) => now.0 += by,
            }
            let depths = Class::ALL.map(|class| lanes.depth(class));
            prop_assert!(depths.iter().sum::<u64>() <= u64::from(config.budget));
            for (depth, class) in depths.into_iter().zip(Class::ALL) {
                prop_assert!(depth <= u64::from(config.classes[class].limit));
            }
            let waiting: usize = Class::ALL.into_iter().map(|class| lanes.waiting(class)).sum();
            prop_assert_eq!(waiting as u64 + left, queued);
        }
    }
}

/// Returns bytes that often begin like an IP packet, with or without a tag, or a PFC frame.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let kinds: [&[u8]; 5] = [
        &[8, 0, 0x45],
        &[0x86, 0xdd, 0x60],
        &[0x81, 0, 0x60, 7, 8, 0, 0x45],
        &[0x88, 8, 1, 1],
        &[],
    ];
    let rest = prop::collection::vec(any::<u8>(), 0..80);
    (any::<[u8; 12]>(), prop::sample::select(kinds.to_vec()), rest)
        .prop_map(|(addresses, kind, rest)| [&addresses, kind, &rest].concat())
}

proptest! {
    #![proptest_config(vrnic_cases::config(1000))]

    /// Shows: hostile: frames in lanes
    #[test]
    fn any_frame_has_a_class_and_may_be_marked(frame in frame(), cut in 0_usize..100) {
        let frame = &frame[..cut.min(frame.len())];
        let _class = Mapping::default().class_of(frame);
        let _pause = PauseFrame::parse(frame);
        let mut marked = frame.to_vec();
        let mark = ecn::mark(&mut marked);
        let changed = frame.iter().zip(&marked).filter(|(before, after)| before != after).count();
        // The bits, and the checksum of IPv4.
        let few = if mark == Mark::Set { 1..=3 } else { 0..=0 };
        prop_assert!(few.contains(&changed), "{changed} bytes");
        prop_assert!(ecn::mark(&mut marked) != Mark::Set, "once");
    }
}
