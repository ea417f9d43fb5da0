//! Doorbell to completion, one at a time.

use std::hint::spin_loop;
use std::time::Instant;

use anyhow::Context;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::wr::Wr;

use crate::rig::Pair;

/// Operations of a run.
const ROUNDS: usize = 20_000;
/// Operations before the first that counts.
const WARM_UP: usize = 1_000;

/// Latencies of a run, sorted, in ns.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Vec<u64>);

impl Latencies {
    /// Creates a set of these latencies, in ns.
    pub(crate) fn new(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// Returns the latency in µs that `part` of 1000 writes do not exceed.
    pub(crate) fn quantile(&self, part: usize) -> f64 {
        let at = (self.0.len() * part / 1000).min(self.0.len().saturating_sub(1));
        self.0.get(at).map_or(f64::NAN, |ns| ns_to_us(*ns))
    }

    /// Counts by power of two: bucket `i` holds latencies below `1 << i` ns that the one before
    /// does not.
    pub(crate) fn buckets(&self) -> Vec<(u64, usize)> {
        let bucket = |ns: &u64| ns.checked_next_power_of_two().unwrap_or(u64::MAX);
        self.0
            .chunk_by(|a, b| bucket(a) == bucket(b))
            .filter_map(|chunk| Some((bucket(chunk.first()?), chunk.len())))
            .collect()
    }
}

/// Returns the run with the lowest median.
///
/// # Errors
/// When no run was asked for.
pub(crate) fn best(pair: &mut Pair, repeats: u32) -> anyhow::Result<Latencies> {
    let runs = (0..repeats).map(|_| run(pair));
    let best = runs.min_by(|a, b| a.quantile(500).total_cmp(&b.quantile(500)));
    best.context("no run was asked for")
}

fn run(pair: &mut Pair) -> Latencies {
    let wqe = request(pair);
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS + WARM_UP {
        let time = once(pair, &wqe);
        if round >= WARM_UP {
            times.push(time);
        }
    }
    Latencies::new(times)
}

/// Returns the entry of a WRITE of 64 bytes.
pub(crate) fn request(pair: &Pair) -> Vec<u8> {
    let Pair { a, b } = pair;
    Wr::new(Opcode::Write, &[a.sge(0, 64)]).to(b.buffer, b.key).encode()
}

/// Posts an entry and waits for its completion; the time that took in ns.
#[inline]
pub(crate) fn once(pair: &mut Pair, wqe: &[u8]) -> u64 {
    let a = &mut pair.a;
    // A queue in device memory takes effect with its stamp: storing belongs to the doorbell.
    let start = Instant::now();
    a.store_encoded(wqe);
    a.ring();
    while !a.send_cq.ready() {
        spin_loop();
    }
    let time = start.elapsed();
    a.send_cq.poll_success();
    time.as_nanos() as u64
}

fn ns_to_us(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64() * 1e6
}
