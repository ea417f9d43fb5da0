//! Engines whose work takes time on a simulated clock.
//!
//! Shows: resources: weights and floors of functions in the time of a worker

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::worker::engine::Polled;

/// An engine whose work takes time on a simulated clock.
#[derive(Default)]
struct Simulated {
    clock: Arc<AtomicU64>,
    away_in_all: Arc<AtomicU64>,
    share: Option<u32>,
    /// The duration of a piece of work that cannot be divided.
    piece: u64,
    /// The time of each poll during which the thread has no processor.
    away: u64,
    /// True if it does one piece in a poll, and never runs out of work.
    single: bool,
    /// The estimate of its work is the time divided by this, if it is not zero.
    slower: u64,
    idle: AtomicBool,
    /// The time that it has had, and its last poll.
    used: AtomicU64,
    polled: AtomicU64,
    /// The longest time between two polls.
    waited: AtomicU64,
}

impl Engine for Simulated {
    fn poll(&self, length: Duration) -> Polled {
        let start = self.clock.load(Ordering::Relaxed);
        let before = self.polled.swap(start, Ordering::Relaxed);
        self.waited.fetch_max(start - before, Ordering::Relaxed);
        if self.idle.load(Ordering::Relaxed) {
            return Polled::default();
        }
        let pieces = (length.as_nanos() as u64).div_ceil(self.piece);
        let spent = self.piece * if self.single { 1 } else { pieces };
        self.clock.fetch_add(spent + self.away, Ordering::Relaxed);
        self.away_in_all.fetch_add(self.away, Ordering::Relaxed);
        self.used.fetch_add(spent, Ordering::Relaxed);
        Polled { busy: true, spent: spent / self.slower.max(1) }
    }

    fn set_asleep(&self, _asleep: bool) {}

    fn has_work(&self) -> bool {
        true
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }

    fn share(&self) -> Option<u32> {
        self.share
    }
}

/// The time, and the part of it in which the thread had no processor.
#[derive(Clone, Default)]
struct Times {
    clock: Arc<AtomicU64>,
    away: Arc<AtomicU64>,
}

impl Clocks for Times {
    fn now(&self) -> Nanos {
        Nanos(self.clock.load(Ordering::Relaxed))
    }

    fn on_processor(&self) -> Nanos {
        Nanos(self.now().0 - self.away.load(Ordering::Relaxed))
    }
}

/// Engines on one clock.
struct Rig {
    times: Times,
    engines: Vec<Arc<Simulated>>,
    turns: Turns,
}

impl Rig {
    fn new(engines: Vec<Simulated>) -> Self {
        let times = Times::default();
        let on_clock = |engine| {
            let Times { clock, away } = times.clone();
            Arc::new(Simulated { clock, away_in_all: away, ..engine })
        };
        let engines: Vec<_> = engines.into_iter().map(on_clock).collect();
        let list: Vec<Arc<dyn Engine>> =
            engines.iter().map(|engine| Arc::clone(engine) as Arc<dyn Engine>).collect();
        let turns = Turns::new(&list);
        Self { times, engines, turns }
    }

    /// Makes passes for a time in ns. Returns what each engine has had.
    fn run(&mut self, time: u64) -> Vec<u64> {
        let Self { times, engines, turns } = self;
        let before: Vec<_> = engines.iter().map(|engine| engine.used()).collect();
        let end = times.now().0 + time;
        while times.now().0 < end {
            turns.pass(times);
            // The pass itself takes time, so that a pass without polls ends, too.
            times.clock.fetch_add(1, Ordering::Relaxed);
        }
        engines.iter().zip(before).map(|(engine, before)| engine.used() - before).collect()
    }
}

