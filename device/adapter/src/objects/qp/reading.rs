//! Bytes of the answer of a READ that become visible in another order, because a rule for faults
//! demands it (docs/faults.md).
//!
//! The bytes of packets are kept until the last one arrives, or there are many. Then their blocks
//! are placed, a few at a time, before that packet is executed.

use std::sync::Arc;

use super::window::MAX_BYTES;

/// The READ in progress.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The number of the READ.
    pub(crate) id: u64,
    /// The seed of the order; none for the usual order.
    pub(crate) seed: Option<u64>,
    /// The place of the first kept byte in the READ.
    pub(crate) start: u64,
    /// The bytes that are kept until their block is placed.
    pub(crate) bytes: Vec<u8>,
    /// The place of the next block in the order, if blocks are being placed.
    pub(crate) place: Option<u64>,
    /// Limits the number of messages whose bytes the adapter keeps.
    pub(crate) _ticket: Option<Arc<()>>,
}

impl Reading {
    /// Returns the end of the kept bytes in the READ.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }

    /// Keeps bytes. Returns whether as many fit again.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(bytes);
        self.bytes.len() + bytes.len() < MAX_BYTES
    }

    /// Begins with the bytes after the kept ones, all of which have been placed.
    pub(crate) fn turn_over(&mut self) {
        (self.start, self.place) = (self.end(), None);
        self.bytes.clear();
    }
}
