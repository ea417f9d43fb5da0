//! The ceilings of a function: how many bytes and messages its send queues begin in a second, and
//! how many interrupts its event queues raise; and the rate limit of one queue. A work request
//! above a ceiling waits in its send queue until the time that it has reserved, and nothing else
//! does: the messages of peers arrive, and messages that have begun go on. Each queue reserves for
//! its next work request only, so all queues of a function take turns.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use vrnic_packet::Nanos;

/// The time for which a function that has sent less than it may can send faster afterwards. It also
/// makes up for the late wake-ups of workers, so that a function that always has work reaches its
/// ceilings.
const CREDIT: Duration = Duration::from_millis(1);
/// Binary digits after the point of a time in nanoseconds, and of the time of one unit.
const TIME_DIGITS: u32 = 6;
const UNIT_DIGITS: u32 = 20;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
const BYTES_PER_KILOBIT: u64 = 125;

/// The ceilings of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceilings {
    /// Bytes of messages per second: sent by SEND, WRITE and atomics, asked for by READ.
    pub bytes: Option<NonZeroU64>,
    /// Messages per second.
    pub messages: Option<NonZeroU64>,
    /// Interrupts of event queues per second.
    pub interrupts: Option<NonZeroU64>,
}

/// The time at which a work request may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The time by the ceilings of the function.
    function: Nanos,
    /// The ceilings for which it was reserved.
    version: u32,
    /// The time by the limit of the queue, unless that has changed.
    own: Option<Nanos>,
    /// The length of the message. The work request is read again before it begins, and a guest may
    /// have changed it.
    bytes: u64,
}

/// The rate limit of a send queue. Only its worker begins entries.
#[derive(Debug, Default)]
pub struct RateLimit {
    kilobits: u32,
    bytes: Bucket,
}

/// The ceilings of an adapter, and how much of them is reserved. All its workers share it.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// True if there is a ceiling for send queues.
    limited: AtomicBool,
    /// Number of changes. Reservations from before a change are void.
    version: AtomicU32,
    bytes: Bucket,
    messages: Bucket,
    interrupts: Bucket,
}

/// A ceiling, and what is left of it.
#[derive(Debug, Default)]
struct Bucket {
    /// The time that one unit takes, in 2^-20 ns; zero without a ceiling.
    unit: AtomicU64,
    /// The time at which all that is reserved will have begun, in 2^-6 ns.
    due: AtomicU64,
}

impl Pace {
    /// Sets the ceilings. What has begun or was reserved before does not count. QPs that wait must
    /// be scheduled afterwards.
    pub(crate) fn set(&self, ceilings: Ceilings) {
        self.bytes.set(ceilings.bytes);
        self.messages.set(ceilings.messages);
        self.interrupts.set(ceilings.interrupts);
        self.version.fetch_add(1, Ordering::Relaxed);
        let limited = ceilings.bytes.is_some() || ceilings.messages.is_some();
        self.limited.store(limited, Ordering::Release);
    }

