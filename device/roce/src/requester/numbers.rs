//! The numbers of a requester that people look at when a connection is slow.

use std::time::Duration;

use super::Requester;

/// The state of a requester at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The path MTU in bytes.
    pub mtu: u32,
    /// The smoothed round trip time, if it was measured.
    pub round_trip: Option<Duration>,
    /// The maximum wait for an answer, if there is one.
    pub timeout: Option<Duration>,
    /// Number of time-outs without progress.
    pub retries: u8,
    /// The number of them after which the connection fails with the next one.
    pub retry_limit: u8,
    /// The window of congestion control in bytes, if there is one.
    pub congestion_window: Option<u32>,
    /// The rate of congestion control in bits per second, if there is one.
    pub congestion_rate: Option<u64>,
    /// Packets that were sent and are not answered.
    pub outstanding: u32,
}

impl Requester {
    /// Returns the numbers.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        Numbers {
            mtu: self.config.mtu.bytes(),
            round_trip: self.trip.smoothed(),
            timeout: self.config.timeout.duration(),
            retries: self.config.retry_count.saturating_sub(self.retries),
            retry_limit: self.config.retry_count,
            congestion_window: self.window.as_ref().map(|window| window.bytes()),
            congestion_rate: self.rate.as_ref().map(|rate| rate.rate().bits_per_second()),
            outstanding: self.high.since(self.oldest),
        }
    }
}
