// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The shared receive queue: one ring from which many QPs take receives. These complete to several
//! CQs in any order.
//!
//! The adapter copies an entry when a QP takes it. So the completion of entry `i` shows that all
//! entries up to `i` are free, even if earlier ones have not completed. The credits are the highest
//! such index.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::Srqn;
use abi::sq::Sge;
use abi::uverbs::{SrqReq, SrqResp};

use crate::cq::{CompletionQueue, Credits, SharedCredits};
use crate::doorbell::{SrqDoorbell, Uar};
use crate::heap::Shared;
use crate::layout::SrqRing;
use crate::lock::{Guard, Sharing, SpinLock};
use crate::recv::{NoRoom, RecvQueue};
use crate::request::PostError;
use crate::ring::Ring;

/// A shared receive queue. Its [`Sharing`] determines which threads may use it.
#[derive(Debug)]
pub struct SharedRecvQueue {
    srqn: Srqn,
    queue: SpinLock<RecvQueue>,
    /// Held while the queue changes its size.
    resizing: Mutex<()>,
    /// True while the adapter moves to another ring, under the lock of the queue. Receives are then
    /// written and not yet published.
    moving: AtomicBool,
    credits: Shared<SharedCredits>,
    door: SrqDoorbell,
    /// The completion queue of the receives of an XRC queue, and its credits there.
    feeds: Option<(Shared<CompletionQueue>, Shared<Credits>)>,
}

impl SharedRecvQueue {
    /// Returns the queue on `ring`, as the kernel created it. A queue of XRC has the completion
    /// queue of its receives.
    ///
    /// # Errors
    /// `EIO` if the kernel's answer is invalid; `ENOMEM`.
    pub fn new(
        ring: SrqRing,
        response: &SrqResp,
        uar: Shared<Uar>,
        sharing: Sharing,
        cq: Option<Shared<CompletionQueue>>,
    ) -> Result<Self, Errno> {
        let memory = Ring::new(ring.memory, ring.shape)?;
        let door = SrqDoorbell::new(uar, response.slot)?;
        let srqn = response.srqn;
        let credits = Shared::new(SharedCredits::default())?;
        let feeds = match cq {
            Some(cq) => {
                let feeder = Shared::new(Credits::new(Some(credits.clone())))?;
                cq.attach_shared(srqn, &feeder)?;
                Some((cq, feeder))
            }
            None => None,
        };
        Ok(Self {
            srqn,
            queue: SpinLock::shared_by(sharing, RecvQueue::new(memory, ring.max_sge)),
            resizing: Mutex::new(()),
            moving: AtomicBool::new(false),
            credits,
            door,
            feeds,
        })
    }

    /// Returns the credits that completions update.
    pub(crate) fn credits(&self) -> &Shared<SharedCredits> {
        &self.credits
    }

    /// Returns the largest number of segments of a receive.
    #[must_use]
    pub fn max_sge(&self) -> u32 {
        self.queue.lock().max_sge()
    }

    /// Continues in `ring`; `command` makes the adapter continue there. Receives that are posted
    /// meanwhile are published afterwards.
    ///
    /// # Errors
    /// `EINVAL` if the ring has no room for the receives that are outstanding; the errors of
    /// `command`; `ENOMEM`. The queue is unchanged then.
    pub fn resize(
        &self,
        ring: SrqRing,
        command: impl FnOnce(SrqReq) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let request = ring.request();
        let ring = Ring::new(ring.memory, ring.shape)?;
        let _one = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = self.recvs();
        batch.reclaim();
        batch.queue.begin_to_move(&ring, self.credits.get()).map_err(|NoRoom| Errno::INVAL)?;
        self.moving.store(true, Ordering::Relaxed);
        let moved = batch.start;
        drop(batch);
        // The lock is free: a command takes long, and those who wait for the lock spin.
        let result = command(request);
        let mut batch = self.recvs();
        batch.start = moved;
        self.moving.store(false, Ordering::Relaxed);
        let old = match result {
            Ok(()) => Some(batch.queue.continue_in(ring, moved)),
            Err(_) => {
                batch.queue.stay();
                None
            }
        };
        drop(batch);
        // Unmapped without the lock.
        drop(old);
        result
    }

    /// Begins to post: the batch holds the queue's lock, and publishes once on drop.
    #[must_use]
    #[inline]
    pub fn recvs(&self) -> SharedBatch<'_> {
        let queue = self.queue.lock();
        let start = queue.producer();
        SharedBatch { srq: self, queue, start }
    }
}

