//! The frames of a class that wait to leave.

use std::collections::VecDeque;

use crate::config::{CERTAIN, Red};

/// A queue that knows its bytes. Its owner keeps it below a limit.
#[derive(Debug)]
pub(crate) struct Queue<F> {
    frames: VecDeque<(F, u32)>,
    bytes: u64,
}

impl<F> Default for Queue<F> {
    fn default() -> Self {
        Self { frames: VecDeque::new(), bytes: 0 }
    }
}

impl<F> Queue<F> {
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns the bytes of the first frame.
    pub(crate) fn first(&self) -> Option<u32> {
        self.frames.front().map(|(_, bytes)| *bytes)
    }

    pub(crate) fn push(&mut self, frame: F, bytes: u32) {
        self.bytes += u64::from(bytes);
        self.frames.push_back((frame, bytes));
    }

    pub(crate) fn pop(&mut self) -> Option<(F, u32)> {
        let (frame, bytes) = self.frames.pop_front()?;
        self.bytes -= u64::from(bytes);
        Some((frame, bytes))
    }
}

impl Red {
    /// Returns whether a frame is marked that finds this number of bytes in its queue.
    pub(crate) fn marks(&self, depth: u64, rng: &mut fastrand::Rng) -> bool {
        let (min, max) = (u64::from(self.min), u64::from(self.max));
        if depth <= min {
            return false;
        }
        if depth > max {
            return true;
        }
        // `max` is above `min` here.
        let chance = u64::from(self.probability) * (depth - min) / (max - min);
        u64::from(rng.u32(..CERTAIN)) < chance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(red: &Red, depth: u64) -> usize {
        let mut rng = fastrand::Rng::with_seed(5);
        (0..10_000).filter(|_| red.marks(depth, &mut rng)).count()
    }

    #[test]
    fn the_probability_grows_between_the_thresholds() {
        let red = Red { min: 1000, max: 3000, probability: CERTAIN / 5 };
        assert_eq!((marked(&red, 1000), marked(&red, 3001)), (0, 10_000));
        for (depth, expected) in [(1500, 500), (2000, 1000), (3000, 2000)] {
            let got = marked(&red, depth);
            assert!(got.abs_diff(expected) < expected / 10, "{depth}: {got}");
            assert_eq!(got, marked(&red, depth), "the seed repeats it");
        }
        let step = Red { min: 1000, max: 1000, probability: 1 };
        assert_eq!((marked(&step, 1000), marked(&step, 1001)), (0, 10_000));
    }
}
