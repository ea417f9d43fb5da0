//! Blocks that wait to be written, in bounded memory.

use std::collections::VecDeque;

/// The block that is lost when the ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest: the ring holds the latest traffic.
    Oldest,
    /// The newest: a reader that is too slow gets a file with a gap.
    Newest,
}

/// Blocks of packets in the order of their capture.
#[derive(Debug)]
pub struct Ring {
    blocks: VecDeque<Vec<u8>>,
    bytes: usize,
    most: usize,
    overflow: Overflow,
    lost: u64,
}

impl Ring {
    /// Makes a ring that holds at most so many bytes of blocks.
    #[must_use]
    pub const fn new(most: usize, overflow: Overflow) -> Self {
        Self { blocks: VecDeque::new(), bytes: 0, most, overflow, lost: 0 }
    }

    /// Appends a block. Blocks are lost and counted if it does not fit.
    pub fn push(&mut self, block: Vec<u8>) {
        let fits = |bytes: usize| bytes + block.len() <= self.most;
        if !fits(0) || (self.overflow == Overflow::Newest && !fits(self.bytes)) {
            self.lost += 1;
            return;
        }
        while self.bytes + block.len() > self.most
            && let Some(oldest) = self.blocks.pop_front()
        {
            self.bytes -= oldest.len();
            self.lost += 1;
        }
        self.bytes += block.len();
        self.blocks.push_back(block);
    }

    /// Takes the oldest block.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        let block = self.blocks.pop_front()?;
        self.bytes -= block.len();
        Some(block)
    }

    /// The bytes of all blocks.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of blocks that were lost.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}
