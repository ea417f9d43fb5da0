// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The completion queue: entries out, credits back to the queues they belong to, and arming.
//!
//! A CQ knows the queue pairs that feed it. Entries of any other QP number are left-overs of
//! a destroyed QP and skipped, so destroying needs no walk through the ring. Where a number
//! comes back to life (a new QP, or one that returns to Reset), its left-overs are taken
//! out of the ring first.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::uar::{ARM_COUNT_SHIFT, ARM_NEXT, ARM_SOLICITED};
use abi::uverbs::CqResp;

use crate::completion::{Completion, QPN_WORD, SRQN_WORD, STAMP_WORD, WORDS};
use crate::doorbell::{CqDoorbell, Uar};
use crate::lock::{Guard, Sharing, SpinLock};
use crate::plan::CqRing;
use crate::ring::Ring;
use crate::srq::SharedCredits;

/// Not a QP number: those have 24 bits.
const NO_QPN: u64 = 0xffff_ffff;

/// Set in the number of a feeder that is a shared receive queue: QP numbers have 24 bits.
const SHARED: u32 = 1 << 31;

/// Who feeds a CQ with an entry: the QP, or of an XRC target, which nobody here may know, the shared receive queue.
#[inline]
fn feeder(qpn: u32, srqn: u32) -> u32 {
    if srqn == 0 { qpn } else { srqn | SHARED }
}

/// Up to which index the entries of a QP's queues have completed. Written by whoever polls,
/// read by whoever posts.
#[derive(Debug, Default)]
pub struct Credits {
    pub(crate) send: AtomicU32,
    pub(crate) recv: AtomicU32,
    /// Where receives are given back that were taken from a shared queue.
    shared: Option<Arc<SharedCredits>>,
}

impl Credits {
    #[inline]
    fn completed(&self, completion: &Completion) {
        let queue = match &self.shared {
            _ if !completion.opcode.is_recv() => &self.send,
            None => &self.recv,
            Some(shared) => return shared.completed(completion.wqe_index),
        };
        queue.store(completion.wqe_index.wrapping_add(1), Ordering::Release);
    }

    /// The credits of a QP that takes receives from a shared queue, if there is one.
    pub(crate) fn new(shared: Option<Arc<SharedCredits>>) -> Self {
        Self { shared, ..Self::default() }
    }

    pub(crate) fn reset(&self) {
        self.send.store(0, Ordering::Release);
        self.recv.store(0, Ordering::Release);
    }
}

/// Which event a consumer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The next completion.
    Any,
    /// The next solicited completion or error.
    Solicited,
}

/// A completion queue, for any number of threads.
#[derive(Debug)]
pub struct CompletionQueue {
    pub(crate) consumer: SpinLock<Consumer>,
    /// Held while the queue changes its size.
    pub(crate) resizing: Mutex<()>,
}

impl CompletionQueue {
    /// The queue on `ring`, as the kernel created it, for those that `sharing` tells.
    ///
    /// # Errors
    /// `EIO` when its answer makes no sense.
    pub fn new(
        ring: CqRing,
        response: &CqResp,
        uar: Arc<Uar>,
        sharing: Sharing,
    ) -> Result<Self, Errno> {
        let ring = Ring::new(ring.memory, ring.shape).ok_or(Errno::IO)?;
        let door = CqDoorbell::new(uar, response.slot.get())?;
        let consumer =
            Consumer { ring, door, next: 0, arm: 0, seen: 0, feeders: Feeders::default() };
        let consumer = SpinLock::shared_by(sharing, consumer);
        Ok(Self { consumer, resizing: Mutex::new(()) })
    }

    /// Takes up to `limit` completions and hands them to `sink` with their number; returns how
    /// many there were.
    #[inline]
    pub fn poll(&self, limit: usize, mut sink: impl FnMut(usize, &Completion)) -> usize {
        let mut consumer = self.consumer.lock();
        let before = consumer.next;
        let mut taken = 0;
        while taken < limit {
            let Some(completion) = consumer.take() else { break };
            sink(taken, &completion);
            taken += 1;
        }
        if consumer.next != before {
            consumer.door.free(consumer.next, consumer.arm);
        }
        taken
    }

