//! NewReno (RFC 5681, RFC 6582).

use super::{Acknowledged, Base, Congestion};

/// The state of NewReno.
#[derive(Debug)]
pub(super) struct NewReno {
    base: Base,
    /// Number of bytes acknowledged since the window last grew.
    counted: u64,
}

impl NewReno {
    pub(super) const fn new(mss: u64) -> Self {
        Self { base: Base::new(mss), counted: 0 }
    }
}

impl Congestion for NewReno {
    fn window(&self) -> u64 {
        self.base.window
    }

    fn threshold(&self) -> u64 {
        self.base.threshold
    }

    fn acknowledged(&mut self, ack: Acknowledged) {
        self.counted += self.base.slow_start(ack.bytes);
        if self.counted >= self.base.window {
            self.counted -= self.base.window;
            self.base.window += self.base.mss;
        }
    }

    fn reduce(&mut self, flight: u64) {
        self.base.reduce_to(flight / 2);
        self.counted = 0;
    }

    fn timed_out(&mut self, flight: u64, first: bool) {
        if first {
            self.reduce(flight);
        }
        self.base.window = self.base.mss;
    }

    fn restart(&mut self) {
        self.base.restart();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::Nanos;

    const MSS: u64 = 1000;

    fn ack(bytes: u64) -> Acknowledged {
        Acknowledged { now: Nanos(0), bytes, rtt: Duration::from_millis(1) }
    }

    #[test]
    fn a_window_doubles_in_slow_start_and_then_grows_by_one_segment_a_round() {
        let mut reno = NewReno::new(MSS);
        (0..10).for_each(|_| reno.acknowledged(ack(MSS)));
        assert_eq!(reno.window(), 20 * MSS);
        reno.reduce(20 * MSS);
        assert_eq!((reno.window(), reno.threshold()), (10 * MSS, 10 * MSS));
        (0..10).for_each(|_| reno.acknowledged(ack(MSS)));
        assert_eq!(reno.window(), 11 * MSS);
    }

    #[test]
    fn a_second_time_out_keeps_the_threshold() {
        let mut reno = NewReno::new(MSS);
        reno.timed_out(10 * MSS, true);
        reno.timed_out(MSS, false);
        assert_eq!((reno.window(), reno.threshold()), (MSS, 5 * MSS));
    }
}
