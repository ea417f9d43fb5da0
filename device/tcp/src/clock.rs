//! The timestamp clock of a connection (RFC 7323, 5.4).

use std::time::Duration;

use vrnic_packet::Nanos;

use crate::context::{Tick, TimestampState};

/// Age at which the peer's newest timestamp becomes invalid, because a newer one may look older
/// (RFC 7323, 5.5). The peer's unit is unknown, so this is the time for microseconds, as in Linux.
const STALE: Duration = Duration::from_micros(1 << 31);

/// The timestamps of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    value: u32,
    since: Nanos,
    tick: Tick,
    /// The peer's newest value, and the time at which it arrived.
    pub(crate) recent: u32,
    recent_at: Nanos,
}

impl Clock {
    pub(crate) const fn new(now: Nanos, state: TimestampState) -> Self {
        let TimestampState { value, tick, recent } = state;
        Self { value, since: now, tick, recent, recent_at: now }
    }

    /// Returns the value for a segment that is sent at the time `at`.
    pub(crate) const fn value(&self, at: Nanos) -> u32 {
        let elapsed = at.since(self.since);
        let ticks = match self.tick {
            Tick::Millis => elapsed.as_millis(),
            Tick::Micros => elapsed.as_micros(),
        };
        // CAST: the value wraps.
        self.value.wrapping_add(ticks as u32)
    }

    /// Returns whether this value is older than one that arrived before it.
    pub(crate) fn is_old(&self, now: Nanos, value: u32) -> bool {
        is_before(value, self.recent) && now.since(self.recent_at) < STALE
    }

    /// Records the value of a segment that is not old.
    pub(crate) const fn update(&mut self, now: Nanos, value: u32) {
        (self.recent, self.recent_at) = (value, now);
    }

    /// Returns whether an echo belongs to a segment that was sent before the time `sent`.
    pub(crate) const fn echoes_earlier(&self, echo: u32, sent: Nanos) -> bool {
        is_before(echo, self.value(sent))
    }
}

const fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: tcp: timestamps after a long silence
    #[test]
    fn values_wrap_and_old_ones_count_for_36_minutes() {
        let state = TimestampState { value: u32::MAX, tick: Tick::Millis, recent: 5 };
        let mut clock = Clock::new(Nanos(0), state);
        assert_eq!(clock.value(Nanos(2_999_999)), 1);
        assert!(clock.echoes_earlier(u32::MAX, Nanos(2_000_000)));
        assert!(clock.is_old(Nanos(0), 4) && !clock.is_old(Nanos(0), 5));
        assert!(!clock.is_old(Nanos(0).plus(STALE), 4));
        // A peer that counts microseconds has been silent for 40 minutes.
        let pause = Duration::from_secs(2400);
        assert!(!clock.is_old(Nanos(0).plus(pause), 5 + pause.as_micros() as u32));
        clock.update(Nanos(0), u32::MAX - 1);
        assert!(clock.is_old(Nanos(0), u32::MAX - 2) && !clock.is_old(Nanos(0), 0));
    }
}
