//! RNR timers: how long a requester waits when the responder has no receive.

/// RNR timer codes in units of 10 µs (IBTA volume 1, table 45).
const RNR_TIMERS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Returns the time in nanoseconds that an RNR timer code stands for.
#[must_use]
pub fn rnr_delay(code: u8) -> u64 {
    let units = RNR_TIMERS.get(usize::from(code)).copied().unwrap_or(1);
    u64::from(units) * 10_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_timers_follow_the_table() {
        assert_eq!(rnr_delay(0), 655_360_000);
        assert_eq!(rnr_delay(1), 10_000);
        assert_eq!(rnr_delay(12), 640_000);
        assert_eq!(rnr_delay(31), 491_520_000);
    }
}
