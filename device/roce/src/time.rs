//! The codes for times that connections negotiate.

use std::time::Duration;

use crate::wire::syndrome::RnrTimer;

/// The time for which a requester waits for an answer before it sends again, as a code of 5 bits
/// (attribute `timeout` of a QP; IBTA volume 1, 9.7.6.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// Returns the time-out with this code. The upper three bits are ignored.
    #[must_use]
    pub const fn new(code: u8) -> Self {
        Self(code & 0x1f)
    }

    /// Returns 4.096 µs × 2^code, or `None` for code 0, which means no time-out.
    #[must_use]
    pub const fn duration(self) -> Option<Duration> {
        match self.0 {
            0 => None,
            code => Some(Duration::from_nanos(4096 << code)),
        }
    }
}

/// RNR timer codes in units of 10 µs (IBTA volume 1, table 45).
const RNR_TIMERS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Returns the time for which a requester waits after the responder was not ready.
#[must_use]
pub fn rnr_delay(timer: RnrTimer) -> Duration {
    let units = RNR_TIMERS.get(usize::from(timer.code())).copied().unwrap_or(1);
    Duration::from_micros(u64::from(units) * 10)
}

/// Returns the code of the shortest time that is not shorter than `wait`, up to the longest one.
#[must_use]
pub fn rnr_timer(wait: Duration) -> RnrTimer {
    let (mut timer, mut shortest) = (RnrTimer::new(0), rnr_delay(RnrTimer::new(0)));
    for code in 1..32 {
        let delay = rnr_delay(RnrTimer::new(code));
        if delay >= wait && delay < shortest {
            (timer, shortest) = (RnrTimer::new(code), delay);
        }
    }
    timer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stand_for_times() {
        assert_eq!(AckTimeout::new(0).duration(), None);
        assert_eq!(AckTimeout::new(1).duration(), Some(Duration::from_nanos(8192)));
        assert_eq!(AckTimeout::new(14).duration(), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(rnr_delay(RnrTimer::new(0)), Duration::from_micros(655_360));
        assert_eq!(rnr_delay(RnrTimer::new(1)), Duration::from_micros(10));
        assert_eq!(rnr_delay(RnrTimer::new(12)), Duration::from_micros(640));
        assert_eq!(rnr_delay(RnrTimer::new(31)), Duration::from_micros(491_520));
    }

    #[test]
    fn a_time_has_the_code_that_is_not_shorter() {
        let code = |micros| rnr_timer(Duration::from_micros(micros)).code();
        assert_eq!([0, 10, 11, 640, 641].map(code), [1, 1, 2, 12, 13]);
        assert_eq!([491_520, 491_521, 10_000_000].map(code), [31, 0, 0]);
    }
}
