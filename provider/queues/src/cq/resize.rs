// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Changing the size of a completion queue in use.
//!
//! The adapter moves to the new ring between two entries and returns the index `first` of the first
//! entry there. Until this is known, polling goes on in the old ring, where no entry from `first`
//! on becomes valid, so the queue seems empty. Then the entries before `first` that were not taken
//! are copied to their places in the new ring, where the adapter leaves room for them, and the old
//! ring is freed.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::uverbs::CqReq;

use super::CompletionQueue;
use super::consumer::{Consumer, load, written};
use crate::completion::STAMP_WORD;
use crate::layout::CqRing;
use crate::policy::VectorPolicy;
use crate::ring::{self, Ring};

impl CompletionQueue {
    /// Continues in `ring`; `command` makes the adapter move there, and returns its `first`.
    ///
    /// # Errors
    /// The errors of `command`, `ENOMEM`, `EPERM` if another poster consumes the queue, and `EBUSY`
    /// if this thread has a series: the queue is unchanged then. `EIO` if the answer is invalid.
    pub fn resize(
        &self,
        ring: CqRing,
        command: impl FnOnce(CqReq) -> Result<u32, Errno>,
    ) -> Result<(), Errno> {
        if self.is_in_series() {
            return Err(Errno::BUSY);
        }
        let _one = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_handed_over() {
            return Err(Errno::PERM);
        }
        // The vector stays as it is.
        let request = ring.request(0, VectorPolicy::Asked);
        let ring = Ring::new(ring.memory, ring.shape)?;
        blank(&ring, self.door.freed());
        let first = command(request)?;
        let mut consumer = self.consumer.lock();
        let old = consumer.continue_in(ring.clone(), first)?;
        let shared = std::mem::replace(&mut self.arming.lock().ring, ring);
        drop(consumer);
        // Unmapped without the lock.
        drop((old, shared));
        Ok(())
    }
}

/// Stamps all entries with a value that no entry of the first lap has: the stamp of the index
/// before `next`. Zero, as in new memory, would be the stamp of the last index before the indices
/// wrap.
fn blank(ring: &Ring, next: u32) {
    if next == 0 {
        return;
    }
    for index in 0..ring.size() {
        if let Some(word) = ring.entry(index).get(STAMP_WORD) {
            word.store(u64::from(next) << 32, Ordering::Relaxed);
        }
    }
}

impl Consumer {
    /// Moves to `ring`, in which the adapter writes from `first` on; returns the old ring.
    fn continue_in(&mut self, ring: Ring, first: u32) -> Result<Ring, Errno> {
        if first.wrapping_sub(self.next) > ring.size().min(self.ring.size()) {
            return Err(Errno::IO);
        }
        let mut index = self.next;
        while index != first {
            let words = load(written(&self.ring, index).ok_or(Errno::IO)?);
            ring::store(ring.entry(index), &words);
            index = index.wrapping_add(1);
        }
        Ok(std::mem::replace(&mut self.ring, ring))
    }
}

const _: () = assert!(abi::stamp(0) == 1, "the stamp of an index is one more than it");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::Resource;
    use crate::cq::tests::{complete, queue, send_cqe};
    use crate::cq::{Credits, Halves};
    use crate::heap::Shared;
    use crate::layout::Limits;
    use crate::source::Source;

    fn ring(entries: u32) -> CqRing {
        let limits = Limits { max_wr: 0, max_sge: 0, max_inline: 0, max_cqe: 1 << 20 };
        CqRing::allocate(entries, &limits, &Source::pages(Resource::Cq)).expect("memory")
    }

    fn poll(cq: &CompletionQueue, limit: usize) -> Vec<u64> {
        let mut ids = Vec::new();
        cq.poll(limit, |_, completion| ids.push(completion.wr_id));
        ids
    }

    /// Returns a queue of `entries` with completions `0..written` in it.
    fn filled(entries: u32, written: u32) -> CompletionQueue {
        let (cq, _uar) = queue(entries);
        let credits = Shared::new(Credits::default()).expect("memory");
        cq.attach(7.into(), &credits, Halves::SENDS).expect("memory");
        for index in 0..written {
            complete(&cq, index, send_cqe(7, index.into(), index));
        }
        cq
    }

    #[test]
    fn entries_wait_in_the_new_ring_in_order() {
        for (size, new, taken) in [(8, 64, 0), (8, 8, 3), (8, 4, 4), (8, 1, 7), (8, 2, 8)] {
            let cq = filled(size, 8);
            assert_eq!(poll(&cq, taken).len(), taken);
            cq.resize(ring(new), |request| {
                assert_eq!(request.log_size, new.ilog2() as u8);
                Ok(8)
            })
            .expect("resized");
            let left: Vec<u64> = (taken as u64..8).collect();
            assert_eq!(poll(&cq, 64), left, "{size} to {new}");
            complete(&cq, 8, send_cqe(7, 8, 8));
            assert_eq!(poll(&cq, 64), [8]);
        }
    }

    #[test]
    fn what_is_polled_during_the_command_does_not_come_again() {
        let cq = filled(8, 5);
        cq.resize(ring(4), |_| {
            assert_eq!(poll(&cq, 2), [0, 1]);
            complete(&cq, 5, send_cqe(7, 5, 5));
            assert_eq!(poll(&cq, 1), [2]);
            Ok(6)
        })
        .expect("resized");
        assert_eq!(poll(&cq, 64), [3, 4, 5]);
    }

    #[test]
    fn a_refused_command_changes_nothing() {
        let cq = filled(8, 5);
        assert_eq!(cq.resize(ring(4), |_| Err(Errno::INVAL)), Err(Errno::INVAL));
        assert_eq!(poll(&cq, 64), [0, 1, 2, 3, 4]);
        complete(&cq, 5, send_cqe(7, 5, 5));
        assert_eq!(poll(&cq, 64), [5]);
    }

    #[test]
    fn nonsense_of_the_kernel_is_refused() {
        for first in [6, 0, 1, u32::MAX] {
            let cq = filled(8, 5);
            assert_eq!(poll(&cq, 2), [0, 1]);
            assert_eq!(cq.resize(ring(2), |_| Ok(first)), Err(Errno::IO), "{first}");
        }
    }

    #[test]
    fn an_unwritten_entry_is_none_also_where_indices_wrap() {
        for next in [0, 1, u32::MAX - 3, u32::MAX - 1, u32::MAX] {
            let cq = filled(8, 0);
            cq.consumer.lock().next = next;
            cq.door.free(next);
            cq.resize(ring(16), |_| Ok(next)).expect("resized");
            let lap = 0..16u32;
            for step in lap.clone() {
                let index = next.wrapping_add(step);
                let ring = cq.arming.lock().ring.clone();
                assert!(written(&ring, index).is_none(), "{index} after {next}");
            }
            for step in lap {
                let index = next.wrapping_add(step);
                complete(&cq, index, send_cqe(7, index.into(), index));
                assert_eq!(poll(&cq, 64), [u64::from(index)]);
            }
        }
    }
}
