//! CUBIC (RFC 9438). Windows are counted in segments here.

use vrnic_packet::Nanos;

use super::{Acknowledged, Base, Congestion};

/// The constant C, which determines how aggressively the window grows (RFC 9438, 5).
const C: f64 = 0.4;
/// The factor by which a loss reduces the window (RFC 9438, 4.6).
const BETA: f64 = 0.7;
/// The growth of the Reno-friendly window in segments per round trip (RFC 9438, 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// A phase of growth between two losses.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Nanos,
    /// Seconds to the inflection point of the curve (K).
    flat: f64,
    /// The window at the inflection point.
    plateau: f64,
    /// The estimate of the window that Reno would have.
    reno: f64,
}

/// The state of CUBIC.
#[derive(Debug)]
pub(super) struct Cubic {
    base: Base,
    /// The windows before the last loss, and before the previous one.
    max: f64,
    before: f64,
    epoch: Option<Epoch>,
    /// The growth of the window that is less than one byte.
    fraction: f64,
}

impl Cubic {
    pub(super) const fn new(mss: u64) -> Self {
        Self { base: Base::new(mss), max: 0.0, before: 0.0, epoch: None, fraction: 0.0 }
    }

    fn segments(&self, bytes: u64) -> f64 {
        bytes as f64 / self.base.mss as f64
    }

    /// Records the window at which a loss happened, and reduces the window.
    fn lose(&mut self, flight: u64) {
        let window = self.segments(self.base.window.min(flight.max(self.base.mss)));
        // Fast convergence (RFC 9438, 4.7): a flow whose window has shrunk releases bandwidth to
        // other flows.
        self.max = if window < self.max { window * (1.0 + BETA) / 2.0 } else { window };
        self.before = window;
        self.epoch = None;
        // CAST: the window fits, and a part of it does too.
        self.base.reduce_to((flight as f64 * BETA) as u64);
    }

    fn begin(&self, now: Nanos) -> Epoch {
        let window = self.segments(self.base.window);
        let (flat, plateau) = if window < self.max {
            (((self.max - window) / C).cbrt(), self.max)
        } else {
            (0.0, window)
        };
        Epoch { start: now, flat, plateau, reno: window }
    }
}

impl Congestion for Cubic {
    fn window(&self) -> u64 {
        self.base.window
    }

    fn threshold(&self) -> u64 {
        self.base.threshold
    }

    fn acknowledged(&mut self, ack: Acknowledged) {
        let bytes = self.base.slow_start(ack.bytes);
        if bytes == 0 {
            return;
        }
        let (window, acked) = (self.segments(self.base.window), self.segments(bytes));
        let mut epoch = self.epoch.unwrap_or_else(|| self.begin(ack.now));
        let cubic = |seconds: f64| C * (seconds - epoch.flat).powi(3) + epoch.plateau;
        let elapsed = ack.now.since(epoch.start).as_secs_f64();
        let target = cubic(elapsed + ack.rtt.as_secs_f64()).clamp(window, 1.5 * window);
        let alpha = if epoch.reno >= self.before { 1.0 } else { ALPHA };
        epoch.reno += alpha * acked / window;
        let grown = if cubic(elapsed) < epoch.reno {
            epoch.reno.max(window)
        } else {
            window + (target - window) / window * acked
        };
        let growth = (grown - window) * self.base.mss as f64 + self.fraction;
        self.fraction = growth.fract();
        // CAST: the growth is positive, and at most half of the window for each window of bytes.
        self.base.window = self.base.window.saturating_add(growth as u64);
        self.epoch = Some(epoch);
    }

    fn reduce(&mut self, flight: u64) {
        self.lose(flight);
    }

    fn timed_out(&mut self, flight: u64, first: bool) {
        if first {
            self.lose(flight);
        }
        self.epoch = None;
        self.base.window = self.base.mss;
    }

    fn restart(&mut self) {
        self.epoch = None;
        self.base.restart();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MSS: u64 = 1000;

    /// Acknowledges whole windows, one in each round trip of 100 ms.
    fn rounds(cubic: &mut Cubic, from: u64, count: u64) {
        for round in from..from + count {
            let now = Nanos(0).plus(Duration::from_millis(100) * round as u32);
            for _ in 0..cubic.window() / MSS {
                let rtt = Duration::from_millis(100);
                cubic.acknowledged(Acknowledged { now, bytes: MSS, rtt });
            }
        }
    }

    /// Shows: tcp: congestion control: CUBIC's window returns to its plateau
    #[test]
    fn the_window_returns_to_its_plateau_and_leaves_it_slowly() {
        let mut cubic = Cubic::new(MSS);
        cubic.base.window = 1000 * MSS;
        cubic.reduce(1000 * MSS);
        assert_eq!(cubic.window(), 700 * MSS);
        // K = cbrt(300 / 0.4) = 9.09 s.
        rounds(&mut cubic, 0, 45);
        assert!((930 * MSS..990 * MSS).contains(&cubic.window()), "{}", cubic.window());
        rounds(&mut cubic, 45, 50);
        assert!((995 * MSS..1005 * MSS).contains(&cubic.window()), "{}", cubic.window());
        rounds(&mut cubic, 95, 50);
        assert!(cubic.window() > 1030 * MSS, "{}", cubic.window());
    }

    #[test]
    fn small_windows_grow_as_fast_as_with_reno() {
        let mut cubic = Cubic::new(MSS);
        cubic.base.window = 10 * MSS;
        cubic.reduce(10 * MSS);
        rounds(&mut cubic, 0, 12);
        assert!(cubic.window() >= 12 * MSS, "{}", cubic.window());
    }

    #[test]
    fn a_flow_that_loses_again_below_its_plateau_aims_lower() {
        let mut cubic = Cubic::new(MSS);
        cubic.base.window = 100 * MSS;
        cubic.reduce(100 * MSS);
        cubic.reduce(70 * MSS);
        assert!((cubic.max - 59.5).abs() < 0.01, "{}", cubic.max);
    }
}
