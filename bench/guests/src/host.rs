//! Limits of the machine itself: memcpy, and a word relayed between two spinning threads.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vrnic_device::os::sys::{SLICE_MIN, set_precise_timers, set_slice};

use crate::plan::{MIB, Operation};

/// Duration of a memcpy measurement; the best of [`SPANS`] counts, as for the tests during which it
/// is made.
const SPAN: Duration = Duration::from_millis(40);
const SPANS: usize = 5;
/// Longest duration of a relay measurement, and its largest number of rounds.
const RELAY_TIME: Duration = Duration::from_millis(1500);
const RELAY_ROUNDS: u64 = 20_000;
/// Fewer rounds say nothing.
const RELAY_ROUNDS_MIN: usize = 20;

/// Buffers for copies of one size.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Memcpy {
    /// The operation during whose test it was measured: a shared machine is not as fast at all
    /// times.
    pub(crate) operation: Operation,
    /// Block length.
    pub(crate) bytes: u64,
    /// 2^20 bytes per second, as perftest counts.
    pub(crate) mib_s: f64,
}

/// Copies a block of `bytes` over and over between the same two places, as perftest moves its
/// buffer.
pub(crate) fn memcpy(operation: Operation, bytes: u64) -> Memcpy {
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    let (from, mut to) = (vec![1_u8; len], vec![0_u8; len]);
    let between_looks = (1 << 20) / len.max(1) + 1;
    let rates = (0..SPANS).map(|_| {
        let (start, mut copies) = (Instant::now(), 0);
        while start.elapsed() < SPAN {
            for _ in 0..between_looks {
                black_box(&mut to).copy_from_slice(black_box(&from));
            }
            copies += between_looks;
        }
        (copies * len) as f64 / start.elapsed().as_secs_f64() / MIB
    });
    Memcpy { operation, bytes, mib_s: rates.fold(0.0, f64::max) }
}

/// The relaying thread's pause between two polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gear {
    Spin,
    Nap(Duration),
}

/// Result of a relay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Relay {
    /// The name of the pause between two polls.
    pub(crate) gear: String,
    /// Half of a round trip in µs, median.
    pub(crate) half_round_us: f64,
}

/// Measures the time of one crossing for every gear that a relay may choose. Two threads spin, as
/// two virtual processors in a latency test do, and a third thread relays each word between them,
/// as the adapter has to.
pub(crate) fn relays() -> Vec<Relay> {
    let naps = [12, 20].map(|us| Gear::Nap(Duration::from_micros(us)));
    let gears = [Gear::Spin].into_iter().chain(naps);
    gears
        .filter_map(|gear| {
            let name = match gear {
                Gear::Spin => "spin".to_owned(),
                Gear::Nap(nap) => format!("nap {} µs", nap.as_micros()),
            };
            Some(Relay { gear: name, half_round_us: relay(gear)? })
        })
        .collect()
}

/// A word on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// The words of both spinning threads and what is relayed to them.
#[derive(Debug, Default)]
struct Words {
    from_a: Line,
    to_b: Line,
    from_b: Line,
    to_a: Line,
    stop: AtomicBool,
}

fn relay(gear: Gear) -> Option<f64> {
    let words = Words::default();
    let mut rounds = thread::scope(|scope| {
        scope.spawn(|| echo(&words));
        scope.spawn(|| carry(&words, gear));
        let rounds = ask(&words);
        words.stop.store(true, Ordering::Relaxed);
        rounds
    });
    rounds.sort();
    let median = rounds.get(rounds.len() / 2).filter(|_| rounds.len() >= RELAY_ROUNDS_MIN)?;
    Some(median.as_secs_f64() * 1e6 / 2.0)
}

/// Sends words and waits for each to come back; the time of every round.
fn ask(words: &Words) -> Vec<Duration> {
    let end = Instant::now() + RELAY_TIME;
    let mut rounds = Vec::new();
    for word in 1..=RELAY_ROUNDS {
        let start = Instant::now();
        words.from_a.0.store(word, Ordering::Release);
        let mut polls = 0_u32;
        while words.to_a.0.load(Ordering::Acquire) != word {
            spin_loop();
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(1024) && Instant::now() > end {
                return rounds;
            }
        }
        rounds.push(start.elapsed());
    }
    rounds
}

/// Sends each word back.
fn echo(words: &Words) {
    while !words.stop.load(Ordering::Relaxed) {
        words.from_b.0.store(words.to_b.0.load(Ordering::Acquire), Ordering::Release);
        spin_loop();
    }
}

/// Relays in both directions.
fn carry(words: &Words, gear: Gear) {
    if gear != Gear::Spin {
        // If the kernel grants neither, naps are longer, and so is the figure.
        let _longer = set_slice(SLICE_MIN).and(set_precise_timers());
    }
    while !words.stop.load(Ordering::Relaxed) {
        words.to_b.0.store(words.from_a.0.load(Ordering::Acquire), Ordering::Release);
        words.to_a.0.store(words.from_b.0.load(Ordering::Acquire), Ordering::Release);
        match gear {
            Gear::Spin => spin_loop(),
            Gear::Nap(nap) => thread::sleep(nap),
        }
    }
}
