//! The bound of what the switch does at once, so that a worker that runs it soon polls its adapters
//! again.

use std::time::Duration;

use vrnic_packet::Nanos;

use crate::worker::pool::now;

/// Number of frames, or of pieces of a frame of [`PIECE`] bytes, in a turn.
pub const FRAMES: usize = 256;
/// Maximum duration of a turn. The last frame may end later. Code without optimisation gets more
/// time, so that it forwards about as many frames in a turn.
pub const TIME: Duration = Duration::from_micros(if cfg!(debug_assertions) { 400 } else { 20 });
/// The same while other engines of the worker are prompt.
pub const SHORT_TIME: Duration = Duration::from_micros(TIME.as_micros() as u64 / 4);
/// Number of bytes that count as much as a short frame.
const PIECE: usize = 4096;
/// Number of frames after which the clock is read, which costs about as much as half a frame.
const CLOCK_INTERVAL: usize = 4;

/// The rest of a turn.
#[derive(Debug)]
pub struct Turn {
    /// Number of frames.
    left: usize,
    /// Number of frames since the clock was last read.
    unseen: usize,
    /// The end of the turn on the clock of [`now`].
    end: Nanos,
}

impl Turn {
    /// Begins a turn.
    #[must_use]
    pub fn begin() -> Self {
        Self::lasting(TIME)
    }

    /// Begins a turn of another maximum duration.
    #[must_use]
    pub fn lasting(time: Duration) -> Self {
        Self { left: FRAMES, unseen: 0, end: now().plus(time) }
    }

    /// Counts frames that have `bytes` together.
    pub fn spend(&mut self, frames: usize, bytes: usize) {
        let cost = frames.saturating_add(bytes / PIECE);
        self.left = self.left.saturating_sub(cost);
        self.unseen = self.unseen.saturating_add(cost);
        if self.unseen >= CLOCK_INTERVAL {
            self.read_clock();
        }
    }

    /// Reads the clock.
    pub fn read_clock(&mut self) {
        self.unseen = 0;
        if now() >= self.end {
            self.left = 0;
        }
    }

    /// Returns whether the rest of the work is left for the next turn.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: network
    #[test]
    fn a_turn_ends_after_its_frames_or_its_bytes_or_its_time() {
        let unhurried = || Turn { left: FRAMES, unseen: 0, end: Nanos(u64::MAX) };
        let mut turn = unhurried();
        for _ in 1..FRAMES {
            turn.spend(1, 60);
        }
        assert!(!turn.is_over());
        turn.spend(1, 60);
        assert!(turn.is_over());

        let mut turn = unhurried();
        turn.spend(1, FRAMES * PIECE);
        assert!(turn.is_over());

        let mut turn = Turn::begin();
        std::thread::sleep(TIME);
        turn.spend(CLOCK_INTERVAL, 60);
        assert!(turn.is_over());
    }
}
