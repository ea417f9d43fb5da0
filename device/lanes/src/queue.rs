//! The frames of a class that wait to leave.

use std::collections::VecDeque;

use crate::config::{CERTAIN, Red};

/// Number of places that an empty queue keeps for later.
const KEPT: usize = 256;

/// The lengths of a frame in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// The bytes of the frame.
    pub(crate) bytes: u32,
    /// The bytes of memory that it takes.
    pub(crate) memory: u32,
}

/// A queue that knows its bytes. Its owner keeps it below a limit.
#[derive(Debug)]
pub(crate) struct Queue<F> {
    frames: VecDeque<(F, Size)>,
    bytes: u64,
    memory: u64,
}

impl<F> Default for Queue<F> {
    fn default() -> Self {
        Self { frames: VecDeque::new(), bytes: 0, memory: 0 }
    }
}

impl<F> Queue<F> {
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) const fn memory(&self) -> u64 {
        self.memory
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns the bytes of the first frame.
    pub(crate) fn first(&self) -> Option<u32> {
        self.frames.front().map(|(_, size)| size.bytes)
    }

    pub(crate) fn push(&mut self, frame: F, size: Size) {
        self.bytes += u64::from(size.bytes);
        self.memory += u64::from(size.memory);
        self.frames.push_back((frame, size));
    }

    pub(crate) fn pop(&mut self) -> Option<(F, Size)> {
        let (frame, size) = self.frames.pop_front()?;
        self.bytes -= u64::from(size.bytes);
        self.memory -= u64::from(size.memory);
        if self.frames.is_empty() && self.frames.capacity() > KEPT {
            self.frames.shrink_to(KEPT);
        }
        Some((frame, size))
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

    /// Shows: memory: queues of classes
    #[test]
    fn a_queue_that_was_long_gives_its_memory_back() {
        let mut queue = Queue::default();
        for number in 0..10_000 {
            queue.push(number, Size { bytes: 14, memory: 256 });
        }
        assert_eq!((queue.bytes(), queue.memory()), (140_000, 2_560_000));
        while queue.pop().is_some() {}
        assert_eq!((queue.bytes(), queue.memory()), (0, 0));
        assert!(queue.frames.capacity() <= 2 * KEPT, "{}", queue.frames.capacity());
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
