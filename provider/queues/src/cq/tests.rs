// SPDX-License-Identifier: GPL-2.0 OR MIT
use std::sync::atomic::Ordering;

use abi::cq::{Cqe, Opcode, Status};
use abi::uar::ARM_COUNT_SHIFT;
use zerocopy::transmute;

use super::*;
use crate::allocator::Resource;
use crate::completion::WORDS;
use crate::doorbell::tests::{end_life, slot_seen, slot_words, take_arm, take_summary, uar};
use crate::layout::Limits;
use crate::source::Source;

const SLOT: u32 = 20;

/// Returns a queue of `entries`, with the UAR as the adapter sees it.
pub(crate) fn queue(entries: u32) -> (CompletionQueue, Shared<Uar>) {
    let limits = Limits { max_wr: 0, max_sge: 0, max_inline: 0, max_cqe: 1 << 20 };
    let ring = CqRing::allocate(entries, &limits, &Source::pages(Resource::Cq)).expect("memory");
    let uar = uar(2);
    let response = CqResp { slot: SLOT.into(), ..CqResp::default() };
    (CompletionQueue::new(ring, &response, uar.clone(), Sharing::ANY).expect("valid"), uar)
}

fn credits() -> Shared<Credits> {
    Shared::new(Credits::default()).expect("memory")
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
    let credits = credits();
    cq.attach(7.into(), &credits, Halves::SENDS).expect("memory");
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
fn a_queue_is_idle_until_an_entry_is_written_or_the_adapter_dies() {
    let (cq, uar) = queue(4);
    assert!(cq.is_idle());
    complete(&cq, 0, send_cqe(7, 1, 0));
    assert!(!cq.is_idle());
    poll(&cq, 1);
    assert!(cq.is_idle());
    end_life(&uar);
    assert!(!cq.is_idle(), "requests without an entry are flushed");
}

#[test]
fn the_limit_is_kept() {
    let (cq, uar) = queue(4);
    cq.attach(7.into(), &credits(), Halves::SENDS).expect("memory");
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
    let credits = credits();
    cq.attach(7.into(), &credits, Halves::SENDS).expect("memory");
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
    assert_eq!(slot_words(&uar, SLOT), (4, 0), "an entry without an owner is freed");
}

#[test]
fn a_series_ends_where_the_queue_was_armed() {
    let (cq, _uar) = queue(8);
    cq.attach(7.into(), &credits(), Halves::SENDS).expect("memory");
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
    let credits = credits();
    cq.attach(7.into(), &credits, Halves::SENDS).expect("memory");
    let recv = Cqe { opcode: Opcode::Recv as u8, ..send_cqe(7, 1, u32::MAX) };
    complete(&cq, 0, recv);
    assert_eq!(poll(&cq, 1), [1]);
    assert_eq!(credits.recv.load(Ordering::Relaxed), 0, "indices wrap");
    assert_eq!(credits.send.load(Ordering::Relaxed), 0);
}

#[test]
fn entries_of_destroyed_queue_pairs_are_skipped() {
    let (cq, uar) = queue(8);
    let (gone, stays) = (credits(), credits());
    cq.attach(7.into(), &gone, Halves::SENDS).expect("memory");
    cq.attach(8.into(), &stays, Halves::SENDS).expect("memory");
    for index in 0..6 {
        complete(&cq, index, send_cqe(7 + index % 2, index.into(), index));
    }
    cq.detach(7.into(), &gone);
    assert_eq!(poll(&cq, 2), [1, 3]);
    assert_eq!(poll(&cq, 2), [5]);
    assert_eq!(slot_words(&uar, SLOT).0, 6);
    assert_eq!(gone.send.load(Ordering::Relaxed), 0);
}

#[test]
fn a_reused_number_does_not_inherit_completions() {
    let (cq, _uar) = queue(8);
    let (old, new) = (credits(), credits());
    cq.attach(7.into(), &old, Halves::SENDS).expect("memory");
    complete(&cq, 0, send_cqe(7, 100, 0));
    cq.attach(7.into(), &new, Halves::SENDS).expect("memory");
    // The old one's destruction ends late; it must not take the new one's place away.
    cq.detach(7.into(), &old);
    complete(&cq, 1, send_cqe(7, 200, 0));
    assert_eq!(poll(&cq, 8), [200]);
    assert_eq!(old.send.load(Ordering::Relaxed), 0);
    assert_eq!(new.send.load(Ordering::Relaxed), 1);
}

#[test]
fn a_number_that_comes_back_is_not_mistaken_for_the_last_one() {
    let (cq, _uar) = queue(8);
    let (old, new) = (credits(), credits());
    cq.attach(7.into(), &old, Halves::SENDS).expect("memory");
    complete(&cq, 0, send_cqe(7, 1, 0));
    assert_eq!(poll(&cq, 1), [1]);
    cq.detach(7.into(), &old);
    complete(&cq, 1, send_cqe(7, 2, 1));
    assert!(poll(&cq, 1).is_empty());
    cq.attach(7.into(), &new, Halves::SENDS).expect("memory");
    complete(&cq, 2, send_cqe(7, 3, 0));
    assert_eq!(poll(&cq, 1), [3]);
    assert_eq!((old.send.load(Ordering::Relaxed), new.send.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn purging_a_full_ring_ends() {
    let (cq, uar) = queue(4);
    cq.attach(7.into(), &credits(), Halves::SENDS).expect("memory");
    for index in 0..4 {
        complete(&cq, index, send_cqe(7, index.into(), index));
    }
    cq.purge(7.into());
    assert!(poll(&cq, 8).is_empty());
    assert_eq!(slot_words(&uar, SLOT).0, 4, "the room is given back all the same");
}

#[test]
fn each_arm_request_differs_from_the_last() {
    let (cq, uar) = queue(4);
    cq.attach(7.into(), &credits(), Halves::SENDS).expect("memory");
    complete(&cq, 0, send_cqe(7, 0, 0));
    poll(&cq, 1);
    cq.arm(Notify::Any);
    assert_eq!(slot_words(&uar, SLOT), (1, 1 << ARM_COUNT_SHIFT | ARM_NEXT));
    assert_eq!(slot_seen(&uar, SLOT), 1);
    assert_eq!(take_summary(&uar), 1 << (SLOT / 16));
    take_arm(&uar, SLOT);
    cq.arm(Notify::Solicited);
    assert_eq!(slot_words(&uar, SLOT), (1, 2 << ARM_COUNT_SHIFT | ARM_SOLICITED));
    // Freeing entries repeats the request, which is none then.
    complete(&cq, 1, send_cqe(7, 1, 1));
    poll(&cq, 1);
    assert_eq!(slot_words(&uar, SLOT), (2, 2 << ARM_COUNT_SHIFT | ARM_SOLICITED));
    // Completions that can be polled already are no reason for an event.
    complete(&cq, 2, send_cqe(7, 2, 2));
    complete(&cq, 3, send_cqe(7, 3, 3));
    take_arm(&uar, SLOT);
    cq.arm(Notify::Any);
    assert_eq!((slot_words(&uar, SLOT).0, slot_seen(&uar, SLOT)), (2, 4));
    cq.consumer.lock().armed.word = u32::MAX;
    cq.arm(Notify::Any);
    assert_eq!(slot_words(&uar, SLOT).1, ARM_NEXT, "the counter wraps");
}

#[test]
fn a_request_that_the_adapter_has_not_read_stays() {
    let (cq, uar) = queue(8);
    cq.attach(7.into(), &credits(), Halves::SENDS).expect("memory");
    let armed = || (slot_words(&uar, SLOT).1, slot_seen(&uar, SLOT));
    let word = |count: u32, kind| count << ARM_COUNT_SHIFT | kind;
    cq.arm(Notify::Any);
    // Another thread takes the completion whose event the first one waits for.
    complete(&cq, 0, send_cqe(7, 0, 0));
    assert_eq!(poll(&cq, 1), [0]);
    cq.arm(Notify::Solicited);
    assert_eq!(armed(), (word(2, ARM_NEXT), 0));
    take_arm(&uar, SLOT);
    cq.arm(Notify::Solicited);
    assert_eq!(armed(), (word(3, ARM_SOLICITED), 1));
    complete(&cq, 1, send_cqe(7, 1, 1));
    cq.arm(Notify::Any);
    assert_eq!(armed(), (word(4, ARM_NEXT), 1));
}

#[test]
fn a_queue_of_another_poster_is_left_alone() {
    let (cq, uar) = queue(4);
    let credits = credits();
    cq.attach(7.into(), &credits, Halves::SENDS).expect("memory");
    complete(&cq, 0, send_cqe(7, 1, 0));
    assert_eq!(poll(&cq, 1), [1]);
    cq.arm(Notify::Any);
    let taken = cq.hand_over();
    assert!(cq.is_handed_over());
    let CqHandover { bell, ring, arm, holding } = taken;
    assert_eq!((ring.entries, ring.stride, ring.next, ring.freed), (4, 64, 1, 1));
    assert_eq!((ring.word, bell.bit), (SLOT * 64, 1 << (SLOT / 16)));
    assert_eq!((bell.number.get(), arm, holding), (2, 1 << ARM_COUNT_SHIFT | ARM_NEXT, false));
    assert_eq!((ring.memory.length, ring.memory.offset), (256, 0));
    assert_eq!(ring.memory.address, cq.consumer.lock().ring.entry(0).as_ptr().addr() as u64);
    take_summary(&uar);

    // Neither an entry, nor the doorbell, nor credits change.
    complete(&cq, 1, send_cqe(7, 2, 1));
    assert!(poll(&cq, 4).is_empty() && cq.series().is_none());
    cq.arm(Notify::Any);
    cq.purge(7.into());
    cq.attach(7.into(), &credits, Halves::RECVS).expect("memory");
    assert_eq!((slot_words(&uar, SLOT), take_summary(&uar)), ((1, arm), 0));
    assert_eq!(credits.send.load(Ordering::Relaxed), 1);
    let entry = cq.consumer.lock().ring.entry(1)[1].load(Ordering::Relaxed);
    assert_eq!(entry & 0xffff_ffff, 7);
    let limits = Limits { max_wr: 0, max_sge: 0, max_inline: 0, max_cqe: 1 << 20 };
    let ring = CqRing::allocate(8, &limits, &Source::pages(Resource::Cq)).expect("memory");
    let resized = cq.resize(ring, |_| panic!("the adapter is not asked"));
    assert_eq!(resized, Err(Errno::PERM));
    end_life(&uar);
    assert!(poll(&cq, 4).is_empty(), "not even what a dead adapter has not completed");
    assert_eq!(cq.hand_over(), taken);
}
