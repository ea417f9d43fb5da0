//! Notifications of the receiver of marked packets.

use std::time::Duration;

use vrnic_packet::Nanos;
use vrnic_packet::ip::Ecn;

/// The minimum time between two notifications, as in the DCQCN paper (section 3.2).
const PERIOD: Duration = Duration::from_micros(50);

/// Decides when the receiver of marked packets sends a notification. Each queue pair has one.
#[derive(Clone, Copy, Debug)]
pub struct Notifier {
    period: Duration,
    last: Option<Nanos>,
    /// Number of marked packets (`np_ecn_marked_roce_packets`).
    pub marked: u64,
    /// Number of notifications sent (`np_cnp_sent`).
    pub sent: u64,
}

impl Default for Notifier {
    fn default() -> Self {
        Self::new(PERIOD)
    }
}

impl Notifier {
    /// Creates a notifier with a minimum time between two notifications
    /// (`min_time_between_cnps`).
    #[must_use]
    pub const fn new(period: Duration) -> Self {
        Self { period, last: None, marked: 0, sent: 0 }
    }

    /// Records a data packet with this mark. Returns whether a notification must be sent to its
    /// sender ([`crate::wire::Head::congestion`]).
    pub fn arrived(&mut self, now: Nanos, mark: Ecn) -> bool {
        if mark != Ecn::Marked {
            return false;
        }
        self.marked += 1;
        if self.last.is_some_and(|last| now.since(last) < self.period) {
            return false;
        }
        self.last = Some(now);
        self.sent += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_are_few() {
        for (period, expected) in [(50, 4), (100, 2), (0, 200)] {
            let mut notifier = Notifier::new(Duration::from_micros(period));
            assert!(!notifier.arrived(Nanos(1000), Ecn::Capable));
            let arrived = |micros: u64| notifier.arrived(Nanos(micros * 1000), Ecn::Marked);
            let sent = (0..200).map(arrived).filter(|sends| *sends).count();
            assert_eq!((sent as u64, notifier.marked), (expected, 200));
            assert_eq!(notifier.sent, expected);
        }
        assert_eq!(Notifier::default().period, Duration::from_micros(50));
    }
}
