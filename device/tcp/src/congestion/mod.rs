//! Congestion control: the number of bytes that may be in flight.
//!
//! | module | contents |
//! | --- | --- |
//! | `cubic` | CUBIC |

mod cubic;

use std::fmt::Debug;
use std::time::Duration;

use vrnic_packet::Nanos;

use self::cubic::Cubic;
use crate::context::Algorithm;

/// The initial window in segments (RFC 6928).
const INITIAL_SEGMENTS: u64 = 10;
/// The lowest slow start threshold in segments (RFC 5681, 3.1).
const MIN_SEGMENTS: u64 = 2;

/// Bytes that were acknowledged while the window was in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) now: Nanos,
    pub(crate) bytes: u64,
    /// The smoothed round trip time.
    pub(crate) rtt: Duration,
}

/// An algorithm of congestion control. All amounts are in bytes.
pub(crate) trait Congestion: Debug + Send + Sync {
    /// Returns the congestion window.
    fn window(&self) -> u64;

    /// Returns the slow start threshold.
    fn threshold(&self) -> u64;

    /// Records an acknowledgement outside of a recovery.
    fn acknowledged(&mut self, ack: Acknowledged);

    /// Reduces the window at the start of a recovery, with `flight` bytes in flight.
    fn reduce(&mut self, flight: u64);

    /// Reduces the window after a retransmission time-out. `first` is true for the first time-out
    /// since the last acknowledgement.
    fn timed_out(&mut self, flight: u64, first: bool);

    /// Reduces the window after a pause in sending that was longer than a time-out (RFC 5681, 4.1).
    fn restart(&mut self);
}

/// Creates an algorithm for segments of `mss` bytes.
pub(crate) fn controller(algorithm: Algorithm, mss: u64) -> Box<dyn Congestion> {
    match algorithm {
        Algorithm::None => Box::new(Unlimited),
        Algorithm::Cubic => Box::new(Cubic::new(mss)),
    }
}

/// No congestion control.
#[derive(Debug)]
struct Unlimited;

impl Congestion for Unlimited {
    fn window(&self) -> u64 {
        u64::MAX
    }

    fn threshold(&self) -> u64 {
        u64::MAX
    }

    fn acknowledged(&mut self, _: Acknowledged) {}

    fn reduce(&mut self, _: u64) {}

    fn timed_out(&mut self, _: u64, _: bool) {}

    fn restart(&mut self) {}
}

/// The window, and slow start.
#[derive(Debug)]
struct Base {
    mss: u64,
    window: u64,
    threshold: u64,
}

impl Base {
    const fn new(mss: u64) -> Self {
        Self { mss, window: INITIAL_SEGMENTS * mss, threshold: u64::MAX }
    }

    /// Grows the window in slow start by the acknowledged bytes, as Linux does: a receiver that
    /// processes many segments at once acknowledges them once, so a limit for each acknowledgement
    /// (RFC 3465) would make slow start linear. Returns the number of bytes beyond the threshold.
    fn slow_start(&mut self, bytes: u64) -> u64 {
        if self.window >= self.threshold {
            return bytes;
        }
        let grown = self.window.saturating_add(bytes).min(self.threshold);
        let beyond = bytes - (grown - self.window);
        self.window = grown;
        beyond
    }

    fn reduce_to(&mut self, threshold: u64) {
        self.threshold = threshold.max(MIN_SEGMENTS * self.mss);
        self.window = self.threshold;
    }

    fn restart(&mut self) {
        self.window = self.window.min(INITIAL_SEGMENTS * self.mss);
    }
}