impl Drop for SharedRecvQueue {
    fn drop(&mut self) {
        if let Some((cq, feeder)) = &self.feeds {
            cq.detach_shared(self.srqn, feeder);
        }
    }
}

/// Receives being posted together.
#[derive(Debug)]
pub struct SharedBatch<'a> {
    srq: &'a SharedRecvQueue,
    queue: Guard<'a, RecvQueue>,
    start: u32,
}

impl SharedBatch<'_> {
    /// Adds a receive.
    ///
    /// # Errors
    /// [`PostError`]; the queue is unchanged then.
    #[inline]
    pub fn push(&mut self, wr_id: u64, segments: &[Sge]) -> Result<(), PostError> {
        match self.queue.push(self.srq.credits.get(), wr_id, segments) {
            Err(PostError::Full) if self.reclaim() => {
                self.queue.push(self.srq.credits.get(), wr_id, segments)
            }
            result => result,
        }
    }

    /// Takes over the number of free entries that the adapter reports. Returns whether it is larger
    /// than completions have shown, because queue pairs with entries have been destroyed.
    #[cold]
    fn reclaim(&self) -> bool {
        let (credits, freed) = (self.srq.credits.get(), self.srq.door.freed());
        let outstanding = self.queue.producer().wrapping_sub(credits);
        let news = (1..=outstanding).contains(&freed.wrapping_sub(credits));
        if news {
            self.srq.credits.advance(freed);
        }
        news
    }
}

impl Drop for SharedBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        let producer = self.queue.producer();
        if producer != self.start && !self.srq.moving.load(Ordering::Relaxed) {
            self.srq.door.post(producer);
        }
    }
}

#[cfg(test)]
mod tests {
    use abi::cq::{Cqe, Opcode};

    use super::*;
    use crate::allocator::Resource;
    use crate::cq;
    use crate::doorbell::tests::{set_slot_word, slot_words, take_summary, uar};
    use crate::layout::Limits;
    use crate::source::Source;

    const SLOT: u32 = 30;
    const LIMITS: Limits = Limits { max_wr: 64, max_sge: 16, max_inline: 0, max_cqe: 64 };

    fn queue(entries: u32) -> (SharedRecvQueue, Shared<Uar>) {
        let ring =
            SrqRing::allocate(entries, 1, &LIMITS, &Source::pages(Resource::Srq)).expect("memory");
        let uar = uar(2);
        let response = SrqResp { srqn: 5.into(), slot: SLOT.into(), ..SrqResp::default() };
        let srq = SharedRecvQueue::new(ring, &response, uar.clone(), Sharing::ANY, None);
        (srq.expect("valid"), uar)
    }

    fn post(srq: &SharedRecvQueue, count: u64) -> Result<(), PostError> {
        let mut batch = srq.recvs();
        (0..count).try_for_each(|wr_id| batch.push(wr_id, &[Sge::default()]))
    }

    #[test]
    fn a_batch_publishes_once_and_rings_nothing() {
        let (srq, uar) = queue(4);
        post(&srq, 3).expect("room");
        assert_eq!(slot_words(&uar, SLOT), (3, 0));
        assert_eq!(take_summary(&uar), 0);
    }

    #[test]
    fn a_full_queue_refuses_and_completions_make_room_in_any_order() {
        let (srq, uar) = queue(4);
        assert_eq!(post(&srq, 9), Err(PostError::Full));
        assert_eq!(slot_words(&uar, SLOT).0, 4, "what fits is posted");
        srq.credits().completed(2);
        srq.credits().completed(0);
        assert_eq!(post(&srq, 9), Err(PostError::Full));
        assert_eq!(slot_words(&uar, SLOT).0, 7);
        srq.credits().completed(1);
        assert_eq!(post(&srq, 1), Err(PostError::Full), "an old index frees nothing");
    }

    #[test]
    fn a_full_queue_asks_the_adapter_what_is_free() {
        let (srq, uar) = queue(4);
        post(&srq, 4).expect("room");
        for nonsense in [5, u32::MAX, 0] {
            set_slot_word(&uar, SLOT, nonsense);
            assert_eq!(post(&srq, 1), Err(PostError::Full), "{nonsense}");
        }
        set_slot_word(&uar, SLOT, 3);
        assert_eq!(post(&srq, 4), Err(PostError::Full));
        assert_eq!(slot_words(&uar, SLOT), (7, 3));
    }

