//! The frequency of this machine's time stamp counter.
//!
//! Guests under TCG read this counter. They measure its frequency when they boot, so the clock of a
//! guest that goes on from a snapshot is wrong if the counter of the machine has another one.

use std::arch::x86_64::_rdtsc;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Time between two readings, and how often each is tried.
const SPAN: Duration = Duration::from_millis(10);
const TRIES: usize = 10;
/// Frequencies that differ by less than this part are one frequency that was measured twice.
const PART: u64 = 500;

/// The counter and the clock at about the same time.
struct Reading {
    ticks: u64,
    time: Instant,
    /// Ticks within which both were read.
    apart: u64,
}

impl Reading {
    fn new() -> Self {
        let before = ticks();
        let time = Instant::now();
        let after = ticks();
        Self { ticks: before, time, apart: after.wrapping_sub(before) }
    }

    /// Returns the best of some readings: others were interrupted.
    fn best() -> Self {
        let first = Self::new();
        (1..TRIES).map(|_| Self::new()).fold(first, |a, b| if a.apart <= b.apart { a } else { b })
    }
}

/// Measures the frequency, in kHz.
fn measured() -> u64 {
    let first = Reading::best();
    std::thread::sleep(SPAN);
    let last = Reading::best();
    let nanos = last.time.duration_since(first.time).as_nanos().max(1);
    let ticks = u128::from(last.ticks.wrapping_sub(first.ticks));
    u64::try_from(ticks * 1_000_000 / nanos).unwrap_or(u64::MAX)
}

fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has this instruction, and it touches no memory.
    unsafe { _rdtsc() }
}

/// Writes the frequency to a file.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn note(file: &Path) -> Result<()> {
    fs::write(file, measured().to_string()).context("cannot note the frequency of the counter")
}

/// Returns why guests that have measured the frequency in this file would have a wrong clock here,
/// or nothing if the frequency is the same.
pub(crate) fn difference(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    different(text.trim().parse().unwrap_or(0), measured())
}

fn different(theirs: u64, own: u64) -> Option<String> {
    let equal = theirs.abs_diff(own) <= own / PART;
    (!equal).then(|| {
        format!(
            "it was made on a machine whose time stamp counter runs at {} MHz, and here the \
             counter runs at {} MHz",
            theirs / 1000,
            own / 1000
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_are_compared() {
        assert_eq!(different(2_100_000, 2_100_900), None);
        assert!(different(2_100_000, 3_000_000).is_some_and(|why| why.contains("2100 MHz")));
        assert!(different(0, 2_100_000).is_some());
    }

    #[test]
    fn a_note_of_this_machine_fits() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("a.tsc");
        note(&file)?;
        let text = fs::read_to_string(&file)?;
        assert!(text.parse::<u64>()? > 100_000, "{text} kHz");
        assert_eq!(difference(&file), None);
        fs::write(&file, "1000")?;
        assert!(difference(&file).is_some() && difference(&file.with_extension("none")).is_some());
        Ok(())
    }
}
