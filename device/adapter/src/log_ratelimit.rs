//! Rate limit for warnings, so that guests cannot fill the host's log.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use vrnic_packet::Nanos;

/// Length of a window in nanoseconds.
const WINDOW_NS: u64 = 10_000_000_000;
/// Maximum number of warnings in a window.
const PER_WINDOW: u32 = 20;

/// Counts warnings.
#[derive(Debug, Default)]
pub struct Limiter {
    window: AtomicU64,
    count: AtomicU32,
}

impl Limiter {
    /// Runs `warn` unless too many warnings have been logged recently. The first warning of a
    /// window also logs the number of suppressed ones.
    pub fn warn(&self, now: Nanos, warn: impl FnOnce()) {
        // Windows count from 1, so that the very first warning starts one.
        let window = now.0 / WINDOW_NS + 1;
        if self.window.swap(window, Ordering::Relaxed) != window {
            let count = self.count.swap(0, Ordering::Relaxed);
            if let Some(omitted) = count.checked_sub(PER_WINDOW)
                && omitted > 0
            {
                tracing::warn!(
                    omitted,
                    "some warnings were not logged, because there were too many"
                );
            }
        }
        if self.count.fetch_add(1, Ordering::Relaxed) < PER_WINDOW {
            warn();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn each_window_has_its_share() {
        let limiter = Limiter::default();
        let count = Cell::new(0);
        for now in [0, 1, WINDOW_NS, WINDOW_NS * 7] {
            (0..1000).for_each(|_| limiter.warn(Nanos(now), || count.set(count.get() + 1)));
        }
        assert_eq!(count.get(), 3 * PER_WINDOW);
    }
}
