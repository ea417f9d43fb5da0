//! Two switches that pause each other for ever, because frames go round between them.
//!
//! A wrong route is enough for that (Hu et al., "Deadlocks in Datacenter Networks", HotNets 2016):
//! frames from a host go from A to B, back to A, and so on, until their hops are used up. If more
//! frames come than the wires carry so often, each switch waits for room at the other one.

use std::collections::VecDeque;
use std::time::Duration;

use vrnic_lanes::{
    Class, Config, Event, Frame, Lanes, Mark, Next, PauseFrame, Thresholds, Watchdog,
};
use vrnic_packet::Rate;

use crate::{SOURCE, at, class, strict};

/// The rate of both wires in bits per second.
const LINK: u64 = 10_000_000_000;
const LATENCY: u64 = 1000;
const BYTES: u32 = 1000;
/// The number of wires that a frame takes if it goes round.
const HOPS: u32 = 16;
/// The time between two looks at everything: half of what a frame takes.
const STEP: u64 = 400;
/// The time between two frames of the class that is not paused.
const OTHER_PERIOD: u64 = 10_000;

/// The ports of a switch: to a host, and the ends of the wires from and to the other switch.
const HOST: usize = 0;
const IN: usize = 1;
const OUT: usize = 2;

/// A frame that goes round.
struct Round {
    hops: u32,
    /// The port of the switch by which it came.
    from: usize,
}

impl Frame for Round {
    fn bytes(&self) -> u32 {
        BYTES
    }

    fn mark(&mut self) -> Mark {
        Mark::Refused
    }
}

/// Switches A and B. The host is at A.
struct Rig {
    switches: [[Lanes<Round>; 3]; 2],
    /// The frames on the wire from each switch to the other one.
    wires: [VecDeque<(u64, Class, Round)>; 2],
    /// The pauses that each switch sends to the other one.
    pauses: [VecDeque<(u64, PauseFrame)>; 2],
    /// True if the host is paused.
    host_waits: bool,
    now: u64,
    /// The frames of class 3 and of the other class that have arrived.
    arrived: [u64; 2],
    lost: u64,
}

fn other() -> Class {
    class(5)
}

impl Rig {
    fn new(watchdog: Option<Watchdog>) -> Self {
        let mut config = Config { rate: Rate::new(LINK), burst: 0, watchdog, ..strict() };
        config.classes[Class::ROCE].pfc =
            Some(Thresholds { xoff: 100_000, xon: 20_000, headroom: 80_000 });
        let switch = || [0; 3].map(|_| of(&config));
        Self {
            switches: [switch(), switch()],
            wires: Default::default(),
            pauses: Default::default(),
            host_waits: false,
            now: 0,
            arrived: [0; 2],
            lost: 0,
        }
    }

    /// Takes a frame into a switch, or out of the network.
    fn enter(&mut self, switch: usize, from: usize, class: Class, hops: u32) {
        let ports = &mut self.switches[switch];
        if !ports[from].arrived(class, BYTES) {
            self.lost += 1;
            return;
        }
        let Some(hops) = hops.checked_sub(1) else {
            self.arrived[usize::from(class == other())] += 1;
            return ports[from].left(class, BYTES);
        };
        if ports[OUT].push(class, Round { hops, from }).is_err() {
            self.lost += 1;
            ports[from].left(class, BYTES);
        }
    }

    fn serve(&mut self, switch: usize) {
        let (now, ports) = (at(self.now), &mut self.switches[switch]);
        loop {
            match ports[OUT].pop(now) {
                Next::Frame(class, frame) => {
                    ports[frame.from].left(class, BYTES);
                    self.wires[switch].push_back((self.now + LATENCY, class, frame));
                }
                Next::Dropped(class, frame) => ports[frame.from].left(class, BYTES),
                Next::Pause(_) => panic!("no frame comes by this port"),
                Next::Wait(_) | Next::Nothing => break,
            }
        }
        while let Next::Pause(pause) = ports[IN].pop(now) {
            self.pauses[switch].push_back((self.now + LATENCY, pause));
        }
        while let Next::Pause(pause) = ports[HOST].pop(now) {
            self.host_waits = pause.times[Class::ROCE].is_some_and(|time| time > 0);
        }
    }

