//! Pauses, and what is never lost.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use vrnic_lanes::{Class, Config, Event, Lanes, Next, PauseFrame, PerClass, Thresholds, Watchdog};
use vrnic_packet::{Nanos, Rate};

use crate::{Plain, SOURCE, at, class, lanes, plain, strict};

const LINK: u64 = 10_000_000_000;
const XOFF: u32 = 100_000;
const HEADROOM: u32 = 80_000;

/// Returns a configuration in which class 3 has a flow control of its own.
fn lossless() -> Config {
    let mut config = strict();
    config.classes[Class::ROCE].pfc =
        Some(Thresholds { xoff: XOFF, xon: XOFF / 2, headroom: HEADROOM });
    config
}

/// What is under way to the other end.
enum Wire {
    Frame(Class, Plain),
    Pause(PauseFrame),
}

/// A sender, a wire with a latency, and a receiver that takes frames of each class at a rate of its
/// own. Frames leave the sender one after the other at the rate of the link.
struct Rig {
    sender: Lanes<Plain>,
    receiver: Lanes<Plain>,
    latency: u64,
    there: VecDeque<(u64, Wire)>,
    back: VecDeque<(u64, PauseFrame)>,
    /// What has arrived, by class.
    store: PerClass<VecDeque<Plain>>,
    taken: PerClass<Vec<u64>>,
    /// The time between two frames that the receiver takes.
    period: PerClass<u64>,
    take_at: PerClass<u64>,
    lost: PerClass<u64>,
}

impl Rig {
    fn new(latency: u64, period: impl Fn(Class) -> u64) -> Self {
        let config = Config { rate: Rate::new(LINK), burst: 0, ..lossless() };
        Self {
            sender: lanes(config),
            receiver: lanes(lossless()),
            latency,
            there: VecDeque::new(),
            back: VecDeque::new(),
            store: PerClass::default(),
            taken: PerClass::default(),
            period: PerClass::from_fn(period),
            take_at: PerClass::default(),
            lost: PerClass::default(),
        }
    }

    /// Does what is to be done at a time.
    fn step(&mut self, now: u64) {
        while let Some((_, pause)) = self.back.pop_front_if(|(at, _)| *at <= now) {
            self.sender.obey(at(now), &pause);
        }
        loop {
            let wire = match self.sender.pop(at(now)) {
                Next::Frame(class, frame) => Wire::Frame(class, frame),
                Next::Pause(pause) => Wire::Pause(pause),
                _ => break,
            };
            self.there.push_back((now + self.latency, wire));
        }
        while let Some((_, wire)) = self.there.pop_front_if(|(at, _)| *at <= now) {
            match wire {
                Wire::Frame(class, frame) if self.receiver.arrived(class, frame.bytes) => {
                    self.store[class].push_back(frame);
                }
                Wire::Frame(class, _) => self.lost[class] += 1,
                Wire::Pause(pause) => self.receiver.obey(at(now), &pause),
            }
        }
        for class in Class::ALL {
            if self.take_at[class] <= now
                && let Some(frame) = self.store[class].pop_front()
            {
                self.take_at[class] = now + self.period[class];
                self.receiver.left(class, frame.bytes);
                self.taken[class].push(frame.number);
            }
        }
        while let Next::Pause(pause) = self.receiver.pop(at(now)) {
            self.back.push_back((now + self.latency, pause));
        }
    }
}

/// Shows: network: PFC pauses a class and no other
#[test]
fn a_slow_receiver_pauses_only_its_class() {
    // Class 3 is taken at a tenth of the link, class 1 at once.
    let mut rig = Rig::new(1000, |of| if of == Class::ROCE { 8000 } else { 0 });
    let mut numbers = PerClass::<u64>::default();
    for now in (0..4_000_000).step_by(100) {
        for of in [Class::ROCE, class(1)] {
            while rig.sender.waiting(of) < 8 {
                assert_eq!(rig.sender.push(of, plain(1000, numbers[of])), Ok(()));
                numbers[of] += 1;
            }
        }
        rig.step(now);
    }
    let counters = |of| rig.sender.counters(at(4_000_000), of);
    assert!(counters(Class::ROCE).paused > Duration::from_millis(2), "{:?}", counters(Class::ROCE));
    assert!(counters(Class::ROCE).pfc_received > 2);
    assert_eq!((counters(class(1)).paused, counters(class(1)).pfc_received), (Duration::ZERO, 0));
    assert_eq!(rig.lost[Class::ROCE], 0);
    assert!(rig.receiver.held(Class::ROCE) <= u64::from(XOFF + HEADROOM));
    // 4 ms of the link are 5000 frames.
    let (slow, other) = (rig.taken[Class::ROCE].len(), rig.taken[class(1)].len());
    assert!((480..=520).contains(&slow) && (4200..).contains(&other), "{slow}, {other}");
}

#[test]
fn a_class_without_flow_control_ignores_pauses() {
    let mut lanes = lanes(lossless());
    let times = PerClass::from_fn(|_| Some(0xffff));
    lanes.obey(at(0), &PauseFrame { source: SOURCE, times });
    for of in Class::ALL {
        assert_eq!(lanes.push(of, plain(100, 0)), Ok(()));
    }
    let mut left = Vec::new();
    while let Next::Frame(of, _) = lanes.pop(at(0)) {
        left.push(of.number());
    }
    assert_eq!(left, [7, 6, 5, 4, 2, 1, 0]);
    assert_eq!(lanes.pop(at(0)), Next::Wait(at(3_355_392)), "65535 units of 51.2 ns");
    assert!(matches!(lanes.pop(at(3_355_392)), Next::Frame(Class::ROCE, _)));
}

