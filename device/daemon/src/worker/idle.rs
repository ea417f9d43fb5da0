//! Decides when a worker without work spins, naps or sleeps.
//!
//! Spinning answers a doorbell within 0.1 µs, but only while no other thread needs the processor:
//! if three threads spin on two processors, each waits for scheduler slices of milliseconds.
//! Napping with a short slice answers within tens of microseconds even then. So a worker spins
//! while processors are free, naps when they are not, and sleeps when there has been no work for
//! long.

use std::time::Duration;

use vrnic_packet::Nanos;

use crate::os::sys::LoadMeter;

/// Time between two checks of the load.
const LOAD_CHECK_PERIOD: Duration = Duration::from_millis(2);
/// Time for which the worker does not spin after a check has found that processors are scarce.
const SCARCE_HOLD: Duration = Duration::from_millis(50);
/// Minimum time between two polls from which follows that another thread had the processor.
const GAP: Duration = Duration::from_micros(500);
/// Time for which the worker does not spin after such a gap.
const GAP_HOLD: Duration = Duration::from_millis(200);

/// Length of a nap.
pub const NAP: Duration = Duration::from_micros(15);

/// Times after which a worker without work spins, naps and sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleConfig {
    /// Maximum duration of spinning, while processors are free.
    pub spin: Duration,
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

/// The policy of one worker. All times are of one monotonic clock.
#[derive(Debug)]
pub struct IdlePolicy<L> {
    spin: Duration,
    sleep: Duration,
    cpus: usize,
    load: Option<L>,
    /// The time of the last work.
    worked: Nanos,
    /// The time of the last call.
    last: Nanos,
    load_checked_at: Nanos,
    scarce_until: Nanos,
}

impl<L: Load> IdlePolicy<L> {
    /// Creates the policy for a machine of `cpus` processors.
    #[must_use]
    pub fn new(config: &IdleConfig, cpus: usize, load: Option<L>, now: Nanos) -> Self {
        Self {
            spin: config.spin,
            sleep: config.sleep,
            cpus,
            load,
            worked: now,
            last: now,
            load_checked_at: now,
            scarce_until: Nanos::default(),
        }
    }

    /// Records that a poll found work.
    #[inline]
    pub fn worked(&mut self, now: Nanos) {
        self.worked = now;
        self.last = now;
    }

    /// Returns what to do after a poll that has found no work.
    pub fn next_step(&mut self, now: Nanos) -> IdleStep {
        let idle = now.since(self.worked);
        if idle >= self.sleep {
            return IdleStep::Sleep;
        }
        if idle >= self.spin || self.scarce(now) { IdleStep::Nap } else { IdleStep::Spin }
    }

    /// Records that the worker napped or slept until `now`, so that this is not taken for a gap.
    pub fn rested(&mut self, now: Nanos) {
        self.last = now;
    }

    /// Returns whether spinning would take a processor from another thread.
    fn scarce(&mut self, now: Nanos) -> bool {
        if now.since(self.last) > GAP {
            self.scarce_until = self.scarce_until.max(now.plus(GAP_HOLD));
        }
        self.last = now;
        if now.since(self.load_checked_at) > LOAD_CHECK_PERIOD {
            self.load_checked_at = now;
            let runnable = self.load.as_ref().and_then(Load::runnable);
            if runnable.is_some_and(|runnable| runnable > self.cpus) {
                self.scarce_until = self.scarce_until.max(now.plus(SCARCE_HOLD));
            }
        }
        now < self.scarce_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(time: u64) -> Nanos {
        Nanos(time * 1000)
    }

    struct Fixed(usize);

    impl Load for Fixed {
        fn runnable(&self) -> Option<usize> {
            Some(self.0)
        }
    }

    fn policy_at(runnable: usize) -> IdlePolicy<Fixed> {
        let config = IdleConfig {
            spin: Duration::from_micros(50),
            sleep: Duration::from_micros(2000),
            ..IdleConfig::default()
        };
        IdlePolicy::new(&config, 2, Some(Fixed(runnable)), Nanos(0))
    }

    #[test]
    fn free_processors_spin_then_nap_then_sleep() {
        let mut policy = policy_at(2);
        policy.worked(us(100));
        assert_eq!(policy.next_step(us(110)), IdleStep::Spin);
        assert_eq!(policy.next_step(us(151)), IdleStep::Nap);
        assert_eq!(policy.next_step(us(2101)), IdleStep::Sleep);
    }

    #[test]
    fn scarce_processors_nap_at_once_and_for_a_while() {
        let mut policy = policy_at(3);
        policy.worked(us(3000));
        assert_eq!(policy.next_step(us(3001)), IdleStep::Nap);
        policy.worked(us(20_000));
        assert_eq!(policy.next_step(us(20_001)), IdleStep::Nap);
    }

    #[test]
    fn a_gap_between_polls_means_scarce() {
        let mut policy = policy_at(1);
        policy.worked(us(0));
        assert_eq!(policy.next_step(us(10)), IdleStep::Spin);
        policy.worked(us(20));
        policy.next_step(us(21));
        // Half a millisecond passed unseen within the spin time of later work.
        policy.worked = us(600);
        assert_eq!(policy.next_step(us(610)), IdleStep::Nap);
        policy.rested(us(10_000));
    }
}