    #[test]
    fn completions_of_xrc_find_the_queue_by_its_number() {
        let (cq, _) = cq::tests::queue(8);
        let cq = Shared::new(cq).expect("memory");
        let ring = SrqRing::allocate(4, 1, &LIMITS, &Source::pages(Resource::Srq)).expect("memory");
        let response = SrqResp { srqn: 5.into(), slot: SLOT.into(), ..SrqResp::default() };
        let srq = SharedRecvQueue::new(ring, &response, uar(2), Sharing::ANY, Some(cq.clone()));
        let srq = srq.expect("valid");
        post(&srq, 4).expect("room");
        // The QP is of another process; its number says nothing here.
        let received = |srqn: u32, index| Cqe {
            opcode: Opcode::Recv as u8,
            srqn: srqn.into(),
            ..cq::tests::send_cqe(99, 7, index)
        };
        cq::tests::complete(&cq, 0, received(5, 1));
        cq::tests::complete(&cq, 1, received(6, 3));
        let mut seen = vec![];
        cq.poll(8, |_, completion| seen.push((completion.qpn, completion.srqn)));
        assert_eq!(seen, [(99, 5)], "a queue that is not ours is skipped");
        assert_eq!(post(&srq, 4), Err(PostError::Full));
        assert_eq!(srq.queue.lock().producer(), 6);
        cq::tests::complete(&cq, 2, received(5, 2));
        drop(srq);
        assert_eq!(cq.poll(8, |_, _| ()), 0, "its completions go with it");
    }

    #[test]
    fn outstanding_receives_go_along_to_another_ring() {
        let (srq, uar) = queue(4);
        let ring = |entries| {
            SrqRing::allocate(entries, 1, &LIMITS, &Source::pages(Resource::Srq)).expect("memory")
        };
        let words = |index| {
            let queue = srq.queue.lock();
            queue.entry(index).iter().map(|word| word.load(Ordering::Relaxed)).collect::<Vec<_>>()
        };
        post(&srq, 4).expect("room");
        set_slot_word(&uar, SLOT, 1);
        let before: Vec<_> = (1..4).map(words).collect();
        assert_eq!(srq.resize(ring(2), |_| Ok(())), Err(Errno::INVAL), "three are outstanding");
        assert_eq!(srq.resize(ring(8), |_| Err(Errno::BUSY)), Err(Errno::BUSY));
        assert_eq!(post(&srq, 2), Err(PostError::Full), "one is free");
        srq.credits().completed(1);
        srq.resize(ring(8), |_| Ok(())).expect("room");
        assert_eq!((2..4).map(words).collect::<Vec<_>>(), before[1..]);
        assert_eq!(post(&srq, 9), Err(PostError::Full));
        assert_eq!(slot_words(&uar, SLOT).0, 10, "eight from 2 on");
    }

    #[test]
    fn receives_are_posted_while_the_adapter_moves_and_published_then() {
        let ring = |entries| {
            SrqRing::allocate(entries, 1, &LIMITS, &Source::pages(Resource::Srq)).expect("memory")
        };
        for result in [Ok(()), Err(Errno::BUSY)] {
            for (old, new) in [(4, 8), (8, 4)] {
                let (srq, uar) = queue(old);
                let published = || slot_words(&uar, SLOT).0;
                post(&srq, 2).expect("room");
                let resized = srq.resize(ring(new), |_| {
                    post(&srq, 1).expect("room");
                    assert_eq!(post(&srq, 9), Err(PostError::Full));
                    assert_eq!(published(), 2);
                    result
                });
                assert_eq!(resized, result);
                assert_eq!(published(), 4, "of both rings the smaller one is full");
                for index in 0..4u32 {
                    let id = srq.queue.lock().entry(index)[0].load(Ordering::Relaxed);
                    assert_eq!(id, [0, 1, 0, 0][index as usize]);
                }
                let size = if result.is_ok() { new } else { old };
                assert_eq!(post(&srq, 9), Err(PostError::Full));
                assert_eq!(published(), size);
            }
        }
    }

    #[test]
    fn too_many_segments_are_refused() {
        let (srq, _uar) = queue(4);
        let two = [Sge::default(); 2];
        assert_eq!(srq.recvs().push(1, &two), Err(PostError::Segments));
    }
}
