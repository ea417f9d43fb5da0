//! Rates in bits per second, and the pacing of frames.

use std::fmt;
use std::time::Duration;

use crate::time::Nanos;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// A rate in bits per second, from 1 bit to 1 Tbit per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

impl Rate {
    /// The highest rate.
    pub const MAX: Self = Self(1_000 * SECOND);

    /// Returns the rate with this number of bits per second, or `None` if it is zero or above
    /// [`Self::MAX`].
    #[must_use]
    pub const fn new(bits_per_second: u64) -> Option<Self> {
        match bits_per_second {
            1..=1_000_000_000_000 => Some(Self(bits_per_second)),
            _ => None,
        }
    }

    /// Returns the rate with this number of bits per second, or the lowest or the highest rate if
    /// there is none.
    #[must_use]
    pub fn nearest(bits_per_second: u64) -> Self {
        Self(bits_per_second.clamp(1, Self::MAX.0))
    }

    /// Returns the number of bits per second.
    #[must_use]
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Returns the time that this number of bytes takes, rounded up to nanoseconds.
    #[must_use]
    pub fn time(self, bytes: u64) -> Duration {
        let bits = u128::from(bytes) * 8 * u128::from(SECOND);
        let nanos = bits.div_ceil(u128::from(self.0));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(SECOND, "G"), (1_000_000, "M"), (1_000, "k")] {
            if self.0.is_multiple_of(unit) {
                return write!(f, "{}{name}", self.0 / unit);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A token bucket: paces frames so that their rate is exact on average.
///
/// A frame may leave when the bucket is not empty, and takes its bits out of it also if there are
/// fewer. So no frame is too long for the bucket, and the average does not depend on the lengths of
/// frames.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    rate: Rate,
    /// The most that the bucket holds.
    most: i128,
    /// What is in the bucket, in bits times nanoseconds per second: no rounding is needed.
    credit: i128,
    /// The time up to which credit has been added.
    at: Nanos,
}

impl Pacer {
    /// The smallest burst in bytes. Times are rounded up to nanoseconds; the bucket holds what is
    /// lost by that.
    const BURST_MIN: u32 = 256;

    /// Creates a full bucket for `burst` bytes.
    #[must_use]
    pub fn new(rate: Rate, burst: u32) -> Self {
        let most = cost(burst.max(Self::BURST_MIN).into());
        Self { rate, most, credit: most, at: Nanos::default() }
    }

    /// Returns the rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate from now on.
    pub fn set_rate(&mut self, now: Nanos, rate: Rate) {
        self.fill(now);
        self.rate = rate;
    }

    /// Returns the time at which the next frame may leave, or `None` if it may leave now.
    pub fn waits_until(&mut self, now: Nanos) -> Option<Nanos> {
        self.fill(now);
        let missing = u128::try_from(-self.credit).ok().filter(|missing| *missing > 0)?;
        let wait = missing.div_ceil(u128::from(self.rate.0));
        Some(now.plus(Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))))
    }

    /// Takes a frame of this number of bytes out of the bucket.
    pub fn spend(&mut self, now: Nanos, bytes: u64) {
        self.fill(now);
        self.credit = self.credit.saturating_sub(cost(bytes));
    }

    /// Puts a frame back that [`Self::spend`] has taken out of the bucket and that did not leave.
    pub fn put_back(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_add(cost(bytes)).min(self.most);
    }

    fn fill(&mut self, now: Nanos) {
        if self.credit < self.most {
            let elapsed = now.0.saturating_sub(self.at.0);
            let more = i128::from(elapsed) * i128::from(self.rate.0);
            self.credit = self.credit.saturating_add(more).min(self.most);
        }
        self.at = self.at.max(now);
    }
}

/// Returns what a frame takes out of the bucket.
fn cost(bytes: u64) -> i128 {
    i128::from(bytes) * 8 * i128::from(SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(bits: u64) -> Rate {
        Rate::new(bits).expect("a rate")
    }

    /// Sends frames of these lengths for a time as early as possible. Returns the bits per second.
    fn send(pacer: &mut Pacer, lens: &[u64], span: u64) -> f64 {
        let (mut now, mut bytes) = (Nanos(0), 0);
        for len in lens.iter().cycle() {
            if let Some(at) = pacer.waits_until(now) {
                assert!(at > now);
                now = at;
            }
            if now.0 >= span {
                break;
            }
            pacer.spend(now, *len);
            bytes += len;
        }
        bytes as f64 * 8e9 / span as f64
    }

    #[test]
    fn the_average_is_exact_for_all_rates_and_lengths() {
        for bits in [1_000_000, 999_999_937, 10 * SECOND, 400 * SECOND] {
            for lens in [&[64][..], &[1518], &[9000], &[60, 9000, 700]] {
                let burst = 3000;
                // Long enough for thousands of frames, so that the first burst counts little.
                let span = 8 * SECOND * 40_000_000 / bits;
                let got = send(&mut Pacer::new(rate(bits), burst), lens, span);
                let error = (got / bits as f64 - 1.0).abs();
                assert!(error < 0.002, "{bits}, {lens:?}: {got}");
            }
        }
    }

    #[test]
    fn what_was_not_used_is_kept_up_to_the_burst() {
        let mut pacer = Pacer::new(rate(8 * SECOND), 1000);
        assert_eq!(pacer.waits_until(Nanos(0)), None);
        pacer.spend(Nanos(0), 1500);
        assert_eq!(pacer.waits_until(Nanos(0)), Some(Nanos(500)), "a byte takes a nanosecond");
        assert_eq!(pacer.waits_until(Nanos(500)), None);
        pacer.spend(Nanos(1_000_000), 1000);
        assert_eq!(pacer.waits_until(Nanos(1_000_000)), None);
        pacer.spend(Nanos(1_000_000), 7);
        assert_eq!(pacer.waits_until(Nanos(1_000_000)), Some(Nanos(1_000_007)));
        pacer.set_rate(Nanos(1_000_000), rate(SECOND));
        assert_eq!(pacer.waits_until(Nanos(1_000_000)), Some(Nanos(1_000_056)));
        pacer.put_back(6);
        assert_eq!(pacer.waits_until(Nanos(1_000_000)), Some(Nanos(1_000_008)));
        pacer.put_back(u64::MAX);
        pacer.spend(Nanos(1_000_000), 1001);
        assert_eq!(pacer.waits_until(Nanos(1_000_000)), Some(Nanos(1_000_008)), "a full bucket");
    }

    #[test]
    fn rates_have_bounds_and_short_names() {
        assert_eq!((Rate::new(0), Rate::new(u64::MAX)), (None, None));
        assert_eq!(Rate::nearest(0).bits_per_second(), 1);
        assert_eq!(Rate::nearest(u64::MAX), Rate::MAX);
        assert_eq!(Rate::MAX.time(u64::MAX).as_nanos(), u128::from(u64::MAX / 125 + 1));
        let names = [10 * SECOND, 2_500_000_000, 64_000, 7].map(|bits| rate(bits).to_string());
        assert_eq!(names, ["10G", "2500M", "64k", "7"]);
    }
}
