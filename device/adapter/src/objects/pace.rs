//! The ceilings of a function: how many bytes and messages its send queues begin in a second. A
//! work request that would be above a ceiling waits in its send queue, and nothing else does: the
//! messages of peers arrive, and messages that have begun go on.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use vrnic_packet::Nanos;

/// The time for which a function that has sent less than it may can send faster afterwards. It also
/// makes up for the late wake-ups of workers, so that a function that always has work reaches its
/// ceilings.
const CREDIT: Duration = Duration::from_millis(1);
/// Binary digits behind the point of a time in nanoseconds, and of the time of one unit.
const TIME_DIGITS: u32 = 8;
const UNIT_DIGITS: u32 = 20;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The ceilings of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceilings {
    /// Bytes of messages per second: sent by SEND, WRITE and atomics, asked for by READ.
    pub bytes: Option<NonZeroU64>,
    /// Messages per second.
    pub messages: Option<NonZeroU64>,
}

/// The ceilings of an adapter, and how much of them is used. All its workers share it.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// True if there is a ceiling.
    limited: AtomicBool,
    bytes: Bucket,
    messages: Bucket,
}

/// A ceiling.
#[derive(Debug, Default)]
struct Bucket {
    /// The time that one unit takes, in 2^-20 ns; zero without a ceiling.
    unit: AtomicU64,
    /// The time at which all that has begun would be done at the rate of the ceiling, in 2^-8 ns.
    due: AtomicU64,
}

impl Pace {
    /// Sets the ceilings. What has begun before does not count.
    pub(crate) fn set(&self, ceilings: Ceilings) {
        self.bytes.set(ceilings.bytes);
        self.messages.set(ceilings.messages);
        self.limited.store(ceilings != Ceilings::default(), Ordering::Release);
    }

    /// Returns the time before which no message may begin, if it is not over. `now` is called only
    /// if there is a ceiling.
    #[inline]
    pub(crate) fn wait(&self, now: impl FnOnce() -> Nanos) -> Option<Nanos> {
        if !self.limited.load(Ordering::Relaxed) {
            return None;
        }
        let due = self.bytes.due().max(self.messages.due());
        Some(due).filter(|due| *due > now())
    }

    /// Counts a message that begins.
    #[inline]
    pub(crate) fn spend(&self, bytes: u64, now: impl FnOnce() -> Nanos) {
        if self.limited.load(Ordering::Relaxed) {
            let now = now();
            self.bytes.spend(bytes, now);
            self.messages.spend(1, now);
        }
    }
}

impl Bucket {
    fn set(&self, per_second: Option<NonZeroU64>) {
        let unit = per_second.map_or(0, |rate| (NANOS_PER_SECOND << UNIT_DIGITS) / rate);
        self.unit.store(unit, Ordering::Relaxed);
        self.due.store(0, Ordering::Relaxed);
    }

    fn due(&self) -> Nanos {
        Nanos(self.due.load(Ordering::Relaxed) >> TIME_DIGITS)
    }

    fn spend(&self, units: u64, now: Nanos) {
        let unit = self.unit.load(Ordering::Relaxed);
        if unit == 0 {
            return;
        }
        let time = units.saturating_mul(unit) >> (UNIT_DIGITS - TIME_DIGITS);
        // CAST: a millisecond.
        let first = now.0.saturating_sub(CREDIT.as_nanos() as u64) << TIME_DIGITS;
        let next = |due: u64| Some(due.max(first).saturating_add(time));
        let _before = self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of messages of this length that begin within a second, if a worker comes
    /// every 50 µs and begins all that may begin.
    fn begun(pace: &Pace, bytes: u64) -> u64 {
        let mut begun = 0;
        for tick in 0..20_000 {
            let now = || Nanos(5 * NANOS_PER_SECOND + tick * 50_000);
            while pace.wait(now).is_none() {
                pace.spend(bytes, now);
                begun += 1;
            }
        }
        begun
    }

    #[test]
    fn ceilings_are_exact_to_a_fiftieth() {
        let per_second = |number| NonZeroU64::new(number);
        for (ceilings, bytes, expected) in [
            (Ceilings { messages: per_second(1_000_000), bytes: None }, 8, 1_000_000),
            (Ceilings { bytes: per_second(1_250_000_000), messages: None }, 64, 19_531_250),
            (Ceilings { bytes: per_second(1_250_000_000), messages: None }, 65_536, 19_073),
            (Ceilings { bytes: per_second(1_000_000), messages: per_second(5000) }, 1000, 1000),
        ] {
            let pace = Pace::default();
            pace.set(ceilings);
            let begun = begun(&pace, bytes);
            assert!(begun.abs_diff(expected) * 50 <= expected, "{ceilings:?}: {begun}");
        }
    }

    #[test]
    fn a_long_message_delays_the_next_one() {
        let pace = Pace::default();
        pace.set(Ceilings { bytes: NonZeroU64::new(1 << 20), messages: None });
        let now = || Nanos(7 * NANOS_PER_SECOND);
        assert_eq!(pace.wait(now), None);
        pace.spend(3 << 20, now);
        let until = pace.wait(now).expect("it waits");
        assert!(until.0.abs_diff(10 * NANOS_PER_SECOND) < 2 * CREDIT.as_nanos() as u64);
        // Another ceiling begins anew.
        pace.set(Ceilings::default());
        assert_eq!(pace.wait(|| panic!("no clock is read")), None);
    }
}
