//! The number of cases of tests with random input, and their seeds.
//!
//! `VRNIC_CASES` sets the number of cases of each of these tests, and `VRNIC_SEED` the first seed
//! of those with seeds. `scripts/fuzz` uses it for the parsers of hostile bytes.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use proptest::test_runner::Config;

/// Returns the number of cases that is wanted, or this one.
#[must_use]
pub fn count(default: u64) -> u64 {
    number("VRNIC_CASES", default)
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Returns the settings of a test of proptest with so many cases, or with those that are wanted.
/// Inputs that the test rejects do not end it, however many there are.
#[must_use]
pub fn config(default: u32) -> Config {
    let cases = u32::try_from(count(default.into())).unwrap_or(u32::MAX);
    Config { cases, max_local_rejects: u32::MAX, max_global_rejects: u32::MAX, ..Config::default() }
}

/// Calls `run` with one seed after the other until it has run enough cases. It returns how many it
/// has run. Prints the seed at which it panics.
pub fn seeds(default: u64, mut run: impl FnMut(u64) -> u64) {
    let (mut left, mut seed) = (count(default), number("VRNIC_SEED", 1));
    while left > 0 {
        let cases = catch_unwind(AssertUnwindSafe(|| run(seed))).unwrap_or_else(|panic| {
            eprintln!("VRNIC_SEED={seed} repeats this case");
            resume_unwind(panic)
        });
        left = left.saturating_sub(cases.max(1));
        seed = seed.wrapping_add(1);
    }
}

/// Calls `run` with so many random bytes, again and again, until it has run enough cases.
pub fn bytes(default: u64, len: usize, mut run: impl FnMut(&[u8]) -> u64) {
    let mut bytes = vec![0; len];
    seeds(default, |seed| {
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        run(&bytes)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_run_until_there_are_enough() {
        let (mut seen, mut all) = (Vec::new(), 0);
        seeds(count(100), |seed| {
            seen.push(seed);
            all += 7;
            7
        });
        assert!(all >= count(100) && all < count(100) + 7);
        assert!(seen.windows(2).all(|two| two[1] == two[0] + 1));
        // Other bytes in each case, also if a case counts nothing.
        let mut last = Vec::new();
        bytes(10, 16, |bytes| {
            assert_ne!(bytes, last);
            last = bytes.to_vec();
            0
        });
    }

    #[test]
    fn a_case_that_fails_ends_the_run() {
        let mut runs = 0;
        let failed = catch_unwind(AssertUnwindSafe(|| {
            seeds(1000, |seed| {
                runs += 1;
                assert!(seed % 5 != 4, "a fault");
                1
            });
        }));
        assert!(failed.is_err() && runs <= 5);
    }
}
