// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The adapter's clock, which stamps completions, and its conversion to the time of day.

use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use vrnic_abi as abi;

use abi::regs::{CLOCK_HI, CLOCK_LO, KICK};

use crate::doorbell::{Life, Uar};
use crate::heap::Shared;
use crate::mapping::Mapping;

/// The age in nanoseconds up to which a sample of the two clocks is used. A clock that NTP adjusts
/// by 500 parts in a million, which is the maximum, deviates by 25 microseconds after this time.
/// The clock of a guest under TCG, whose time stamp counter may be calibrated wrongly by a percent,
/// deviates by half a millisecond.
const KEEPS_NS: u64 = 50_000_000;
/// A sample that took longer, in nanoseconds, is repeated: the program was interrupted.
const PROMPT_NS: u64 = 500_000;
/// Maximum number of attempts to take a sample in time, or to read both halves of the clock without
/// a carry in between.
const TRIES: u32 = 4;

/// The adapter's clock, on the kick page. Reading it is a trapped access, which takes some tens of
/// microseconds, unless it is derived from the system's clock.
#[derive(Debug)]
pub struct Clock {
    page: Shared<Mapping>,
    life: Life,
    /// True if the page contains the difference between the adapter's clock and the system's.
    is_derived: bool,
    sample: Mutex<Option<Sample>>,
}

/// The two clocks at the same time, in nanoseconds. With it a time of the adapter is converted
/// without an access to the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    adapter: u64,
    day: u64,
}

impl Sample {
    /// Returns the time of day of a timestamp, in nanoseconds since 1970.
    #[must_use]
    pub fn time_of_day(&self, timestamp: u64) -> u64 {
        self.day.wrapping_add(timestamp.wrapping_sub(self.adapter))
    }

    /// Returns whether the sample may still be used at this time of day.
    fn serves(&self, day: u64) -> bool {
        day.abs_diff(self.day) <= KEEPS_NS
    }
}

impl Clock {
    /// Returns the clock on the kick page of a context that has this UAR. It is derived from the
    /// system's clock if `is_derived` ([`abi::uverbs::Features::SYSTEM_CLOCK`]).
    #[must_use]
    pub fn new(page: Shared<Mapping>, uar: &Uar, is_derived: bool) -> Self {
        Self { page, life: uar.life().clone(), is_derived, sample: Mutex::new(None) }
    }

    /// Returns the time now, in nanoseconds.
    ///
    /// # Errors
    /// `EIO` when the adapter is dead or does not answer.
    pub fn now(&self) -> Result<u64, Errno> {
        if self.life.has_ended() {
            return Err(Errno::IO);
        }
        let now = match self.is_derived {
            true => nanoseconds(ClockId::Monotonic).wrapping_add(self.read()?),
            false => self.read()?,
        };
        // If the device was removed meanwhile, the kernel has put an ordinary page in the place of
        // the registers. It does so after the adapter's death.
        if self.life.has_ended() { Err(Errno::IO) } else { Ok(now) }
    }

    /// Reads the registers.
    fn read(&self) -> Result<u64, Errno> {
        let read = |register: u32| self.page.read_register(register - KICK).ok_or(Errno::IO);
        let mut high = read(CLOCK_HI)?;
        for _ in 0..TRIES {
            let (low, again) = (read(CLOCK_LO)?, read(CLOCK_HI)?);
            if again == high {
                let now = u64::from(high) << 32 | u64::from(low);
                // A page that reads as all ones has been removed.
                return if now == u64::MAX { Err(Errno::IO) } else { Ok(now) };
            }
            high = again;
        }
        Err(Errno::IO)
    }

    /// Returns a sample of both clocks that is at most [`KEEPS_NS`] old. `None` if the adapter has
    /// never answered. If it no longer answers, the sample is older. A new sample takes
    /// several trapped accesses, so avoid calling this with a lock of a queue.
    pub fn sample(&self) -> Option<Sample> {
        let mut sample = self.sample.lock().unwrap_or_else(PoisonError::into_inner);
        if !sample.is_some_and(|sample| sample.serves(time_of_day()))
            && let Ok(new) = self.take_sample()
        {
            *sample = Some(new);
        }
        *sample
    }