    /// Goes on up to a time. The host sends a frame of class 3 each `period`, if there is one.
    fn run(&mut self, until: u64, period: Option<u64>) {
        while self.now < until {
            self.now += STEP;
            if period.is_some_and(|period| self.now.is_multiple_of(period)) && !self.host_waits {
                self.enter(0, HOST, Class::ROCE, HOPS);
            }
            if self.now.is_multiple_of(OTHER_PERIOD) {
                self.enter(0, HOST, other(), 1);
            }
            for switch in [0, 1] {
                let there = 1 - switch;
                while let Some((_, class, frame)) =
                    self.wires[switch].pop_front_if(|(at, ..)| *at <= self.now)
                {
                    self.enter(there, IN, class, frame.hops);
                }
                while let Some((_, pause)) =
                    self.pauses[switch].pop_front_if(|(at, _)| *at <= self.now)
                {
                    self.switches[there][OUT].obey(at(self.now), &pause);
                }
            }
            (0..2).for_each(|switch| self.serve(switch));
        }
    }

    /// Returns the time for which each switch has paused the other one.
    fn paused(&self) -> [Duration; 2] {
        [1, 0].map(|there: usize| {
            self.switches[there][OUT].counters(at(self.now), Class::ROCE).paused
        })
    }
}

fn of(config: &Config) -> Lanes<Round> {
    Lanes::new(config.clone(), SOURCE).expect("a configuration")
}

const MILLI: u64 = 1_000_000;

/// Each frame takes 8 times as much of a wire as it has bytes.
///
/// Shows: network: two switches lock each other
#[test]
fn frames_that_go_round_lock_two_switches_if_the_wires_cannot_carry_them() {
    // 1 Gbit/s, so that the first wire carries 8 Gbit/s.
    let mut rig = Rig::new(None);
    rig.run(30 * MILLI, Some(8000));
    assert!(rig.arrived[0] > 3600, "{:?} of 3750", rig.arrived);
    assert_eq!((rig.lost, rig.paused()), (0, [Duration::ZERO; 2]));
    // 2 Gbit/s.
    let mut rig = Rig::new(None);
    rig.run(10 * MILLI, Some(4000));
    let before = rig.arrived;
    rig.run(30 * MILLI, None);
    assert_eq!(rig.arrived[0], before[0], "nothing moves, although no more frames come");
    assert!(rig.arrived[1] >= before[1] + 1990, "{:?}: another class has no part", rig.arrived);
    assert!(
        rig.paused().iter().all(|time| *time > Duration::from_millis(19)),
        "{:?}",
        rig.paused()
    );
    assert_eq!(rig.lost, 0);
}

/// Shows: network: a watchdog ends pause storms
#[test]
fn a_watchdog_finds_switches_that_are_locked_and_lets_them_go_on() {
    let time = Duration::from_millis(5);
    let mut rig = Rig::new(Some(Watchdog { after: time, recovery: time }));
    rig.run(10 * MILLI, Some(4000));
    let storms = |rig: &Rig| -> u64 {
        let outs = rig.switches.iter().map(|ports| &ports[OUT]);
        outs.map(|port| port.counters(at(rig.now), Class::ROCE).storms).sum()
    };
    assert!(storms(&rig) > 0);
    let found = rig.switches.iter_mut().find_map(|ports| ports[OUT].take_event());
    assert_eq!(found, Some(Event::Stuck(Class::ROCE)));
    rig.run(40 * MILLI, None);
    for port in rig.switches.iter().flatten() {
        assert_eq!((port.held(Class::ROCE), port.waiting(Class::ROCE)), (0, 0));
    }
    let (before, storms_before) = (rig.arrived, storms(&rig));
    assert!(before[1] >= 3990, "{before:?}: another class has no part");
    rig.run(50 * MILLI, Some(8000));
    assert!(rig.arrived[0] > before[0] + 1200, "{:?} after {before:?}", rig.arrived);
    assert_eq!(storms(&rig), storms_before);
}
