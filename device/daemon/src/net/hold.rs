//! The pauses in which frames of uplinks wait, because an adapter has no room for more.
//!
//! Frames wait in the sockets and at their senders, which slows down a sender that is faster than
//! the adapter. But those for other adapters wait with them. While others receive frames, too, the
//! time of all such pauses is therefore limited to a small part. Then the frames for the slow
//! adapter are dropped, as a network card drops them.

use std::time::{Duration, Instant};

/// Maximum duration of a pause.
pub const HOLD: Duration = Duration::from_millis(300);
/// The part of the time, as a divisor, that pauses take while others receive frames.
const PART: u32 = 20;
/// Maximum duration of a pause while others receive frames. A sender can be slowed down that long
/// without loss after it was not slowed down for some time.
const CREDIT: Duration = Duration::from_millis(10);
/// Shortest time for which a pause may be begun in this case.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Time after its last frame from an uplink for which a port counts as one that receives.
pub const ACTIVE: Duration = Duration::from_secs(1);

/// The pauses that an adapter has caused.
#[derive(Debug)]
pub struct Hold {
    /// The time since which the adapter has no room.
    since: Option<Instant>,
    /// True if the uplinks are not read because of the adapter.
    pauses: bool,
    /// Time for which it may cause pauses while others receive frames.
    credit: Duration,
    /// The time at which the credit was last computed.
    counted: Instant,
}

impl Hold {
    /// Creates the state of an adapter that has room.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { since: None, pauses: false, credit: CREDIT, counted: now }
    }

    /// Returns whether the uplinks are not read because of this adapter.
    #[must_use]
    pub const fn pauses(&self) -> bool {
        self.pauses
    }

    /// Decides whether the uplinks are not read from now on because of this adapter. `sharing` is
    /// the number of adapters if other ports receive frames from uplinks, too.
    pub fn pause(&mut self, has_room: bool, sharing: Option<u32>, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.counted);
        self.counted = now;
        self.credit = if self.pauses {
            self.credit.saturating_sub(passed)
        } else {
            let divisor = PART.saturating_mul(sharing.unwrap_or(1)).max(1);
            self.credit.saturating_add(passed / divisor).min(CREDIT)
        };
        if has_room {
            self.since = None;
            self.pauses = false;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let least = if self.pauses { Duration::from_nanos(1) } else { PAUSE_MIN };
        self.pauses = now.saturating_duration_since(since) <= HOLD
            && (sharing.is_none() || self.credit >= least);
        self.pauses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(10);

    /// Returns the part of a second that an adapter pauses the uplinks, if it has room for `room`
    /// after each `period`.
    fn paused(sharing: Option<u32>, period: Duration, room: Duration) -> f64 {
        let start = Instant::now();
        let (mut hold, mut now, mut paused) = (Hold::new(start), start, Duration::ZERO);
        while now < start + Duration::from_secs(3) {
            let phase = now.duration_since(start).as_nanos() % period.as_nanos();
            if hold.pause(phase < room.as_nanos(), sharing, now) {
                paused += STEP;
            }
            now += STEP;
        }
        paused.as_secs_f64() / 3.0
    }

    /// Shows: network
    #[test]
    fn an_adapter_that_is_slow_for_long_pauses_others_for_a_short_part_of_the_time() {
        let [ms, period] = [1, 300].map(Duration::from_millis);
        for period in [2 * ms, period] {
            assert!(paused(Some(1), period, ms) < 0.06, "{period:?}");
            assert!(paused(Some(10), period, ms) < 0.01, "{period:?}");
        }
    }

    #[test]
    fn an_adapter_that_pauses_no_other_one_may_pause_longer() {
        let [ms, period] = [1, 100].map(Duration::from_millis);
        assert!(paused(None, period, ms) > 0.98);
        let stuck = paused(None, Duration::from_secs(60), Duration::ZERO);
        assert!(stuck < 0.11, "a stuck adapter stops its guest's network card for {stuck}");
    }
}