    /// Reads both clocks, several times if need be, and returns the sample that took the least
    /// time.
    fn take_sample(&self) -> Result<Sample, Errno> {
        let (mut span, mut sample) = self.read_clocks()?;
        for _ in 1..TRIES {
            if span <= PROMPT_NS {
                break;
            }
            let another = self.read_clocks()?;
            if another.0 < span {
                (span, sample) = another;
            }
        }
        Ok(sample)
    }

    /// Reads both clocks once, the adapter's in the middle; also returns how long that took.
    fn read_clocks(&self) -> Result<(u64, Sample), Errno> {
        let before = time_of_day();
        let adapter = self.now()?;
        let span = time_of_day().saturating_sub(before);
        Ok((span, Sample { adapter, day: before + span / 2 }))
    }
}

fn time_of_day() -> u64 {
    nanoseconds(ClockId::Realtime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    // Neither is negative: the time of day is after 1970.
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::*;
    use crate::doorbell::tests::{end_life, uar};

    fn clock(now: u64) -> Clock {
        let page = Shared::new(Mapping::anonymous(4096).expect("mmap")).expect("memory");
        page.words()[(CLOCK_LO - KICK) as usize / 8].store(now, Ordering::Relaxed);
        Clock::new(page, &uar(1), false)
    }

    #[test]
    fn the_clock_of_a_dead_adapter_is_not_read() {
        let uar = uar(1);
        let page = Shared::new(Mapping::anonymous(4096).expect("mmap")).expect("memory");
        let clock = Clock::new(page, &uar, false);
        assert_eq!(clock.now(), Ok(0));
        end_life(&uar);
        assert_eq!(clock.now(), Err(Errno::IO));
    }

    #[test]
    fn both_halves_are_read() {
        assert_eq!(clock(0x1234_5678_9abc_def0).now(), Ok(0x1234_5678_9abc_def0));
        assert_eq!(clock(u64::MAX).now(), Err(Errno::IO));
    }

    #[test]
    fn a_derived_clock_follows_the_systems() {
        let clock = Clock { is_derived: true, ..clock(5_000_000_000) };
        let before = nanoseconds(ClockId::Monotonic);
        let now = clock.now().expect("an answer");
        let after = nanoseconds(ClockId::Monotonic);
        assert!((before..=after).contains(&(now - 5_000_000_000)));
    }

    /// Sets the time of an adapter.
    fn set(clock: &Clock, now: u64) {
        clock.page.words()[(CLOCK_LO - KICK) as usize / 8].store(now, Ordering::Relaxed);
    }

    #[test]
    fn times_of_day_follow_the_adapter() {
        let clock = clock(5_000_000_000);
        let before = time_of_day();
        let sample = clock.sample().expect("an answer");
        let at = sample.time_of_day(5_000_000_000);
        assert!((before..=time_of_day()).contains(&at));
        assert_eq!(sample.time_of_day(5_000_000_777), at + 777);
        assert_eq!(sample.time_of_day(4_999_999_000), at - 1000);
    }

    /// Shows: completions: times of day of completions, which one sample of the clocks converts
    #[test]
    fn timestamps_of_any_age_are_converted_without_the_adapter() {
        let clock = clock(5_000_000_000);
        let sample = clock.sample().expect("an answer");
        let at = sample.time_of_day(5_000_000_000);
        set(&clock, u64::MAX);
        assert_eq!(sample.time_of_day(1_000_000_000), at - 4_000_000_000);
        assert_eq!(sample.time_of_day(9_000_000_000), at + 4_000_000_000);
    }

    #[test]
    fn a_sample_is_used_for_a_short_time() {
        let clock = clock(5_000_000_000);
        let first = clock.sample().expect("an answer");
        // Whatever this thread waits for, the sample is either young or it is replaced.
        std::thread::sleep(Duration::from_nanos(KEEPS_NS + 1));
        set(&clock, 6_000_000_000);
        let second = clock.sample().expect("an answer");
        assert_eq!((first.adapter, second.adapter), (5_000_000_000, 6_000_000_000));
        assert!(second.serves(second.day + KEEPS_NS) && !second.serves(second.day + KEEPS_NS + 1));
        // An adapter that no longer answers leaves the last one.
        set(&clock, u64::MAX);
        std::thread::sleep(Duration::from_nanos(KEEPS_NS + 1));
        assert_eq!(clock.sample(), Some(second));
    }

    #[test]
    fn an_adapter_that_is_gone_tells_no_time() {
        assert_eq!(clock(u64::MAX).sample(), None);
    }
}
