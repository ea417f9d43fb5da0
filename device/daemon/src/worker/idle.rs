//! Decides when a worker without work spins, naps or sleeps.
//!
//! Spinning answers a doorbell within 0.1 µs, but only while no other thread needs the processor:
//! if three threads spin on two processors, each waits for scheduler slices of milliseconds.
//! Napping with a short slice answers within tens of microseconds even then. So a worker spins
//! while processors are free, naps when they are not, and sleeps when there has been no work for
//! long.

use std::time::Duration;

use crate::os::sys::LoadMeter;

/// Nanoseconds between two checks of the load.
const LOAD_CHECK_PERIOD: u64 = 2_000_000;
/// Time for which the worker does not spin after a check has found that processors are scarce.
const SCARCE_HOLD: u64 = 50_000_000;
/// Minimum time between two polls from which follows that another thread had the processor.
const GAP: u64 = 500_000;
/// Time for which the worker does not spin after such a gap.
const GAP_HOLD: u64 = 200_000_000;

/// Times after which a worker without work spins, naps and sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleConfig {
    /// Maximum duration of spinning, while processors are free.
    pub spin: Duration,
    /// Length of a nap.
    pub nap: Duration,
    /// Time without work after which the worker sleeps.
    pub sleep: Duration,
    /// Time after which a sleeping worker checks for work without a wake-up, which limits the cost
    /// of a lost wake-up. Zero means never.
    pub look: Duration,
}

impl Default for IdleConfig {
    fn default() -> Self {
        Self {
            spin: Duration::from_micros(50),
            nap: Duration::from_micros(15),
            sleep: Duration::from_micros(2000),
            look: Duration::from_millis(200),
        }
    }
}

/// The next step of a worker without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleStep {
    /// Poll again at once.
    Spin,
    /// Poll after a nap.
    Nap,
    /// Ask to be woken by doorbells, and wait.
    Sleep,
}

/// Measures how many threads want a processor.
pub trait Load: Send {
    /// Returns the number of threads that run or are ready to run, including the caller, or none if
    /// it is unknown.
    fn runnable(&self) -> Option<usize>;
}

impl Load for LoadMeter {
    fn runnable(&self) -> Option<usize> {
        LoadMeter::runnable(self)
    }
}

/// The policy of one worker. All times are in nanoseconds of one monotonic clock.
#[derive(Debug)]
pub struct IdlePolicy<L> {
    spin: u64,
    sleep: u64,
    cpus: usize,
    load: Option<L>,
    /// The time of the last work.
    worked: u64,
    /// The time of the last call.
    last: u64,
    load_checked_at: u64,
    scarce_until: u64,
}

impl<L: Load> IdlePolicy<L> {
    /// Creates the policy for a machine of `cpus` processors.
    #[must_use]
    pub fn new(config: &IdleConfig, cpus: usize, load: Option<L>, now: u64) -> Self {
        Self {
            spin: nanos(config.spin),
            sleep: nanos(config.sleep),
            cpus,
            load,
            worked: now,
            last: now,
            load_checked_at: now,
            scarce_until: 0,
        }
    }

    /// Records that a poll found work.
    #[inline]
    pub fn worked(&mut self, now: u64) {
        self.worked = now;
        self.last = now;
    }

    /// Returns what to do after a poll that has found no work.
    pub fn next_step(&mut self, now: u64) -> IdleStep {
        let idle = now.saturating_sub(self.worked);
        if idle >= self.sleep {
            return IdleStep::Sleep;
        }
        if idle >= self.spin || self.scarce(now) { IdleStep::Nap } else { IdleStep::Spin }
    }

    /// Records that the worker napped or slept until `now`, so that this is not taken for a gap.
    pub fn rested(&mut self, now: u64) {
        self.last = now;
    }

    /// Returns whether spinning would take a processor from another thread.
    fn scarce(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.last) > GAP {
            self.scarce_until = self.scarce_until.max(now + GAP_HOLD);
        }
        self.last = now;
        if now.saturating_sub(self.load_checked_at) > LOAD_CHECK_PERIOD {
            self.load_checked_at = now;
            let runnable = self.load.as_ref().and_then(Load::runnable);
            if runnable.is_some_and(|runnable| runnable > self.cpus) {
                self.scarce_until = self.scarce_until.max(now + SCARCE_HOLD);
            }
        }
        now < self.scarce_until
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    struct Fixed(usize);

    impl Load for Fixed {
        fn runnable(&self) -> Option<usize> {
            Some(self.0)
        }
    }

    fn policy_at(runnable: usize) -> IdlePolicy<Fixed> {
        let config = IdleConfig {
            spin: Duration::from_micros(50),
            nap: Duration::from_micros(15),
            sleep: Duration::from_micros(2000),
            ..IdleConfig::default()
        };
        IdlePolicy::new(&config, 2, Some(Fixed(runnable)), 0)
    }

    #[test]
    fn free_processors_spin_then_nap_then_sleep() {
        let mut policy = policy_at(2);
        policy.worked(100 * US);
        assert_eq!(policy.next_step(110 * US), IdleStep::Spin);
        assert_eq!(policy.next_step(151 * US), IdleStep::Nap);
        assert_eq!(policy.next_step(2101 * US), IdleStep::Sleep);
    }

    #[test]
    fn scarce_processors_nap_at_once_and_for_a_while() {
        let mut policy = policy_at(3);
        policy.worked(3000 * US);
        assert_eq!(policy.next_step(3001 * US), IdleStep::Nap);
        policy.worked(20_000 * US);
        assert_eq!(policy.next_step(20_001 * US), IdleStep::Nap);
    }

    #[test]
    fn a_gap_between_polls_means_scarce() {
        let mut policy = policy_at(1);
        policy.worked(0);
        assert_eq!(policy.next_step(10 * US), IdleStep::Spin);
        policy.worked(20 * US);
        policy.next_step(21 * US);
        // Half a millisecond passed unseen within the spin time of later work.
        policy.worked = 600 * US;
        assert_eq!(policy.next_step(610 * US), IdleStep::Nap);
        policy.rested(10_000 * US);
    }
}