impl Simulated {
    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

fn busy(piece: u64) -> Simulated {
    Simulated { piece, share: Some(1), ..Simulated::default() }
}

/// An engine with many short pieces of work, one in each poll.
fn prompt() -> Simulated {
    Simulated { single: true, ..busy(200) }
}

#[track_caller]
fn assert_near(value: u64, expected: u64) {
    assert!(value.abs_diff(expected) * 50 <= expected, "{value}, expected {expected}");
}

#[test]
fn engines_get_their_shares_however_long_their_work_takes() {
    let with = |share, piece| Simulated { share: Some(share), ..busy(piece) };
    let mut rig = Rig::new(vec![with(1, 300), with(4, 40_000), with(5, 7_000)]);
    let used = rig.run(1_000_000_000);
    for (used, share) in used.iter().zip([1, 4, 5]) {
        assert_near(*used, share * 100_000_000);
    }
}

#[test]
fn an_engine_without_a_share_has_the_average() {
    let with = |share| Simulated { share, ..busy(1000) };
    let mut rig = Rig::new(vec![with(Some(1)), with(Some(3)), with(None)]);
    let used = rig.run(600_000_000);
    for (used, share) in used.iter().zip([1, 3, 2]) {
        assert_near(*used, share * 100_000_000);
    }
}

#[test]
fn an_engine_pays_for_work_that_is_slower_than_its_estimate() {
    let slow = Simulated { slower: 50, single: true, ..busy(20_000) };
    let mut rig = Rig::new(vec![slow, busy(300)]);
    let used = rig.run(1_000_000_000);
    assert!(used[0] <= 550_000_000, "{used:?}");
}

#[test]
fn an_engine_pays_for_very_long_polls() {
    let long = Simulated { single: true, ..busy(1_000_000) };
    let mut rig = Rig::new(vec![long, busy(300)]);
    let used = rig.run(1_000_000_000);
    assert!(used[0] <= 510_000_000, "{used:?}");
}

#[test]
fn an_engine_does_not_pay_for_time_without_a_processor() {
    let interrupted = Simulated { away: 1_000_000, ..busy(20_000) };
    let mut rig = Rig::new(vec![interrupted, busy(300)]);
    let used = rig.run(10_000_000_000);
    assert!(used[0] * 10 >= used[1] * 9, "{used:?}");
}

#[test]
fn a_debt_ends_when_all_engines_are_idle() {
    let mut rig = Rig::new(vec![busy(90_000), busy(300)]);
    rig.turns.pass(&rig.times);
    rig.engines.iter().for_each(|engine| engine.idle.store(true, Ordering::Relaxed));
    for _ in 0..3 {
        rig.turns.pass(&rig.times);
    }
    rig.engines[0].idle.store(false, Ordering::Relaxed);
    let used = rig.engines[0].used();
    rig.turns.pass(&rig.times);
    assert_eq!(rig.engines[0].used() - used, 90_000);
}

#[test]
fn an_engine_without_work_saves_nothing() {
    let mut rig = Rig::new(vec![busy(5_000), busy(5_000)]);
    rig.engines[0].idle.store(true, Ordering::Relaxed);
    rig.run(100_000_000);
    rig.engines[0].idle.store(false, Ordering::Relaxed);
    let used = rig.run(1_000_000);
    assert!(used[0] <= 600_000, "{used:?}");
}

#[test]
fn a_prompt_engine_waits_for_one_short_slice() {
    let mut engines: Vec<_> = (0..15).map(|_| busy(300)).collect();
    engines.push(prompt());
    let mut rig = Rig::new(engines);
    // The last engine is known as prompt after some passes.
    rig.run(20_000_000);
    rig.engines[15].waited.store(0, Ordering::Relaxed);
    // Next to it, each poll ends after a short slice and the rest of a piece.
    rig.engines[15].idle.store(false, Ordering::Relaxed);
    let used = rig.run(100_000_000);
    let waited = rig.engines[15].waited.load(Ordering::Relaxed);
    assert!(waited <= 6_000, "{waited}");
    assert!(used[15] >= 100_000_000 / 6_000 * 200, "{used:?}");
}

#[test]
fn a_prompt_engine_stays_prompt_while_its_memory_is_not_in_the_cache() {
    let mut engines: Vec<_> = (0..15).map(|_| busy(300)).collect();
    engines.push(Simulated { slower: 10, ..Simulated { piece: 3_000, ..prompt() } });
    let mut rig = Rig::new(engines);
    rig.run(50_000_000);
    rig.engines[15].waited.store(0, Ordering::Relaxed);
    let used = rig.run(100_000_000);
    let waited = rig.engines[15].waited.load(Ordering::Relaxed);
    assert!(waited <= 16 * 6_000, "a pass of short slices, not {waited}");
    assert!(used[15] >= 5_000_000, "{used:?}");
}

#[test]
fn a_prompt_engine_gets_no_more_than_its_share() {
    let mut engines: Vec<_> = (0..3).map(|_| busy(300)).collect();
    // Two pieces in turn, so that a poll after each slice is more than a quarter of the time.
    engines.extend([Simulated { piece: 1_400, ..prompt() }]);
    engines.extend((0..8).map(|_| Simulated { piece: 1_400, ..prompt() }));
    let mut rig = Rig::new(engines);
    let used = rig.run(120_000_000);
    for used in used {
        assert!(used <= 11_500_000, "{used}");
    }
}
