//! A window in bytes at the sender, with the arithmetic of DCQCN (Zhu et al., SIGCOMM 2015).
//!
//! Each notification reduces the window in proportion to the recent rate of notifications. DCQCN
//! controls a rate; this code controls a window, because a sender without timers of microseconds
//! cannot pace packets.
//!
//! ```text
//! notification   α ← (1 − g)·α + g,   target ← window,   window ← window·(1 − α/2)
//! 55 µs without  α ← (1 − g)·α
//! round trip     window ← (window + target)/2; after five of these, target grows by a packet too
//! ```

use std::time::Duration;

use vrnic_packet::Nanos;

use crate::wire::Mtu;

/// The unit of α in fixed-point form: 1 is 2¹⁰.
const ONE: u32 = 1 << 10;
/// The shift that divides by 16: the gain g of DCQCN is 1/16.
const G_SHIFT: u32 = 4;
/// The time without a notification after which α decreases.
const ALPHA_PERIOD: Duration = Duration::from_micros(55);
/// Number of round trips of fast recovery.
const FAST_RECOVERY: u32 = 5;
/// The initial window in bytes.
const START: u32 = 64 << 10;

/// The window of a sender.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    mtu: u32,
    max_bytes: u32,
    bytes: u32,
    target: u32,
    alpha: u32,
    /// The time of the last change of α.
    alpha_at: Nanos,
    /// The time of the last reduction of the window. It is reduced at most once in a round trip.
    cut_at: Option<Nanos>,
    /// The time of the last increase of the window.
    grown_at: Nanos,
    /// Number of increases since the last reduction.
    rounds: u32,
}

impl Window {
    /// Creates a window of at most `packets` packets.
    #[must_use]
    pub fn new(mtu: Mtu, packets: u32) -> Self {
        let max_bytes = packets.max(2).saturating_mul(mtu.bytes());
        let bytes = START.clamp(2 * mtu.bytes(), max_bytes);
        Self {
            mtu: mtu.bytes(),
            max_bytes,
            bytes,
            target: max_bytes,
            alpha: ONE,
            alpha_at: Nanos::default(),
            cut_at: None,
            grown_at: Nanos::default(),
            rounds: 0,
        }
    }

    /// Returns the window in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Returns the maximum number of outstanding packets.
    #[must_use]
    pub const fn packets(&self) -> u32 {
        self.bytes / self.mtu
    }

    /// Handles a notification or a loss of packets. Returns whether the window was reduced, which
    /// happens at most once in a round trip.
    pub fn congested(&mut self, now: Nanos, round_trip: Duration) -> bool {
        self.decay(now);
        self.alpha = self.alpha - (self.alpha >> G_SHIFT) + (ONE >> G_SHIFT);
        if self.cut_at.is_some_and(|at| now.since(at) < round_trip) {
            return false;
        }
        self.cut_at = Some(now);
        self.grown_at = now;
        self.rounds = 0;
        self.target = self.bytes;
        let cut = u64::from(self.bytes) * u64::from(self.alpha) / u64::from(2 * ONE);
        // CAST: at most half of the window.
        self.bytes = (self.bytes - cut as u32).max(2 * self.mtu);
        true
    }

    /// Handles progress: the window grows once in a round trip.
    pub fn progressed(&mut self, now: Nanos, round_trip: Duration) {
        self.decay(now);
        if now.since(self.grown_at) < round_trip {
            return;
        }
        self.grown_at = now;
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds > FAST_RECOVERY {
            let more = if self.rounds > 2 * FAST_RECOVERY { 10 } else { 1 };
            self.target = self.target.saturating_add(more * self.mtu).min(self.max_bytes);
        }
        self.bytes = u32::midpoint(self.bytes, self.target).min(self.max_bytes);
    }

    /// Reduces α for each period without a notification.
    fn decay(&mut self, now: Nanos) {
        let periods = now.since(self.alpha_at).as_nanos() / ALPHA_PERIOD.as_nanos();
        if periods == 0 {
            return;
        }
        self.alpha_at = now;
        // After this many periods α is zero.
        for _ in 0..periods.min(128) {
            self.alpha -= self.alpha >> G_SHIFT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_micros(20);

    fn at(micros: u64) -> Nanos {
        Nanos(micros * 1000)
    }

    /// Shows: roce: notifications of congestion reduce the window of the sender
    #[test]
    fn the_window_halves_at_first_and_recovers() {
        let mut window = Window::new(Mtu::M1024, 128);
        assert_eq!(window.packets(), 64);
        assert!(window.congested(at(10), TRIP));
        assert_eq!(window.packets(), 32, "α is 1 at first");
        assert!(!window.congested(at(20), TRIP), "once in a round trip");
        for round in 1..=FAST_RECOVERY {
            window.progressed(at(20 + u64::from(round) * 20), TRIP);
        }
        assert_eq!(window.packets(), 63, "halfway to the target, five times");
        for round in 1..60 {
            window.progressed(at(200 + round * 20), TRIP);
        }
        assert_eq!(window.packets(), 127, "the target grows up to the largest window");
    }

    #[test]
    fn rare_notifications_cost_little_and_many_leave_two_packets() {
        let mut window = Window::new(Mtu::M4096, 16);
        assert_eq!(window.packets(), 16);
        window.congested(at(100_000), TRIP);
        assert_eq!(window.packets(), 15, "α has decayed: {window:?}");
        for time in 0..200 {
            window.congested(at(100_100 + time * 25), TRIP);
        }
        assert_eq!(window.packets(), 2);
    }
}
