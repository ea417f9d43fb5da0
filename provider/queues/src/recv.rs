// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The receive queue of a QP.

#[cfg(test)]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use vrnic_abi as abi;

use abi::sq::Sge;

use crate::posted::Posted;
use crate::request::{PostError, write_recv};
use crate::ring::Ring;

/// A ring has no room for the entries of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// The producing side of a receive queue.
#[derive(Debug)]
pub struct RecvQueue {
    ring: Ring,
    /// The index of the next entry.
    next: u32,
    /// The number of entries that may be outstanding: zero if another poster has the queue.
    room: u32,
    max_sge: u32,
}

impl RecvQueue {
    /// Creates an empty queue on `ring`.
    #[must_use]
    pub fn new(ring: Ring, max_sge: u32) -> Self {
        let room = ring.size();
        Self { ring, next: 0, room, max_sge }
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
        if self.next.wrapping_sub(freed) >= self.room {
            return Err(PostError::without_entry(self.room));
        }
        write_recv(self.ring.entry(self.next), wr_id, segments, self.max_sge)?;
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Refuses all further requests, because another poster writes them. Returns the ring.
    pub(crate) fn hand_over(&mut self) -> &Ring {
        self.room = 0;
        &self.ring
    }

    /// Returns the words of an entry.
    #[cfg(test)]
    pub(crate) fn entry(&self, index: u32) -> &[AtomicU64] {
        self.ring.entry(index)
    }

    /// Returns the producer index.
    #[must_use]
    #[inline]
    pub fn producer(&self) -> u32 {
        self.next
    }

    /// Returns the largest number of segments of a request.
    pub(crate) fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Copies the entries from `freed` on, which have not completed, to their places in `ring`.
    /// From now on no more entries may be outstanding than both rings have.
    ///
    /// # Errors
    /// Returns an error if `ring` has entries of another size, or no room for them.
    pub(crate) fn begin_to_move(&mut self, ring: &Ring, freed: u32) -> Result<(), NoRoom> {
        let outstanding = self.next.wrapping_sub(freed);
        if outstanding > ring.size() || ring.entry(0).len() != self.ring.entry(0).len() {
            return Err(NoRoom);
        }
        self.room = self.room.min(ring.size());
        self.copy_to(ring, freed);
        Ok(())
    }

    /// Copies the entries from `first` on to their places in `ring`.
    fn copy_to(&self, ring: &Ring, first: u32) {
        for index in (0..self.next.wrapping_sub(first)).map(|nth| first.wrapping_add(nth)) {
            for (to, from) in ring.entry(index).iter().zip(self.ring.entry(index)) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Continues in `ring`, to which the entries from `first` on are still to be copied. Returns
    /// the old ring.
    pub(crate) fn continue_in(&mut self, ring: Ring, first: u32) -> Ring {
        self.copy_to(&ring, first);
        self.room = ring.size();
        std::mem::replace(&mut self.ring, ring)
    }

    /// Stays in its ring after all.
    pub(crate) fn stay(&mut self) {
        self.room = self.ring.size();
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
