//! The smoothed round trip time (RFC 6298), measured with packets that were sent once (Karn's
//! algorithm: an answer to a packet that was sent twice could be for either).

use std::time::Duration;

use vrnic_packet::Nanos;

use crate::psn::Psn;

/// The measurement of a requester.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    smoothed: Option<Duration>,
    /// A packet that asked for an acknowledgement, and its time of sending.
    sample: Option<(Psn, Nanos)>,
}

impl RoundTrip {
    /// Records that a packet that asks for an acknowledgement is sent for the first time.
    pub(super) fn sent(&mut self, psn: Psn, now: Nanos) {
        self.sample.get_or_insert((psn, now));
    }

    /// Discards the measurement in progress, because packets are sent again.
    pub(super) const fn forget(&mut self) {
        self.sample = None;
    }

    /// Records that all packets before `oldest` have been answered. Returns the round trip time, if
    /// it was measured.
    pub(super) fn answered(&mut self, oldest: Psn, now: Nanos) -> Option<Duration> {
        let (_, sent) = self.sample.take_if(|(psn, _)| psn.is_before(oldest))?;
        let time = now.since(sent);
        self.smoothed = Some(match self.smoothed {
            None => time,
            Some(smoothed) => (smoothed * 7 + time) / 8,
        });
        Some(time)
    }

    /// Returns the smoothed time, if any was measured.
    pub(super) const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_is_measured_at_a_time() {
        let (mut trip, at) = (RoundTrip::default(), Nanos);
        trip.sent(Psn::new(5), at(100));
        trip.sent(Psn::new(6), at(200));
        assert_eq!(trip.answered(Psn::new(5), at(300)), None, "not yet");
        assert_eq!(trip.answered(Psn::new(6), at(900)), Some(Duration::from_nanos(800)));
        assert_eq!(trip.smoothed(), Some(Duration::from_nanos(800)));
        assert_eq!(trip.answered(Psn::new(7), at(900)), None);
        trip.sent(Psn::new(7), at(1000));
        trip.forget();
        assert_eq!(trip.answered(Psn::new(9), at(2000)), None, "it was sent again");
        trip.sent(Psn::new(9), at(1000));
        assert!(trip.answered(Psn::new(10), at(2600)).is_some());
        assert_eq!(trip.smoothed(), Some(Duration::from_nanos(900)));
    }
}
