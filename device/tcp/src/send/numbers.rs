//! The numbers of the sending direction that people look at when a connection is slow.

use std::time::Duration;

use super::timers::RETRIES;
use super::{SendCounters, Sender};

/// The state of the sending direction at one time. Amounts are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendNumbers {
    /// Maximum number of data bytes in a segment.
    pub mss: u64,
    /// The smoothed round trip time and its variation, if they have been measured.
    pub round_trip: Option<(Duration, Duration)>,
    /// The retransmission time-out, doubled for each one in a row.
    pub timeout: Duration,
    /// Number of time-outs in a row since the last progress.
    pub retries: u32,
    /// The time without progress after which the connection ends.
    pub user_timeout: Duration,
    /// The congestion window; `u64::MAX` without congestion control.
    pub congestion_window: u64,
    /// The threshold at which the slow start of this window ends; `u64::MAX` if there is none.
    pub threshold: u64,
    /// What the peer permits from the first unacknowledged byte on.
    pub window: u64,
    /// What was sent and is not acknowledged.
    pub unacknowledged: u64,
    /// What the sender has counted.
    pub counters: SendCounters,
}

impl SendNumbers {
    /// The number of time-outs in a row with which a connection still goes on.
    pub const MAX_RETRIES: u8 = RETRIES;
}

impl Sender {
    /// Returns the numbers.
    pub(crate) fn numbers(&self) -> SendNumbers {
        SendNumbers {
            mss: self.mss as u64,
            round_trip: self.rtt.estimate(),
            timeout: self.rtt.timeout(),
            retries: self.timers.retries,
            user_timeout: self.timers.user_timeout(),
            congestion_window: self.congestion.window(),
            threshold: self.congestion.threshold(),
            window: self.edge.since(self.una),
            unacknowledged: self.next.since(self.una),
            counters: self.counters,
        }
    }
}
