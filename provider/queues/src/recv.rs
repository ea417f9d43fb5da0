// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The receive queue of a QP.

use vrnic_abi as abi;

use abi::sq::Sge;

use crate::posted::Posted;
use crate::request::{PostError, write_recv};
use crate::ring::Ring;

/// The producing side of a receive queue.
#[derive(Debug)]
pub struct RecvQueue {
    ring: Ring,
    /// The index of the next entry.
    next: u32,
    max_sge: u32,
}

impl RecvQueue {
    /// Creates an empty queue on `ring`.
    #[must_use]
    pub fn new(ring: Ring, max_sge: u32) -> Self {
        Self { ring, next: 0, max_sge }
    }

    /// Returns the set of outstanding requests, which is empty, for the completion queue.
    pub(crate) fn posted(&self) -> Posted {
        Posted::new(self.ring.clone())
    }

    /// Writes an entry; `freed` is the index up to which entries have completed.
    #[inline]
    pub(crate) fn push(
        &mut self,
        freed: u32,
        wr_id: u64,
        segments: &[Sge],
    ) -> Result<(), PostError> {
        if self.next.wrapping_sub(freed) >= self.ring.size() {
            return Err(PostError::Full);
        }
        write_recv(self.ring.entry(self.next), wr_id, segments, self.max_sge)?;
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Returns the producer index.
    #[must_use]
    #[inline]
    pub fn producer(&self) -> u32 {
        self.next
    }

    /// Empties the queue, while the adapter does not use it.
    pub(crate) fn reset(&mut self) {
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;
    use crate::ring::Shape;

    #[test]
    fn entries_are_taken_and_given_back() {
        let shape = Shape { log_size: 1, log_stride: 5 };
        let ring = Ring::new(Mapping::anonymous(4096).expect("mmap"), shape).expect("fits");
        let mut queue = RecvQueue::new(ring, 1);
        let segment = Sge::default();
        queue.push(0, 1, &[segment]).expect("room");
        queue.push(0, 2, &[]).expect("room");
        assert_eq!(queue.push(0, 3, &[]), Err(PostError::Full));
        assert_eq!(queue.push(1, 3, &[segment; 2]), Err(PostError::Segments));
        queue.push(1, 3, &[segment]).expect("room again");
        assert_eq!(queue.producer(), 3);
        queue.reset();
        assert_eq!(queue.producer(), 0);
    }
}