    /// Begins to take completions one by one, if there are any; until the series ends, the queue is locked.
    #[inline]
    pub fn series(&self) -> Option<(Series<'_>, Completion)> {
        let mut consumer = self.consumer.lock();
        let first = consumer.next;
        let Some(completion) = consumer.take() else {
            if consumer.next != first {
                consumer.door.free(consumer.next, consumer.arm);
            }
            return None;
        };
        // CAST: the sign of the distance tells which comes first.
        let armed_behind = consumer.seen.wrapping_sub(first) as i32 > 0;
        let limit = if armed_behind { consumer.seen } else { first };
        Some((Series { consumer, limit }, completion))
    }

    /// Asks for an event of a completion that cannot be polled yet.
    #[inline]
    pub fn arm(&self, notify: Notify) {
        let mut consumer = self.consumer.lock();
        let count = (consumer.arm >> ARM_COUNT_SHIFT).wrapping_add(1);
        let kind = match notify {
            Notify::Any => ARM_NEXT,
            Notify::Solicited => ARM_SOLICITED,
        };
        consumer.arm = count << ARM_COUNT_SHIFT | kind;
        let seen = consumer.end();
        consumer.seen = seen;
        consumer.door.arm(consumer.next, seen, consumer.arm);
    }

    /// Lets a QP feed this queue.
    pub(crate) fn attach(&self, qpn: u32, credits: &Arc<Credits>) {
        let mut consumer = self.consumer.lock();
        consumer.purge(qpn);
        consumer.feeders.insert(qpn, credits);
    }

    /// Forgets a QP, unless its number belongs to another one by now.
    pub(crate) fn detach(&self, qpn: u32, credits: &Arc<Credits>) {
        self.consumer.lock().feeders.remove(qpn, credits);
    }

    /// Lets a shared receive queue of XRC feed this queue, until [`Self::detach_shared`].
    pub(crate) fn attach_shared(&self, srqn: u32, credits: &Arc<Credits>) {
        self.attach(srqn | SHARED, credits);
    }

    /// Forgets a shared receive queue.
    pub(crate) fn detach_shared(&self, srqn: u32, credits: &Arc<Credits>) {
        self.detach(srqn | SHARED, credits);
    }

    /// Drops all completions of a QP that are in the ring.
    pub(crate) fn purge(&self, qpn: u32) {
        self.consumer.lock().purge(qpn);
    }
}

/// Completions being taken one by one; their entries are freed on drop.
///
/// A series that begins before the index at which the queue was armed ends there: what comes behind has an event of its
/// own. So a program that for each event arms and takes one series, as `ibv_rc_pingpong -e -t` does, always finds a completion.
#[derive(Debug)]
pub struct Series<'a> {
    consumer: Guard<'a, Consumer>,
    /// Where it ends. That of its first entry, which has been taken, does not come again.
    limit: u32,
}

impl Series<'_> {
    /// The next one.
    #[inline]
    pub fn take(&mut self) -> Option<Completion> {
        while self.consumer.next != self.limit {
            if let Some(completion) = self.consumer.step()? {
                return Some(completion);
            }
        }
        None
    }
}

impl Drop for Series<'_> {
    #[inline]
    fn drop(&mut self) {
        self.consumer.door.free(self.consumer.next, self.consumer.arm);
    }
}

/// The consuming side of the ring.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) ring: Ring,
    door: CqDoorbell,
    /// Index of the next entry.
    pub(crate) next: u32,
    /// The last arm request, and the first entry that was not there then.
    arm: u32,
    seen: u32,
    feeders: Feeders,
}

