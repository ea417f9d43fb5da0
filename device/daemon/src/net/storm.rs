//! Limits the frames of a guest's network card that go to all ports: those to groups, and those to
//! addresses that the switch does not know. Each of them costs the switch, and all guests, as much
//! as many others. Frames of adapters are not limited: their workers give each adapter its turns.

use std::time::{Duration, Instant};

use vrnic_control_api::storm::StormLimit;

/// Time for which a guest that has sent no such frame for long may exceed the limit: the frames of
/// this time may come at once.
const BURST: Duration = Duration::from_millis(100);

/// The frames of a port, measured against its limit.
#[derive(Debug)]
pub struct Storm {
    limit: StormLimit,
    /// The time at which all frames that have passed would have been sent at the limit's rate.
    level: Instant,
}

impl Storm {
    /// Begins to measure.
    #[must_use]
    pub fn new(limit: StormLimit, now: Instant) -> Self {
        Self { limit, level: now }
    }

    /// Returns whether this number of frames may pass together.
    pub fn admits(&mut self, frames: usize, now: Instant) -> bool {
        let Some(each) = Duration::from_secs(1).checked_div(self.limit.0) else { return true };
        let level = self.level.max(now);
        if level.saturating_duration_since(now) > BURST {
            return false;
        }
        self.level = level + each.saturating_mul(u32::try_from(frames).unwrap_or(u32::MAX));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_pass_at_the_limit_s_rate_after_a_burst() {
        let start = Instant::now();
        let mut storm = Storm::new(StormLimit(1000), start);
        let burst = (0..5000).filter(|_| storm.admits(1, start)).count();
        assert_eq!(burst, 101, "the frames of 100 ms, and one");
        let next = |ms| start + Duration::from_millis(ms);
        let steady = (1..=5000).filter(|ms| storm.admits(1, next(*ms))).count();
        assert_eq!(steady, 5000);
        let twice = (5001..=7000).filter(|ms| {
            let admitted = storm.admits(1, next(*ms));
            storm.admits(1, next(*ms)) && admitted
        });
        assert!(twice.count() <= 1);
        assert!(storm.admits(50, next(8000)));
    }

    #[test]
    fn zero_is_no_limit() {
        let now = Instant::now();
        let mut storm = Storm::new(StormLimit(0), now);
        assert!((0..1_000_000).all(|_| storm.admits(1, now)));
    }
}
