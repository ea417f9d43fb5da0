// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Shows: completions: completion queues of programs: series, threads, other posters, adapters that
//! died

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
    for (to, from) in cq.arming.lock().ring.entry(index).iter().zip(words) {
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
    cq.arming.lock().request.word = u32::MAX;
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

/// Returns the ids of the rest of a series.
fn rest(series: &mut Series<'_>) -> Vec<u64> {
    std::iter::from_fn(|| series.take()).map(|completion| completion.wr_id).collect()
}

/// Returns a queue of 16 entries with two of each of the queue pairs 7 and 8, and their credits.
fn queue_of_two() -> (CompletionQueue, Shared<Uar>, [Shared<Credits>; 2]) {
    let (cq, uar) = queue(16);
    let both = [credits(), credits()];
    for (qpn, credits) in (7..).zip(&both) {
        cq.attach(qpn.into(), credits, Halves::SENDS).expect("memory");
    }
    for index in 0..4 {
        complete(&cq, index, send_cqe(7 + index % 2, index.into(), index / 2));
    }
    (cq, uar, both)
}

/// Shows: completions: a program arms a CQ while it takes completions one by one
#[test]
fn a_queue_is_armed_in_a_series() {
    let (cq, uar, _both) = queue_of_two();
    let (mut series, _first) = cq.series().expect("completions");
    assert_eq!(series.take().map(|next| next.wr_id), Some(1));
    cq.arm(Notify::Any);
    // No entry has been freed yet, and the event is for those that have not come.
    assert_eq!(slot_words(&uar, SLOT), (0, 1 << ARM_COUNT_SHIFT | ARM_NEXT));
    assert_eq!(slot_seen(&uar, SLOT), 4);
    assert!(!cq.is_idle() && cq.state() == Some(CqState::Room));
    assert_eq!(rest(&mut series), [2, 3]);
    drop(series);
    assert_eq!(slot_words(&uar, SLOT), (4, 1 << ARM_COUNT_SHIFT | ARM_NEXT));
}

#[test]
fn queue_pairs_come_and_go_in_a_series() {
    for elsewhere in [false, true] {
        let (cq, _uar, [old, other]) = queue_of_two();
        let (mut series, first) = cq.series().expect("completions");
        let new = credits();
        let change = || {
            cq.detach(7.into(), &old);
            cq.attach(9.into(), &new, Halves::SENDS).expect("memory");
            // The number of the first is given to another one.
            cq.attach(7.into(), &new, Halves::SENDS).expect("memory");
        };
        match elsewhere {
            true => std::thread::scope(|scope| scope.spawn(change).join()).expect("no panic"),
            false => change(),
        }
        assert_eq!((first.wr_id, first.qpn), (0, 7), "what was taken stays");
        complete(&cq, 4, send_cqe(9, 40, 0));
        complete(&cq, 5, send_cqe(7, 50, 5));
        assert_eq!(rest(&mut series), [1, 3, 40, 50]);
        drop(series);
        let sent = [&old, &other, &new].map(|credits| credits.send.load(Ordering::Relaxed));
        assert_eq!(sent, [1, 2, 6]);
    }
}

#[test]
fn a_queue_pair_is_reset_in_a_series() {
    let (cq, _uar, [first, _]) = queue_of_two();
    let (mut series, _first) = cq.series().expect("completions");
    cq.purge(7.into());
    first.reset();
    complete(&cq, 4, send_cqe(7, 40, 0));
    assert_eq!(rest(&mut series), [1, 3, 40]);
    assert_eq!(first.send.load(Ordering::Relaxed), 1);
}

#[test]
fn other_threads_poll_and_reset_behind_a_series() {
    let (cq, _uar, _both) = queue_of_two();
    let ended = AtomicBool::new(false);
    let others: [&(dyn Fn() + Sync); 3] =
        [&|| drop(poll(&cq, 8)), &|| drop(cq.series()), &|| cq.purge(8.into())];
    std::thread::scope(|scope| {
        let (mut series, _first) = cq.series().expect("completions");
        let ended = &ended;
        let others = others.map(|other| {
            scope.spawn(move || {
                other();
                assert!(ended.load(Ordering::Acquire));
            })
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(rest(&mut series), [1, 2, 3]);
        ended.store(true, Ordering::Release);
        drop(series);
        for other in others {
            other.join().expect("behind the series");
        }
    });
}

#[test]
fn a_queue_keeps_its_size_in_a_series() {
    let (cq, _uar, _both) = queue_of_two();
    let limits = Limits { max_wr: 0, max_sge: 0, max_inline: 0, max_cqe: 1 << 20 };
    let ring = CqRing::allocate(8, &limits, &Source::pages(Resource::Cq)).expect("memory");
    let series = cq.series();
    let resized = cq.resize(ring, |_| panic!("the adapter is not asked"));
    assert_eq!(resized, Err(Errno::BUSY));
    drop(series);
}

/// Threads arm, and create and destroy queue pairs, while another polls in series.
#[test]
fn nobody_waits_for_a_series() {
    const ENTRIES: u32 = 20_000;
    let (cq, uar) = queue(64);
    let stays = credits();
    cq.attach(7.into(), &stays, Halves::SENDS).expect("memory");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (cq, uar, stays, done) = (&cq, &uar, &stays, &done);
        scope.spawn(move || {
            for index in 0..ENTRIES {
                while index.wrapping_sub(slot_words(uar, SLOT).0) >= 64 {
                    std::hint::spin_loop();
                }
                complete(cq, index, send_cqe(7, index.into(), index));
            }
        });
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                cq.arm(Notify::Any);
                take_arm(uar, SLOT);
                let comes = credits();
                cq.attach(8.into(), &comes, Halves::SENDS).expect("memory");
                cq.detach(8.into(), &comes);
            }
        });
        let mut next = 0;
        while next < u64::from(ENTRIES) {
            let Some((mut series, first)) = cq.series() else { continue };
            let ids = std::iter::once(first.wr_id).chain(rest(&mut series));
            ids.for_each(|id| {
                assert_eq!(id, next);
                next += 1;
            });
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(stays.send.load(Ordering::Relaxed), ENTRIES);
    });
}