    /// Forgets what has begun or was reserved.
    pub(crate) fn restart(&self) {
        self.bytes.due.store(0, Ordering::Relaxed);
        self.messages.due.store(0, Ordering::Relaxed);
        self.interrupts.due.store(0, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether there is a ceiling for send queues.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    /// Returns the time before which no interrupt must be raised, if there is a ceiling and that
    /// time is not over. `now` reads the clock.
    #[inline]
    pub(crate) fn next_interrupt(&self, now: impl FnOnce() -> Nanos) -> Option<Nanos> {
        if !self.interrupts.is_set() {
            return None;
        }
        let due = self.interrupts.due();
        (due > now()).then_some(due)
    }

    /// Counts an interrupt that is raised. `now` reads the clock.
    #[inline]
    pub(crate) fn count_interrupt(&self, now: impl FnOnce() -> Nanos) {
        if self.interrupts.is_set() {
            let _counted = self.interrupts.reserve(1, now());
        }
    }

    /// Returns the time before which a message must not begin, if it is not over. `reserved` is its
    /// reservation, which is made if there is none. `own` is the limit of its queue.
    pub(crate) fn wait(
        &self,
        own: &RateLimit,
        reserved: &mut Option<Reserved>,
        bytes: u64,
        now: Nanos,
    ) -> Option<Nanos> {
        let version = self.version.load(Ordering::Relaxed);
        let kept = reserved.filter(|kept| bytes <= kept.bytes);
        let function = kept.filter(|kept| kept.version == version).map_or_else(
            || self.bytes.reserve(bytes, now).max(self.messages.reserve(1, now)),
            |kept| kept.function,
        );
        let by_queue = kept.and_then(|kept| kept.own);
        let by_queue = by_queue.unwrap_or_else(|| own.bytes.reserve(bytes, now));
        let start = function.max(by_queue);
        let own = Some(by_queue);
        let new = Reserved { function, version, own, bytes };
        *reserved =
            (start > now).then_some(kept.map_or(new, |kept| Reserved { bytes: kept.bytes, ..new }));
        reserved.map(|_| start)
    }
}

impl Reserved {
    /// Forgets the time by the limit of the queue, which has changed.
    pub(crate) fn renew(&mut self) {
        self.own = None;
    }
}

impl RateLimit {
    /// Sets the limit in kbit/s; 0 is no limit. Returns whether it is another one.
    pub(crate) fn set(&mut self, kilobits: u32) -> bool {
        let changes = self.kilobits != kilobits;
        if changes {
            self.kilobits = kilobits;
            self.bytes.set(NonZeroU64::new(u64::from(kilobits) * BYTES_PER_KILOBIT));
        }
        changes
    }

    /// Returns whether there is a limit.
    #[inline]
    pub(crate) const fn is_set(&self) -> bool {
        self.kilobits != 0
    }
}

impl Bucket {
    fn set(&self, per_second: Option<NonZeroU64>) {
        let unit = per_second.map_or(0, |rate| (NANOS_PER_SECOND << UNIT_DIGITS) / rate);
        self.unit.store(unit, Ordering::Relaxed);
        self.due.store(0, Ordering::Relaxed);
    }

    /// Returns whether there is a ceiling.
    #[inline]
    fn is_set(&self) -> bool {
        self.unit.load(Ordering::Relaxed) != 0
    }

    /// Returns the time at which all that is reserved will have begun.
    fn due(&self) -> Nanos {
        Nanos(self.due.load(Ordering::Relaxed) >> TIME_DIGITS)
    }

    /// Reserves units. Returns the time from which on they may be used.
    fn reserve(&self, units: u64, now: Nanos) -> Nanos {
        let unit = self.unit.load(Ordering::Relaxed);
        if unit == 0 {
            return now;
        }
        let time = u128::from(units) * u128::from(unit);
        let digits = UNIT_DIGITS - TIME_DIGITS;
        let time = u64::try_from((time + (1 << (digits - 1))) >> digits).unwrap_or(u64::MAX);
        // CAST: a millisecond.
        let first = now.0.saturating_sub(CREDIT.as_nanos() as u64) << TIME_DIGITS;
        let next = |due: u64| Some(due.max(first).saturating_add(time));
        // The function always has a result, so both variants hold the time before.
        let (Ok(due) | Err(due)) =
            self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        Nanos(due.max(first) >> TIME_DIGITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time between two visits of a worker.
    const TICK: u64 = 50_000;
    /// The visits within a second.
    const SECOND: u64 = NANOS_PER_SECOND / TICK;

    /// Returns the number of messages of this length that each of several queues begins while a
    /// worker comes so often, and begins all that may begin, queue by queue.
    fn begun<const N: usize>(pace: &Pace, bytes: u64, visits: u64) -> [u64; N] {
        let (mut begun, mut reserved) = ([0; N], [None; N]);
        let own = RateLimit::default();
        for visit in 0..visits {
            let now = Nanos(5 * NANOS_PER_SECOND + visit * TICK);
            for (begun, reserved) in begun.iter_mut().zip(&mut reserved) {
                while pace.wait(&own, reserved, bytes, now).is_none() {
                    *begun += 1;
                }
            }
        }
        begun
    }

    /// Shows: resources
    #[test]
    fn ceilings_are_exact_to_a_fiftieth() {
        let per_second = |number| NonZeroU64::new(number);
        for (ceilings, bytes, expected) in [
            (Ceilings { messages: per_second(1_000_000), ..Ceilings::default() }, 8, 1_000_000),
            (
                Ceilings { bytes: per_second(12_500_000_000), ..Ceilings::default() },
                64,
                195_312_500,
            ),
            (Ceilings { bytes: per_second(1_250_000_000), ..Ceilings::default() }, 65_536, 19_073),
            (
                Ceilings {
                    bytes: per_second(1_000_000),
                    messages: per_second(5000),
                    ..Ceilings::default()
                },
                1000,
                1000,
            ),
        ] {
            let pace = Pace::default();
            pace.set(ceilings);
            // A fifth of a second if there are many messages. The first of them use a credit of a
            // millisecond.
            let visits = if expected > 10_000_000 { SECOND / 5 } else { SECOND };
            let [begun] = begun(&pace, bytes, visits);
            let expected = expected * visits / SECOND;
            assert!(begun.abs_diff(expected) * 50 <= expected, "{ceilings:?}: {begun}");
        }
    }

    #[test]
    fn queues_that_always_have_work_take_turns() {
        for messages in [1000, 20_000] {
            let pace = Pace::default();
            pace.set(Ceilings { messages: NonZeroU64::new(messages), ..Ceilings::default() });
            let begun: [u64; 8] = begun(&pace, 8, SECOND);
            assert!(begun.iter().all(|begun| *begun > messages / 16), "{begun:?}");
        }
    }

    #[test]
    fn a_long_message_delays_the_next_one() {
        for (rate, bytes, seconds) in [(1 << 20, 3 << 20, 3), (12_500, 1 << 31, 171_798)] {
            let pace = Pace::default();
            pace.set(Ceilings { bytes: NonZeroU64::new(rate), ..Ceilings::default() });
            let now = Nanos(7 * NANOS_PER_SECOND);
            let (own, mut reserved) = (RateLimit::default(), [None; 2]);
            assert_eq!(pace.wait(&own, &mut reserved[0], bytes, now), None);
            let until = pace.wait(&own, &mut reserved[1], 1, now).expect("it waits");
            let expected = (7 + seconds) * NANOS_PER_SECOND;
            assert!(until.0.abs_diff(expected) < NANOS_PER_SECOND, "{until:?}");
            assert_eq!(
                pace.wait(&own, &mut reserved[1], 1, now),
                Some(until),
                "it keeps its place"
            );
            assert_eq!(pace.wait(&own, &mut reserved[1], 1, until), None);
            // Another ceiling begins anew.
            pace.wait(&own, &mut reserved[0], 1, now).expect("it waits, too");
            pace.set(Ceilings { bytes: NonZeroU64::new(rate + 1), ..Ceilings::default() });
            assert_eq!(pace.wait(&own, &mut reserved[0], 1, now), None);
            pace.set(Ceilings::default());
            assert!(!pace.is_limited());
        }
    }

    /// A guest changes a work request that waits, and the limit of its queue.
    #[test]
    fn a_reservation_is_for_one_length_and_for_both_limits() {
        let pace = Pace::default();
        pace.set(Ceilings { bytes: NonZeroU64::new(1_000_000), ..Ceilings::default() });
        let (mut own, mut reserved) = (RateLimit::default(), None);
        let now = Nanos(7 * NANOS_PER_SECOND);
        assert_eq!(pace.wait(&own, &mut None, 1_000_000, now), None);
        let first = pace.wait(&own, &mut reserved, 1, now).expect("it waits");
        let longer = pace.wait(&own, &mut reserved, 1_000_000, first).expect("it waits again");
        let behind = pace.wait(&own, &mut None, 0, now).expect("it waits");
        assert!(behind.since(longer) >= Duration::from_millis(990), "{longer:?}, {behind:?}");
        assert_eq!(pace.wait(&own, &mut reserved, 1, now), Some(longer), "a shorter one keeps it");
        for kilobits in (1..=1000).map(|nth| 8_000_000 + nth) {
            assert!(own.set(kilobits));
            reserved.as_mut().expect("a reservation").renew();
            assert_eq!(pace.wait(&own, &mut reserved, 1_000_000, now), Some(longer));
        }
        assert_eq!(pace.wait(&own, &mut None, 0, now), Some(behind));
    }
}
