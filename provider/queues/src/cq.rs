// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The completion queue: entries out, credits back to the queues they belong to, and arming.
//!
//! A CQ knows the queue pairs that feed it. Entries of any other QP number are left-overs of
//! a destroyed QP and skipped, so destroying needs no walk through the ring. Where a number
//! comes back to life (a new QP, or one that returns to Reset), its left-overs are taken
//! out of the ring first.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::uar::{ARM_COUNT_SHIFT, ARM_NEXT, ARM_SOLICITED};
use abi::uverbs::CqResp;

use crate::completion::{Completion, QPN_WORD, SRQN_WORD, STAMP_WORD, WORDS};
use crate::doorbell::{CqDoorbell, Uar};
use crate::lock::SpinLock;
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
pub struct CompletionQueue(SpinLock<Consumer>);

impl CompletionQueue {
    /// The queue on `ring`, as the kernel created it.
    ///
    /// # Errors
    /// `EIO` when its answer makes no sense.
    pub fn new(ring: CqRing, response: &CqResp, uar: Arc<Uar>) -> Result<Self, Errno> {
        let ring = Ring::new(ring.memory, ring.shape).ok_or(Errno::IO)?;
        let door = CqDoorbell::new(uar, response.slot.get())?;
        Ok(Self(SpinLock::new(Consumer {
            ring,
            door,
            next: 0,
            arm: 0,
            feeders: Feeders::default(),
        })))
    }

    /// Takes up to `limit` completions and hands them to `sink` with their number; returns how
    /// many there were.
    #[inline]
    pub fn poll(&self, limit: usize, mut sink: impl FnMut(usize, &Completion)) -> usize {
        let mut consumer = self.0.lock();
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

    /// Asks for an event of a completion that cannot be polled yet.
    #[inline]
    pub fn arm(&self, notify: Notify) {
        let mut consumer = self.0.lock();
        let count = (consumer.arm >> ARM_COUNT_SHIFT).wrapping_add(1);
        let kind = match notify {
            Notify::Any => ARM_NEXT,
            Notify::Solicited => ARM_SOLICITED,
        };
        consumer.arm = count << ARM_COUNT_SHIFT | kind;
        let seen = consumer.end();
        consumer.door.arm(consumer.next, seen, consumer.arm);
    }

    /// Lets a QP feed this queue.
    pub(crate) fn attach(&self, qpn: u32, credits: &Arc<Credits>) {
        let mut consumer = self.0.lock();
        consumer.purge(qpn);
        consumer.feeders.insert(qpn, credits);
    }

    /// Forgets a QP, unless its number belongs to another one by now.
    pub(crate) fn detach(&self, qpn: u32, credits: &Arc<Credits>) {
        self.0.lock().feeders.remove(qpn, credits);
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
        self.0.lock().purge(qpn);
    }
}

/// The consuming side of the ring.
#[derive(Debug)]
struct Consumer {
    ring: Ring,
    door: CqDoorbell,
    /// Index of the next entry.
    next: u32,
    /// The last arm request.
    arm: u32,
    feeders: Feeders,
}

impl Consumer {
    /// Takes the next completion of a QP that we know.
    #[inline]
    fn take(&mut self) -> Option<Completion> {
        loop {
            let completion = Completion::decode(load(self.valid(self.next)?));
            self.next = self.next.wrapping_add(1);
            if let Some(credits) = self.feeders.find(feeder(completion.qpn, completion.srqn)) {
                credits.completed(&completion);
                return Some(completion);
            }
        }
    }

    /// The entry at `index` if the adapter has written it. What is read from it afterwards is at
    /// least as new as its stamp.
    #[inline]
    fn valid(&self, index: u32) -> Option<&[AtomicU64; WORDS]> {
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
fn load(entry: &[AtomicU64; WORDS]) -> [u64; WORDS] {
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
        (CompletionQueue::new(ring, &response, uar.clone()).expect("valid"), uar)
    }

    /// Writes an entry as the adapter does.
    pub(crate) fn complete(cq: &CompletionQueue, index: u32, cqe: Cqe) {
        let cqe = Cqe { stamp: abi::stamp(index).into(), ..cqe };
        let words: [u64; WORDS] = transmute!(cqe);
        for (to, from) in cq.0.lock().ring.entry(index).iter().zip(words) {
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
        cq.0.lock().arm = u32::MAX;
        cq.arm(Notify::Any);
        assert_eq!(slot_words(&uar, SLOT).1, ARM_NEXT, "the counter wraps");
    }
}