/// Shows: network: a watchdog ends pause storms
#[test]
fn a_pause_that_never_ends_costs_only_its_class() {
    let after = Duration::from_millis(5);
    let watchdog = Some(Watchdog { after, recovery: after });
    let mut lanes = lanes(Config { watchdog, ..lossless() });
    let mut times = PerClass::default();
    times[Class::ROCE] = Some(0xffff);
    let pause = PauseFrame { source: SOURCE, times };
    let (mut dropped, mut other) = (0, 0);
    for milli in 0..10_u64 {
        let now = at(milli * 1_000_000);
        lanes.obey(now, &pause);
        for of in [Class::ROCE, class(1)] {
            let _full = lanes.push(of, plain(100, milli));
        }
        loop {
            match lanes.pop(now) {
                Next::Dropped(Class::ROCE, _) => dropped += 1,
                Next::Frame(of, _) if of == class(1) => other += 1,
                Next::Wait(_) => break,
                next => panic!("{next:?} after {milli} ms"),
            }
        }
    }
    assert_eq!((dropped, other), (6, 10));
    assert_eq!(lanes.take_event(), Some(Event::Stuck(Class::ROCE)));
    assert_eq!(lanes.counters(at(0), Class::ROCE).storm_drops, 10, "later ones are refused");
    // The last pause begins at 9 ms and has 3.4 ms.
    assert_eq!(lanes.pop(at(17_000_000)), Next::Wait(at(17_355_392)));
    assert_eq!(lanes.pop(at(17_355_392)), Next::Nothing);
    assert_eq!(lanes.take_event(), Some(Event::Recovered(Class::ROCE)));
    assert_eq!(lanes.push(Class::ROCE, plain(100, 0)), Ok(()));
    assert!(matches!(lanes.pop(at(17_355_392)), Next::Frame(Class::ROCE, _)));
}

/// Returns a frame that pauses class 3 as long as possible, or lets it go on.
fn pause(paused: bool) -> PauseFrame {
    let mut times = PerClass::default();
    times[Class::ROCE] = Some(if paused { 0xffff } else { 0 });
    PauseFrame { source: SOURCE, times }
}

/// Pauses class 3 for a part of each ms, in tenths, at a port of 8 Mbit/s that class 7 keeps busy
/// if `busy` is true. Returns the frames of class 3 that have left, and whether it was stuck.
fn paused_in_part(tenths: u64, busy: bool, millis: u64) -> (u64, bool) {
    let after = Duration::from_millis(5);
    let watchdog = Some(Watchdog { after, recovery: Duration::from_secs(1) });
    let mut lanes = lanes(Config { watchdog, rate: Rate::new(8_000_000), burst: 0, ..lossless() });
    let mut left = 0;
    for time in 0..millis * 10 {
        let now = at(time * 100_000);
        lanes.obey(now, &pause(time % 10 < tenths));
        for of in [Class::ROCE, class(7)] {
            while lanes.waiting(of) < 8 && (busy || of == Class::ROCE) {
                if lanes.push(of, plain(80, time)).is_err() {
                    return (left, true);
                }
            }
        }
        loop {
            match lanes.pop(now) {
                Next::Frame(of, _) => left += u64::from(of == Class::ROCE),
                Next::Wait(_) => break,
                Next::Dropped(Class::ROCE, _) => return (left, true),
                next => panic!("{next:?} after {time}"),
            }
        }
    }
    (left, false)
}

/// Shows: network: a watchdog ends pause storms
#[test]
fn pauses_with_gaps_are_a_storm_if_no_frame_leaves_and_waits_for_the_rate_are_none() {
    assert_eq!(paused_in_part(9, true, 20), (0, true), "a higher class uses the gaps");
    assert_eq!(paused_in_part(1, true, 20), (0, false), "it was paused for 2 ms");
    assert_eq!(paused_in_part(0, true, 20), (0, false), "it was not paused");
    let (left, stuck) = paused_in_part(9, false, 20);
    assert!(left >= 19 && !stuck, "a frame leaves in each gap: {left}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Shows: network: nothing is lost in a class with PFC
    #[test]
    fn a_class_with_flow_control_loses_nothing_and_keeps_its_order(
        lens in prop::collection::vec(60_u32..9000, 200),
        period in 0_u64..30_000,
        latency in 0_u64..10_000,
    ) {
        // What is under way during a round trip and one frame fit into the headroom.
        let mut rig = Rig::new(latency, |_| period);
        let (mut now, mut next) = (0, 0);
        while rig.taken[Class::ROCE].len() < lens.len() {
            while next < lens.len() && rig.sender.waiting(Class::ROCE) < 16 {
                let frame = plain(lens[next], next as u64);
                prop_assert_eq!(rig.sender.push(Class::ROCE, frame), Ok(()));
                next += 1;
            }
            rig.step(now);
            prop_assert_eq!(rig.lost[Class::ROCE], 0);
            prop_assert!(now < 200_000_000, "no progress");
            now += 200;
        }
        prop_assert!(rig.taken[Class::ROCE].iter().copied().eq(0..lens.len() as u64));
        let counters = rig.sender.counters(Nanos(now), Class::ROCE);
        prop_assert_eq!((counters.frames, counters.drops), (lens.len() as u64, 0));
    }
}
