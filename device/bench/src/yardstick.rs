//! Limits of the machine itself, to compare with.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use vrnic_device::memory::mapping::{Mapping, Order};
use vrnic_testdriver::memory::BASE;
use vrnic_testdriver::vfio::Endpoint;

use crate::rig::Pair;
use crate::scatter::{PAGE, Scattered};

/// Round trips of a run.
const ROUNDS: u64 = 20_000;

/// A word on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// Shortest mean round trip of a word between two threads in µs.
///
/// # Errors
/// When a thread panics.
pub(crate) fn ping_pong(repeats: u32) -> anyhow::Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..repeats {
        let (ping, pong) = (Line::default(), Line::default());
        let time = std::thread::scope(|scope| {
            let echo = scope.spawn(|| {
                for round in 1..=ROUNDS {
                    wait(&ping, round);
                    pong.0.store(round, Ordering::Release);
                }
            });
            let start = Instant::now();
            for round in 1..=ROUNDS {
                ping.0.store(round, Ordering::Release);
                wait(&pong, round);
            }
            let time = start.elapsed();
            echo.join().map(|()| time)
        });
        let time = time.map_err(|_| anyhow!("the echo of a ping-pong panicked"))?;
        best = best.min(time.as_secs_f64() * 1e6 / ROUNDS as f64);
    }
    Ok(best)
}

fn wait(line: &Line, value: u64) {
    while line.0.load(Ordering::Acquire) != value {
        spin_loop();
    }
}

/// Bytes per second of copying a block of `len` bytes over and over, in private memory.
pub(crate) fn memcpy(len: usize, span: Duration) -> f64 {
    let source = vec![1u8; len];
    let mut target = vec![2u8; len];
    let start = Instant::now();
    let mut bytes = 0f64;
    while start.elapsed() < span {
        for _ in 0..16 {
            target.copy_from_slice(black_box(&source));
            black_box(&mut target);
        }
        bytes += 16.0 * len as f64;
    }
    bytes / start.elapsed().as_secs_f64()
}

/// The memory of an endpoint's guest, and the place of its buffer there.
fn map(end: &Endpoint) -> anyhow::Result<(Mapping, usize)> {
    let ram = end.guest.ram();
    let mapping = Mapping::new(ram.file(), 0, usize::try_from(ram.len())?, true)?;
    Ok((mapping, usize::try_from(end.buffer - BASE)?))
}

/// Bytes per second of copying the very block that a WRITE of `len` bytes moves, by this thread.
///
/// # Errors
/// When it lies outside guest memory, or that cannot be mapped.
pub(crate) fn same_block(pair: &Pair, len: usize, span: Duration) -> anyhow::Result<f64> {
    same_pieces(pair, &[(0, 0)], len, span)
}

/// Bytes per second of copying the very pages that a WRITE of `len` bytes between two scattered
/// buffers moves, by this thread.
///
/// # Errors
/// When they lie outside guest memory, or that cannot be mapped.
pub(crate) fn same_pages(
    pair: &Pair,
    [from, to]: &[Scattered; 2],
    len: usize,
    span: Duration,
) -> anyhow::Result<f64> {
    let places = from.places.iter().copied().zip(to.places.iter().copied());
    let places: Vec<_> = places.take(len / PAGE).collect();
    same_pieces(pair, &places, PAGE, span)
}

/// Bytes per second of copying pieces of `len` bytes between places of the buffers of a pair.
fn same_pieces(
    pair: &Pair,
    places: &[(usize, usize)],
    len: usize,
    span: Duration,
) -> anyhow::Result<f64> {
    let ((source, source_at), (target, target_at)) = (map(&pair.a)?, map(&pair.b)?);
    let copy = || {
        places.iter().try_for_each(|(from, to)| {
            let ends = ((&source, source_at + from), (&target, target_at + to));
            Mapping::copy(ends.0, ends.1, len, Order::Any).context("a piece of guest memory")
        })
    };
    // Their pages are mapped before anything is timed.
    copy()?;
    let start = Instant::now();
    let mut bytes = 0f64;
    while start.elapsed() < span {
        for _ in 0..16 {
            copy()?;
        }
        bytes += 16.0 * (places.len() * len) as f64;
    }
    Ok(bytes / start.elapsed().as_secs_f64())
}
