//! What the worker does when it has no work: it polls on for a while, sleeps until a program kicks,
//! or sleeps for a short time, after which a program that posts without a pause has posted much.

use std::time::{Duration, Instant};

/// Time for which the worker polls without a pause after the last work.
const SPIN: Duration = Duration::from_micros(100);
/// A kick so soon after the worker has polled in vain shows that the program could not run
/// meanwhile.
const SOON: Duration = Duration::from_micros(30);
/// Time for which the worker then does not poll on.
const CROWDED: Duration = Duration::from_millis(20);
/// The length of a nap.
pub const NAP: Duration = Duration::from_micros(30);
/// Number of messages in a nap with which it pays. Each message costs the sleep of the worker
/// otherwise.
const MANY: u64 = 4;
/// Number of kicks, each soon after the worker slept, before a nap is tried: at first, and at most.
const TRIES: u32 = 16;
const TRIES_MAX: u32 = 1024;

/// The longest sleep after recent work, and after none for [`LAZY`]. Whoever writes to a kick page
/// without the plugin, which may do so for a queue that was handed over, wakes nobody.
const LONGEST: Duration = Duration::from_millis(1);
const LONGEST_LAZY: Duration = Duration::from_millis(10);
const LAZY: Duration = Duration::from_secs(1);

/// What to do without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Poll on.
    Poll,
    /// Sleep until a kick.
    Sleep,
    /// Sleep for [`NAP`].
    Nap,
}

/// The history on which that depends.
#[derive(Debug)]
pub struct Pause {
    /// The time of the last work.
    worked: Instant,
    /// The time until which polling is in vain, because the processor has other work.
    crowded: Instant,
    /// Number of kicks that each ended a sleep soon.
    kicks: u32,
    /// Number of these before a nap is tried.
    tries: u32,
}

impl Pause {
    /// Returns the history of a worker that begins now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { worked: now, crowded: now, kicks: 0, tries: TRIES }
    }

    /// Records that there was work.
    pub fn worked(&mut self, now: Instant) {
        self.worked = now;
    }

    /// Returns what to do without work.
    #[must_use]
    pub fn idle(&self, now: Instant) -> Idle {
        if now < self.crowded {
            if self.kicks >= self.tries { Idle::Nap } else { Idle::Sleep }
        } else if now.duration_since(self.worked) < SPIN {
            Idle::Poll
        } else {
            Idle::Sleep
        }
    }

    /// Returns the longest sleep.
    #[must_use]
    pub fn longest(&self, now: Instant) -> Duration {
        if now.duration_since(self.worked) < LAZY { LONGEST } else { LONGEST_LAZY }
    }

    /// Records a sleep of this length, after which there was work or not.
    pub fn slept(&mut self, now: Instant, length: Duration, work: bool) {
        if work && length < SOON {
            self.crowded = now + CROWDED;
            self.kicks = self.kicks.saturating_add(1);
        } else {
            self.kicks = 0;
        }
    }

    /// Records a nap, after which there were this many messages.
    pub fn napped(&mut self, now: Instant, messages: u64) {
        if messages >= MANY {
            self.crowded = now + CROWDED;
            self.tries = TRIES;
        } else {
            self.kicks = 0;
            self.tries = self.tries.saturating_mul(2).min(TRIES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowded(now: Instant) -> Pause {
        let mut pause = Pause::new(now);
        pause.slept(now, Duration::ZERO, true);
        pause
    }

    #[test]
    fn the_worker_polls_on_for_a_while_unless_that_was_in_vain() {
        let now = Instant::now();
        let mut pause = Pause::new(now);
        assert_eq!(pause.idle(now), Idle::Poll);
        assert_eq!(pause.idle(now + SPIN), Idle::Sleep);
        pause.slept(now, SOON, true);
        assert_eq!(pause.idle(now), Idle::Poll, "the work came later");
        pause.slept(now, Duration::ZERO, true);
        assert_eq!(pause.idle(now), Idle::Sleep);
        pause.worked(now + CROWDED);
        assert_eq!(pause.idle(now + CROWDED), Idle::Poll);
    }

    #[test]
    fn the_worker_looks_seldom_after_a_long_time_without_work() {
        let now = Instant::now();
        let pause = Pause::new(now);
        assert!(pause.longest(now) < pause.longest(now + LAZY));
    }

    #[test]
    fn the_worker_naps_as_long_as_naps_pay() {
        let now = Instant::now();
        let mut pause = crowded(now);
        for _ in 1..TRIES {
            assert_eq!(pause.idle(now), Idle::Sleep);
            pause.slept(now, Duration::ZERO, true);
        }
        assert_eq!(pause.idle(now), Idle::Nap);
        pause.napped(now, MANY);
        assert_eq!(pause.idle(now), Idle::Nap);
        pause.napped(now, 1);
        assert_eq!(pause.idle(now), Idle::Sleep);
        for _ in 1..2 * TRIES {
            pause.slept(now, Duration::ZERO, true);
            assert_eq!(pause.idle(now), Idle::Sleep, "the next trial comes later");
        }
        pause.slept(now, Duration::ZERO, true);
        assert_eq!(pause.idle(now), Idle::Nap);
    }
}
