//! The time that the steps of something take.

use std::time::{Duration, Instant};

/// A clock that runs from step to step.
#[derive(Debug)]
pub(crate) struct Clock {
    last: Instant,
    /// The steps that have ended, and their time.
    pub(crate) steps: Vec<(&'static str, Duration)>,
}

impl Clock {
    /// Starts the first step.
    pub(crate) fn start() -> Self {
        Self { last: Instant::now(), steps: Vec::new() }
    }

    /// Ends a step and starts the next one.
    pub(crate) fn step(&mut self, name: &'static str) {
        let now = Instant::now();
        self.steps.push((name, now.saturating_duration_since(self.last)));
        self.last = now;
    }

    /// Ends two steps, of which the first took the time `first`.
    pub(crate) fn split(&mut self, name: &'static str, first: Duration, next: &'static str) {
        let now = Instant::now();
        let both = now.saturating_duration_since(self.last);
        self.steps.push((name, first.min(both)));
        self.steps.push((next, both.saturating_sub(first)));
        self.last = now;
    }
}

/// Returns the steps as a sentence says them.
#[must_use]
pub fn sentence(steps: &[(&'static str, Duration)]) -> String {
    let part = |(name, time): &(&str, Duration)| format!("{:.1} s for {name}", time.as_secs_f64());
    steps.iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_steps_take_the_time_between_them() {
        let mut clock = Clock::start();
        std::thread::sleep(Duration::from_millis(20));
        clock.split("one", Duration::from_millis(5), "two");
        let [("one", one), ("two", two)] = clock.steps[..] else { panic!("{clock:?}") };
        assert_eq!(one, Duration::from_millis(5));
        assert!(two >= Duration::from_millis(15), "{two:?}");
    }

    #[test]
    fn steps_are_said_in_order() {
        let steps =
            [("the daemon", Duration::from_millis(120)), ("the kernels", Duration::from_secs(9))];
        assert_eq!(sentence(&steps), "0.1 s for the daemon, 9.0 s for the kernels");
    }
}
