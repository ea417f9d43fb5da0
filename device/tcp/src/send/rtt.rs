//! The round trip time and the retransmission time-out (RFC 6298).

use std::time::Duration;

use vrnic_packet::Nanos;

/// The time-out before the first measurement (RFC 6298, 2.1).
const INITIAL: Duration = Duration::from_secs(1);
/// The maximum time-out (RFC 6298, 2.5).
const MAX: Duration = Duration::from_secs(60);
/// The minimum time-out that can be configured.
const MIN: Duration = Duration::from_millis(1);
/// The period over which the minimum round trip time is taken (RFC 8985, 6.2).
const MIN_WINDOW: Duration = Duration::from_secs(300);

/// A peer that has held an acknowledgement back takes at least this time longer for it. Linux
/// delays acknowledgements by 40 ms (`TCP_DELACK_MIN` in `tcp.h`).
const DELAY: Duration = Duration::from_millis(30);

/// Estimates of the round trip time.
#[derive(Debug)]
pub(crate) struct Rtt {
    estimate: Option<(Duration, Duration)>,
    shortest: Option<(Duration, Nanos)>,
    min_rto: Duration,
    /// Number of consecutive time-outs, each of which doubles the next one.
    backoff: u32,
    /// Number of measurements that were longer than the shortest one by [`DELAY`] or more.
    delayed: u32,
}

impl Rtt {
    pub(crate) fn new(estimate: Option<(Duration, Duration)>, min_rto: Duration) -> Self {
        Self { estimate, shortest: None, min_rto: min_rto.max(MIN), backoff: 0, delayed: 0 }
    }

    /// Adds a measurement.
    pub(crate) fn sample(&mut self, now: Nanos, sample: Duration) {
        let late = self.shortest.is_some_and(|(shortest, _)| sample >= shortest + DELAY);
        self.delayed = self.delayed.saturating_add(u32::from(late));
        let fresh = self.shortest.filter(|(_, at)| now.since(*at) < MIN_WINDOW);
        if fresh.is_none_or(|(shortest, _)| sample <= shortest) {
            self.shortest = Some((sample, now));
        }
        self.estimate = Some(match self.estimate {
            None => (sample, sample / 2),
            Some((smoothed, variation)) => {
                let error = smoothed.abs_diff(sample);
                ((smoothed * 7 + sample) / 8, (variation * 3 + error) / 4)
            }
        });
    }

    /// Returns the smoothed round trip time and its variation.
    pub(crate) const fn estimate(&self) -> Option<(Duration, Duration)> {
        self.estimate
    }

    /// Returns the smoothed round trip time.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.estimate.map(|(smoothed, _)| smoothed)
    }

    /// Returns the minimum round trip time of the last minutes.
    pub(crate) fn shortest(&self) -> Option<Duration> {
        self.shortest.map(|(shortest, _)| shortest)
    }

    /// Returns the number of acknowledgements that seem to have been held back by the peer.
    pub(crate) const fn delayed(&self) -> u32 {
        self.delayed
    }

    /// Returns the time-out, doubled for each time-out since the last acknowledgement.
    pub(crate) fn timeout(&self) -> Duration {
        let base = self.estimate.map_or(INITIAL, |(smoothed, variation)| smoothed + variation * 4);
        base.max(self.min_rto).saturating_mul(1 << self.backoff.min(16)).min(MAX)
    }

    pub(crate) fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    pub(crate) fn restart(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_estimate_follows_rfc_6298() {
        let mut rtt = Rtt::new(None, 10 * MS);
        assert_eq!(rtt.timeout(), INITIAL);
        rtt.sample(Nanos(0), 100 * MS);
        assert_eq!((rtt.smoothed(), rtt.timeout()), (Some(100 * MS), 300 * MS));
        rtt.sample(Nanos(1), 180 * MS);
        assert_eq!(rtt.smoothed(), Some(110 * MS));
        assert_eq!(rtt.timeout(), 110 * MS + 4 * Duration::from_micros(57_500));
        rtt.back_off();
        assert_eq!(rtt.timeout(), 2 * (340 * MS));
        (0..50).for_each(|_| rtt.back_off());
        assert_eq!(rtt.timeout(), MAX);
        rtt.restart();
        assert_eq!(rtt.timeout(), 340 * MS);
    }

    #[test]
    fn the_shortest_round_trip_is_forgotten_after_minutes() {
        let mut rtt = Rtt::new(None, MS);
        rtt.sample(Nanos(0), MS);
        rtt.sample(Nanos(1), 2 * MS);
        assert_eq!(rtt.shortest(), Some(MS));
        rtt.sample(Nanos(0).plus(MIN_WINDOW), 3 * MS);
        assert_eq!(rtt.shortest(), Some(3 * MS));
    }
    #[test]
    fn acknowledgements_that_the_peer_holds_back_are_counted() {
        let mut rtt = Rtt::new(None, MS);
        rtt.sample(Nanos(0), 70 * MS);
        rtt.sample(Nanos(1), MS);
        rtt.sample(Nanos(2), 30 * MS);
        assert_eq!(rtt.delayed(), 0);
        rtt.sample(Nanos(3), 41 * MS);
        assert_eq!(rtt.delayed(), 1);
    }
}