impl Consumer {
    /// Takes the next completion of a QP that we know.
    #[inline]
    fn take(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.step()? {
                return Some(completion);
            }
        }
    }

    /// Takes the next entry, if there is one: a completion, unless its QP is none that we know.
    #[inline]
    fn step(&mut self) -> Option<Option<Completion>> {
        let completion = Completion::decode(load(self.valid(self.next)?));
        self.next = self.next.wrapping_add(1);
        let Some(credits) = self.feeders.find(feeder(completion.qpn, completion.srqn)) else {
            return Some(None);
        };
        credits.completed(&completion);
        Some(Some(completion))
    }

    /// The entry at `index` if the adapter has written it. What is read from it afterwards is at
    /// least as new as its stamp.
    #[inline]
    pub(crate) fn valid(&self, index: u32) -> Option<&[AtomicU64; WORDS]> {
        let entry = self.ring.entry(index).first_chunk()?;
        let stamp = entry[STAMP_WORD].load(Ordering::Acquire) >> 32;
        (stamp == u64::from(abi::stamp(index))).then_some(entry)
    }

    /// Index of the first entry that the adapter has not written.
    fn end(&self) -> u32 {
        let written = |index: &u32| self.valid(*index).is_some();
        let entries = (0..self.ring.size()).map(|step| self.next.wrapping_add(step));
        let count = entries.take_while(written).count();
        // CAST: at most the ring's size, which is a `u32`.
        self.next.wrapping_add(count as u32)
    }

    /// Takes the entries of a feeder out of the ring: their QP number becomes one that nobody has.
    fn purge(&mut self, number: u32) {
        for step in 0..self.ring.size() {
            let Some(entry) = self.valid(self.next.wrapping_add(step)) else { return };
            let (qpn_word, srqn_word) = (&entry[QPN_WORD], &entry[SRQN_WORD]);
            let (qpn, srqn) = (qpn_word.load(Ordering::Relaxed), srqn_word.load(Ordering::Relaxed));
            // CAST: the lower halves.
            if feeder(qpn as u32, srqn as u32) == number {
                qpn_word.store(qpn | NO_QPN, Ordering::Relaxed);
                srqn_word.store(srqn & !NO_QPN, Ordering::Relaxed);
            }
        }
    }
}

#[inline]
pub(crate) fn load(entry: &[AtomicU64; WORDS]) -> [u64; WORDS] {
    std::array::from_fn(|word| entry[word].load(Ordering::Relaxed))
}

/// The queue pairs that feed a CQ, by number.
#[derive(Debug, Default)]
struct Feeders {
    known: HashMap<u32, Arc<Credits>, BuildHasherDefault<QpnHasher>>,
    /// The one that fed last: most often it feeds again.
    last: Option<(u32, Arc<Credits>)>,
}

impl Feeders {
    #[inline]
    fn find(&mut self, qpn: u32) -> Option<&Credits> {
        if !matches!(self.last, Some((last, _)) if last == qpn) {
            self.look_up(qpn);
        }
        self.last.as_ref().map(|(_, credits)| &**credits)
    }

    #[cold]
    fn look_up(&mut self, qpn: u32) {
        self.last = self.known.get(&qpn).map(|credits| (qpn, credits.clone()));
    }

    fn insert(&mut self, qpn: u32, credits: &Arc<Credits>) {
        self.known.insert(qpn, credits.clone());
        self.last = None;
    }

    fn remove(&mut self, qpn: u32, credits: &Arc<Credits>) {
        if self.known.get(&qpn).is_some_and(|known| Arc::ptr_eq(known, credits)) {
            self.known.remove(&qpn);
            self.last = None;
        }
    }
}

/// Spreads QP numbers, which the adapter hands out and nobody can choose, by one multiplication.
#[derive(Debug, Default)]
struct QpnHasher(u64);

