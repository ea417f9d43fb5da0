//! Congestion control: how many bytes may be under way.
//!
//! | module | contents |
//! | --- | --- |
//! | `newreno` | NewReno |
//! | `cubic` | CUBIC |

mod cubic;
mod newreno;

use std::fmt::Debug;
use std::time::Duration;

use self::cubic::Cubic;
use self::newreno::NewReno;
use crate::context::Algorithm;
use crate::time::Nanos;

/// Segments of the first window (RFC 6928).
const INITIAL_SEGMENTS: u64 = 10;
/// The smallest threshold between the two phases, in segments (RFC 5681, 3.1).
const MIN_SEGMENTS: u64 = 2;

/// Bytes that were acknowledged while the window was in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) now: Nanos,
    pub(crate) bytes: u64,
    /// The smoothed round trip time.
    pub(crate) rtt: Duration,
}

/// An algorithm of congestion control. All amounts are bytes.
pub(crate) trait Congestion: Debug + Send + Sync {
    /// Bytes that may be under way.
    fn window(&self) -> u64;

    /// The window below which it grows fast.
    fn threshold(&self) -> u64;

    /// Bytes were acknowledged outside of a recovery.
    fn acknowledged(&mut self, ack: Acknowledged);

    /// A recovery begins, with so many bytes under way.
    fn reduce(&mut self, flight: u64);

    /// No acknowledgement came in time; `first` for the first time since the last one.
    fn timed_out(&mut self, flight: u64, first: bool);

    /// Nothing was sent for longer than a time-out (RFC 5681, 4.1).
    fn restart(&mut self);
}

/// Makes an algorithm for segments of `mss` bytes.
pub(crate) fn controller(algorithm: Algorithm, mss: u64) -> Box<dyn Congestion> {
    match algorithm {
        Algorithm::None => Box::new(Unlimited),
        Algorithm::NewReno => Box::new(NewReno::new(mss)),
        Algorithm::Cubic => Box::new(Cubic::new(mss)),
    }
}

/// No control.
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

/// The part that NewReno and CUBIC have in common: the window, and slow start.
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

    /// Grows in slow start, by two segments for each acknowledgement at most (RFC 3465). Returns
    /// the bytes beyond the threshold.
    fn slow_start(&mut self, bytes: u64) -> u64 {
        if self.window >= self.threshold {
            return bytes;
        }
        self.window = self.window.saturating_add(bytes.min(2 * self.mss));
        0
    }

    fn reduce_to(&mut self, threshold: u64) {
        self.threshold = threshold.max(MIN_SEGMENTS * self.mss);
        self.window = self.threshold;
    }

    fn restart(&mut self) {
        self.window = self.window.min(INITIAL_SEGMENTS * self.mss);
    }
}
