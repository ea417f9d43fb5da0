//! Points in time.

use std::time::Duration;

/// A time in nanoseconds since any fixed point. The caller's clock must not go backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Returns the time `duration` later.
    #[inline]
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns the duration since an earlier time, or zero if that one is later.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_do_not_wrap() {
        let late = Nanos(u64::MAX - 1);
        assert_eq!(late.plus(Duration::from_secs(1)), Nanos(u64::MAX));
        assert_eq!(Nanos::default().since(late), Duration::ZERO);
    }
}
