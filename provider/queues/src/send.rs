// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The send queue of a QP.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use vrnic_abi as abi;

use crate::mapping::store_fence;
use crate::posted::{self, Posted};
use crate::request::{Payload, PostError, SEND_HEADER_WORDS, SendHeader, SendLimits};
use crate::ring::{self, Ring};

/// The memory of the entries, which decides how an entry is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// This process' memory; a producer index posts.
    Guest,
    /// The adapter's memory; the entry's stamp posts.
    Device,
}

/// The producing side of a send queue.
#[derive(Debug)]
pub struct SendQueue {
    ring: Ring,
    place: Place,
    /// The index of the next entry.
    next: u32,
    /// The number of entries that may be outstanding: zero if another poster has the queue.
    room: u32,
    limits: SendLimits,
    /// The identifiers of the requests, each in the first word of an entry: the ring itself, or
    /// [`posted::room`] if the ring is in the adapter's memory. There the second words are those
    /// header words of staged entries that will post them.
    ids: Ring,
}

impl SendQueue {
    /// Creates an empty queue on `ring`, whatever its memory contains.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(ring: Ring, place: Place, limits: SendLimits) -> Result<Self, Errno> {
        let ids = match place {
            Place::Guest => ring.clone(),
            Place::Device => posted::room(ring.log_size())?,
        };
        let room = ring.size();
        let mut queue = Self { ring, place, next: 0, room, limits, ids };
        queue.reset();
        Ok(queue)
    }

    /// Returns the set of outstanding requests, which is empty, for the completion queue.
    pub(crate) fn posted(&self) -> Posted {
        Posted::new(self.ids.clone())
    }

    /// Writes an entry. In the adapter's memory this posts it.
    ///
    /// `freed` is the index up to which entries have completed.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        freed: u32,
        header: &SendHeader,
        payload: Payload<'_>,
    ) -> Result<(), PostError> {
        let (last_to, last) = self.fill(freed, header, payload)?;
        if self.place == Place::Device {
            // The mapping may combine writes, so all other writes must be complete before the stamp
            // is written.
            store_fence();
        }
        last_to.store(last, Ordering::Release);
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Writes the next entry except the last word of its header. Returns that word and its place.
    #[inline(always)]
    fn fill(
        &self,
        freed: u32,
        header: &SendHeader,
        payload: Payload<'_>,
    ) -> Result<(&AtomicU64, u64), PostError> {
        if self.next.wrapping_sub(freed) >= self.room {
            return Err(PostError::without_entry(self.room));
        }
        let count = payload.count(header.opcode, self.limits)?;
        let header = payload.header(header, count, abi::stamp(self.next));
        // Every stride holds a header.
        let entry = self.ring.entry(self.next).split_first_chunk();
        let (head, body) = entry.ok_or(PostError::NoQueue)?;
        payload.write(body);
        if self.place == Place::Device {
            ring::store(self.ids.entry(self.next), &header[..1]);
        }
        let [first @ .., last] = &header;
        let [first_to @ .., last_to]: &[AtomicU64; SEND_HEADER_WORDS] = head;
        ring::store(first_to, first);
        Ok((last_to, *last))
    }

    /// Refuses all further requests, because another poster writes them. Returns the ring.
    pub(crate) fn hand_over(&mut self) -> &Ring {
        self.room = 0;
        &self.ring
    }

    /// Writes an entry for [`Self::commit`] or [`Self::roll_back`]. Nothing may be pushed until
    /// then.
    #[inline]
    pub(crate) fn stage(
        &mut self,
        freed: u32,
        header: &SendHeader,
        payload: Payload<'_>,
    ) -> Result<(), PostError> {
        if self.place == Place::Guest {
            // The producer index posts it, and is published later.
            return self.push(freed, header, payload);
        }
        // The old stamp stays. It belongs to an earlier round.
        let (_, last) = self.fill(freed, header, payload)?;
        if let Some(withheld) = self.ids.entry(self.next).get(1) {
            withheld.store(last, Ordering::Relaxed);
        }
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Makes the entries that were staged from `start` on ready to be posted; in the adapter's
    /// memory this posts them, in order.
    #[inline]
    pub(crate) fn commit(&mut self, start: u32) {
        if self.place == Place::Guest {
            return;
        }
        store_fence();
        let mut index = start;
        while index != self.next {
            let stamp = self.ring.entry(index).get(SEND_HEADER_WORDS - 1);
            if let (Some(stamp), Some(withheld)) = (stamp, self.ids.entry(index).get(1)) {
                stamp.store(withheld.load(Ordering::Relaxed), Ordering::Release);
            }
            index = index.wrapping_add(1);
        }
    }

    /// Drops the staged entries: the next entry is `start` again.
    #[inline]
    pub(crate) fn roll_back(&mut self, start: u32) {
        self.next = start;
    }

    /// Returns the memory of the entries.
    #[must_use]
    #[inline]
    pub fn place(&self) -> Place {
        self.place
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
        if self.place == Place::Device {
            // Otherwise old stamps would post old entries again.
            for index in 0..self.ring.size() {
                if let Some(word) = self.ring.entry(index).get(SEND_HEADER_WORDS - 1) {
                    word.store(0, Ordering::Relaxed);
                }
            }
            store_fence();
        }
    }
}

#[cfg(test)]
impl SendQueue {
    /// Returns the flags of an entry.
    pub(crate) fn flags_at(&self, index: u32) -> u8 {
        self.ring.entry(index)[1].load(Ordering::Relaxed).to_ne_bytes()[1]
    }

    /// Returns the memory of all entries.
    pub(crate) fn memory(&self) -> crate::mapping::Words {
        self.ring.memory()
    }
}

#[cfg(test)]
mod tests {
    use abi::sq::{Flags, Opcode};

    use super::*;
    use crate::mapping::Mapping;
    use crate::request::Data;
    use crate::ring::Shape;

    const SHAPE: Shape = Shape { log_size: 2, log_stride: 6 };

    fn queue(place: Place) -> SendQueue {
        let ring = Ring::new(Mapping::anonymous(4096).expect("mmap"), SHAPE).expect("fits");
        let limits = SendLimits { max_sge: 1, max_inline: 32, max_command_sge: 0, max_headers: 0 };
        SendQueue::new(ring, place, limits).expect("memory")
    }

    fn push(queue: &mut SendQueue, freed: u32, wr_id: u64) -> Result<(), PostError> {
        queue.push(freed, &header(wr_id), Payload::Plain(Data::Inline(&[b"payload"])))
    }

    fn header(wr_id: u64) -> SendHeader {
        let (opcode, flags) = (Opcode::Send, Flags::empty());
        SendHeader { wr_id, opcode, flags, imm: [0; 4], raddr: 0, rkey: 0 }
    }

    fn stamp_of(queue: &SendQueue, index: u32) -> u32 {
        (queue.ring.entry(index)[3].load(Ordering::Acquire) >> 32) as u32
    }

    #[test]
    fn a_full_queue_takes_no_more_until_entries_are_freed() {
        let mut queue = queue(Place::Guest);
        for wr_id in 0..4 {
            push(&mut queue, 0, wr_id).expect("room");
        }
        assert_eq!(push(&mut queue, 0, 4), Err(PostError::Full));
        assert_eq!(queue.producer(), 4);
        push(&mut queue, 3, 4).expect("room again");
        assert_eq!(queue.ring.entry(0)[0].load(Ordering::Relaxed), 4);
        assert_eq!(queue.producer(), 5);
    }

    #[test]
    fn indices_run_past_the_end_of_32_bits() {
        let mut queue = queue(Place::Device);
        queue.next = u32::MAX - 1;
        for step in 0..4u32 {
            push(&mut queue, (u32::MAX - 1).wrapping_add(step), step.into()).expect("room");
        }
        assert_eq!(queue.producer(), 2);
        assert_eq!(stamp_of(&queue, u32::MAX), 0, "the stamp wraps with the index");
        assert_eq!(stamp_of(&queue, 1), 2);
        assert_eq!(push(&mut queue, u32::MAX - 1, 9), Err(PostError::Full));
    }

    #[test]
    fn a_refused_request_takes_no_entry() {
        let mut queue = queue(Place::Guest);
        let long = [0; 33];
        let pieces: [&[u8]; 1] = [&long];
        let bad = Payload::Plain(Data::Inline(&pieces));
        assert_eq!(queue.push(0, &header(1), bad), Err(PostError::Inline));
        assert_eq!(queue.producer(), 0);
    }

    #[test]
    fn reset_wipes_the_stamps_of_device_memory() {
        let mut queue = queue(Place::Device);
        for wr_id in 0..4 {
            push(&mut queue, 0, wr_id).expect("room");
        }
        assert_eq!(stamp_of(&queue, 3), 4);
        queue.reset();
        assert!((0..4).all(|index| stamp_of(&queue, index) == 0));
        assert_eq!(queue.producer(), 0);
    }

    #[test]
    fn staged_entries_are_posted_together_or_not_at_all() {
        for place in [Place::Guest, Place::Device] {
            let mut queue = queue(place);
            let stage = |queue: &mut SendQueue, freed, wr_id| {
                queue.stage(freed, &header(wr_id), Payload::Plain(Data::Inline(&[b"payload"])))
            };
            (0..4).for_each(|wr_id| push(&mut queue, 0, wr_id).expect("room"));
            for lap in 1..4u32 {
                let start = 4 * lap;
                stage(&mut queue, start, 100).expect("room");
                stage(&mut queue, start, 101).expect("room");
                queue.roll_back(start);
                assert_eq!(queue.producer(), start);
                if place == Place::Device {
                    assert_eq!(stamp_of(&queue, start), start - 3, "of the last lap");
                }
                for wr_id in 0..4 {
                    stage(&mut queue, start, u64::from(start) + wr_id).expect("room");
                    if place == Place::Device {
                        assert_eq!(stamp_of(&queue, start), start - 3, "not posted yet");
                    }
                }
                assert_eq!(stage(&mut queue, start, 9), Err(PostError::Full));
                queue.commit(start);
                for index in start..start + 4 {
                    assert_eq!(stamp_of(&queue, index), index + 1);
                    assert_eq!(queue.ring.entry(index)[0].load(Ordering::Relaxed), index.into());
                }
                assert_eq!(queue.producer(), start + 4);
            }
        }
    }

    #[test]
    fn garbage_credits_never_write_outside() {
        let mut queue = queue(Place::Guest);
        assert_eq!(push(&mut queue, 77, 1), Err(PostError::Full));
    }
}