impl Hasher for QpnHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        // 2^64 divided by the golden ratio.
        self.0 = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use abi::cq::{Cqe, Opcode, Status};
    use zerocopy::transmute;

    use super::*;
    use crate::doorbell::tests::{slot_seen, slot_words, take_summary, uar};
    use crate::plan::Limits;

    const SLOT: u32 = 20;

    /// A queue of `entries`, with the UAR as the adapter sees it.
    pub(crate) fn queue(entries: u32) -> (CompletionQueue, Arc<Uar>) {
        let limits = Limits { max_wr: 0, max_sge: 0, max_inline: 0, max_cqe: 1 << 20 };
        let ring = CqRing::allocate(entries, &limits).expect("memory");
        let uar = uar(2);
        let response = CqResp { slot: SLOT.into(), ..CqResp::default() };
        (CompletionQueue::new(ring, &response, uar.clone(), Sharing::ANY).expect("valid"), uar)
    }

    /// Writes an entry as the adapter does.
    pub(crate) fn complete(cq: &CompletionQueue, index: u32, cqe: Cqe) {
        let cqe = Cqe { stamp: abi::stamp(index).into(), ..cqe };
        let words: [u64; WORDS] = transmute!(cqe);
        for (to, from) in cq.consumer.lock().ring.entry(index).iter().zip(words) {
            to.store(from, Ordering::Release);
        }
    }

    pub(crate) fn send_cqe(qpn: u32, wr_id: u64, wqe_index: u32) -> Cqe {
        Cqe {
            wr_id: wr_id.into(),
            qpn: qpn.into(),
            wqe_index: wqe_index.into(),
            opcode: Opcode::Send as u8,
            status: Status::Success as u8,
            ..Cqe::default()
        }
    }

    fn poll(cq: &CompletionQueue, limit: usize) -> Vec<u64> {
        let mut ids = Vec::new();
        cq.poll(limit, |_, completion| ids.push(completion.wr_id));
        ids
    }

    #[test]
    fn entries_come_out_in_order_lap_after_lap() {
        let (cq, uar) = queue(4);
        let credits = Arc::new(Credits::default());
        cq.attach(7, &credits);
        assert!(poll(&cq, 8).is_empty());
        assert_eq!(slot_words(&uar, SLOT), (0, 0), "an empty poll stores nothing");
        for index in 0..40u32 {
            complete(&cq, index, send_cqe(7, index.into(), index * 2));
            assert_eq!(poll(&cq, 8), [u64::from(index)]);
            assert_eq!(slot_words(&uar, SLOT).0, index + 1);
            assert_eq!(credits.send.load(Ordering::Relaxed), index * 2 + 1);
        }
        assert_eq!(credits.recv.load(Ordering::Relaxed), 0);
        assert_eq!(take_summary(&uar), 0, "polling rings nothing");
    }

    #[test]
    fn the_limit_is_kept() {
        let (cq, uar) = queue(4);
        cq.attach(7, &Arc::new(Credits::default()));
        for index in 0..4 {
            complete(&cq, index, send_cqe(7, index.into(), index));
        }
        assert!(poll(&cq, 0).is_empty());
        assert_eq!(poll(&cq, 3), [0, 1, 2]);
        assert_eq!(slot_words(&uar, SLOT).0, 3);
        assert_eq!(poll(&cq, 3), [3]);
    }

    #[test]
    fn a_series_frees_its_entries_at_its_end() {
        let (cq, uar) = queue(4);
        let credits = Arc::new(Credits::default());
        cq.attach(7, &credits);
        assert!(cq.series().is_none());
        assert_eq!(slot_words(&uar, SLOT), (0, 0), "an empty queue stores nothing");
        for index in 0..3 {
            let qpn = if index == 1 { 8 } else { 7 };
            complete(&cq, index, send_cqe(qpn, index.into(), index));
        }
        let (mut series, first) = cq.series().expect("a completion");
        assert_eq!(first.wr_id, 0);
        assert_eq!(credits.send.load(Ordering::Relaxed), 1, "credits come at once");
        assert_eq!(series.take().map(|next| next.wr_id), Some(2), "of a QP that we know");
        assert_eq!(series.take(), None);
        assert_eq!(slot_words(&uar, SLOT), (0, 0));
        drop(series);
        assert_eq!(slot_words(&uar, SLOT), (3, 0));
        complete(&cq, 3, send_cqe(8, 3, 3));
        assert!(cq.series().is_none());
        assert_eq!(slot_words(&uar, SLOT), (4, 0), "the entry of nobody is freed");
    }

    #[test]
    fn a_series_ends_where_the_queue_was_armed() {
        let (cq, _uar) = queue(8);
        cq.attach(7, &Arc::new(Credits::default()));
        let put = |index: u32| complete(&cq, index, send_cqe(7, index.into(), index));
        let take = || {
            let (mut series, first) = cq.series()?;
            let mut ids = vec![first.wr_id];
            while let Some(next) = series.take() {
                ids.push(next.wr_id);
            }
            Some(ids)
        };
        (0..3).for_each(put);
        cq.arm(Notify::Any);
        (3..5).for_each(put);
        assert_eq!(take(), Some(vec![0, 1, 2]), "the others have an event to come");
        assert_eq!(take(), Some(vec![3, 4]), "but can be polled before it");
        (5..7).for_each(put);
        assert_eq!(take(), Some(vec![5, 6]), "an old request is no limit");
        cq.arm(Notify::Any);
        assert_eq!(take(), None);
        (7..9).for_each(put);
        assert_eq!(take(), Some(vec![7, 8]), "the queue was armed here");
    }

    #[test]
    fn receives_give_credits_to_the_receive_queue() {
        let (cq, _uar) = queue(4);
        let credits = Arc::new(Credits::default());
        cq.attach(7, &credits);
        let recv = Cqe { opcode: Opcode::Recv as u8, ..send_cqe(7, 1, u32::MAX) };
        complete(&cq, 0, recv);
        assert_eq!(poll(&cq, 1), [1]);
        assert_eq!(credits.recv.load(Ordering::Relaxed), 0, "indices wrap");
        assert_eq!(credits.send.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn entries_of_destroyed_queue_pairs_are_skipped() {
        let (cq, uar) = queue(8);
        let (gone, stays) = (Arc::new(Credits::default()), Arc::new(Credits::default()));
        cq.attach(7, &gone);
        cq.attach(8, &stays);
        for index in 0..6 {
            complete(&cq, index, send_cqe(7 + index % 2, index.into(), index));
        }
        cq.detach(7, &gone);
        assert_eq!(poll(&cq, 2), [1, 3]);
        assert_eq!(poll(&cq, 2), [5]);
        assert_eq!(slot_words(&uar, SLOT).0, 6);
        assert_eq!(gone.send.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_reused_number_does_not_inherit_completions() {
        let (cq, _uar) = queue(8);
        let (old, new) = (Arc::new(Credits::default()), Arc::new(Credits::default()));
        cq.attach(7, &old);
        complete(&cq, 0, send_cqe(7, 100, 0));
        cq.attach(7, &new);
        // The old one's destruction ends late; it must not take the new one's place away.
        cq.detach(7, &old);
        complete(&cq, 1, send_cqe(7, 200, 0));
        assert_eq!(poll(&cq, 8), [200]);
        assert_eq!(old.send.load(Ordering::Relaxed), 0);
        assert_eq!(new.send.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_number_that_comes_back_is_not_mistaken_for_the_last_one() {
        let (cq, _uar) = queue(8);
        let (old, new) = (Arc::new(Credits::default()), Arc::new(Credits::default()));
        cq.attach(7, &old);
        complete(&cq, 0, send_cqe(7, 1, 0));
        assert_eq!(poll(&cq, 1), [1]);
        cq.detach(7, &old);
        complete(&cq, 1, send_cqe(7, 2, 1));
        assert!(poll(&cq, 1).is_empty());
        cq.attach(7, &new);
        complete(&cq, 2, send_cqe(7, 3, 0));
        assert_eq!(poll(&cq, 1), [3]);
        assert_eq!((old.send.load(Ordering::Relaxed), new.send.load(Ordering::Relaxed)), (1, 1));
    }

    #[test]
    fn purging_a_full_ring_ends() {
        let (cq, uar) = queue(4);
        cq.attach(7, &Arc::new(Credits::default()));
        for index in 0..4 {
            complete(&cq, index, send_cqe(7, index.into(), index));
        }
        cq.purge(7);
        assert!(poll(&cq, 8).is_empty());
        assert_eq!(slot_words(&uar, SLOT).0, 4, "the room is given back all the same");
    }

    #[test]
    fn each_arm_request_differs_from_the_last() {
        let (cq, uar) = queue(4);
        cq.attach(7, &Arc::new(Credits::default()));
        complete(&cq, 0, send_cqe(7, 0, 0));
        poll(&cq, 1);
        cq.arm(Notify::Any);
        assert_eq!(slot_words(&uar, SLOT), (1, 1 << ARM_COUNT_SHIFT | ARM_NEXT));
        assert_eq!(slot_seen(&uar, SLOT), 1);
        assert_eq!(take_summary(&uar), 1 << (SLOT / 16));
        cq.arm(Notify::Solicited);
        assert_eq!(slot_words(&uar, SLOT), (1, 2 << ARM_COUNT_SHIFT | ARM_SOLICITED));
        // Freeing entries repeats the request, which is none then.
        complete(&cq, 1, send_cqe(7, 1, 1));
        poll(&cq, 1);
        assert_eq!(slot_words(&uar, SLOT), (2, 2 << ARM_COUNT_SHIFT | ARM_SOLICITED));
        // What can be polled already is no reason for an event.
        complete(&cq, 2, send_cqe(7, 2, 2));
        complete(&cq, 3, send_cqe(7, 3, 3));
        cq.arm(Notify::Any);
        assert_eq!((slot_words(&uar, SLOT).0, slot_seen(&uar, SLOT)), (2, 4));
        cq.consumer.lock().arm = u32::MAX;
        cq.arm(Notify::Any);
        assert_eq!(slot_words(&uar, SLOT).1, ARM_NEXT, "the counter wraps");
    }
}
