// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Doorbells in plain memory, as the adapter would see them.
//!
//! Shows: queues: doorbells of programs

use abi::uar::{SLOT_END, SLOT_FIRST, UAR_LEN};
use rustix::thread::futex;

use super::*;
use crate::mapping::Mapping;
use crate::mapping::tests::replace_by_one_page;

fn page() -> Shared<Mapping> {
    Shared::new(Mapping::anonymous(4096).expect("mmap")).expect("memory")
}

/// Returns a UAR in plain memory, as the adapter would see it.
pub(crate) fn uar(index: u32) -> Shared<Uar> {
    let memory = Mapping::anonymous(UAR_LEN as usize).expect("mmap");
    Shared::new(Uar::new(index.into(), memory, None, page().into()).expect("valid"))
        .expect("memory")
}

/// Returns the memory of a UAR.
pub(crate) fn memory(uar: &Uar) -> &Shared<Mapping> {
    &uar.memory
}

/// Makes the adapter look dead.
pub(crate) fn end_life(uar: &Uar) {
    uar.life.word.store(0, Ordering::Release);
}

/// Takes the summary, as the adapter does.
pub(crate) fn take_summary(uar: &Uar) -> u64 {
    uar.memory.words()[0].swap(0, Ordering::SeqCst)
}

/// Returns the two words of a slot.
pub(crate) fn slot_words(uar: &Uar, slot: u32) -> (u32, u32) {
    let word =
        uar.memory.words()[SlotIndex::new(slot).offset() as usize / 8].load(Ordering::Acquire);
    ((word & 0xffff_ffff) as u32, (word >> 32) as u32)
}

/// Returns a word for marks of a QP's slot.
pub(crate) fn mark(uar: &Uar, slot: u32, word: u32) -> u32 {
    let word = Word32::new(&uar.memory, SlotIndex::new(slot).offset() + mark_offset(word));
    word.expect("inside").load(Ordering::Acquire)
}

/// Stores the second word of a slot, as the adapter does.
pub(crate) fn set_slot_word(uar: &Uar, slot: u32, value: u32) {
    let word = Word32::new(&uar.memory, SlotIndex::new(slot).offset() + 4);
    word.expect("inside").store(value, Ordering::Release);
}

/// Returns the third word of a CQ's slot.
pub(crate) fn slot_seen(uar: &Uar, slot: u32) -> u32 {
    let word = Word32::new(&uar.memory, SlotIndex::new(slot).offset() + 8);
    word.expect("inside").load(Ordering::Acquire)
}

/// Stores the arm request that a CQ's slot has as the one that the adapter has read.
pub(crate) fn take_arm(uar: &Uar, slot: u32) {
    let at = SlotIndex::new(slot).offset() + CQ_TAKEN;
    let word = Word32::new(&uar.memory, at).expect("inside");
    word.store(slot_words(uar, slot).1, Ordering::Release);
}

#[test]
fn a_send_sets_index_and_group_bit() {
    let uar = uar(3);
    let door = QpDoorbell::new(uar.clone(), 35.into()).expect("valid");
    door.post_sends(9);
    door.post_recvs(5, false);
    assert_eq!(slot_words(&uar, 35), (9, 5));
    assert_eq!(take_summary(&uar), 1 << 2);
    door.clear();
    assert_eq!(slot_words(&uar, 35), (0, 0));
    assert_eq!(take_summary(&uar), 0, "clearing rings nothing");
}

#[test]
fn marks_have_words_of_their_own() {
    let uar = uar(3);
    let door = QpDoorbell::new(uar.clone(), 35.into()).expect("valid");
    door.post_sends(9);
    take_summary(&uar);
    for word in 0..MARKS {
        assert_eq!(door.mark(word, 100 + word), Some(()));
        assert_eq!(take_summary(&uar), 1 << 2);
    }
    assert_eq!((door.mark(MARKS, 1), door.mark(u32::MAX, 1)), (None, None));
    let slot = SlotIndex::new(35).offset();
    let load = |at| Word32::new(&uar.memory, slot + at).expect("inside").load(Ordering::Acquire);
    assert_eq!([load(0), load(8), load(60)], [9, 100, 100 + MARKS - 1]);
    assert_eq!(slot_words(&uar, 36), (0, 0));
}

#[test]
fn receives_ring_if_they_open_a_window_and_freed_completions_do_not() {
    let uar = uar(1);
    QpDoorbell::new(uar.clone(), 16.into()).expect("valid").post_recvs(1, false);
    CqDoorbell::new(uar.clone(), 17.into()).expect("valid").free(4);
    assert_eq!(take_summary(&uar), 0);
    QpDoorbell::new(uar.clone(), 16.into()).expect("valid").post_recvs(2, true);
    assert_eq!((slot_words(&uar, 16), take_summary(&uar)), ((0, 2), 1 << 1));
}

#[test]
fn freeing_entries_rings_while_the_adapter_holds_others_back() {
    let uar = uar(1);
    let door = |holding| {
        let door = CqDoorbell::new(uar.clone(), 17.into()).expect("valid");
        door.holding(holding)
    };
    let state = Word32::new(&uar.memory, SlotIndex::new(17).offset() + CQ_STATE);
    let state = state.expect("inside");
    for (word, rings) in [(CqState::Room, 0), (CqState::Few, 0), (CqState::Full, 1 << 1)] {
        state.store(word as u32, Ordering::Release);
        door(false).free(4);
        assert_eq!(take_summary(&uar), 0, "{word:?}");
        door(true).free(5);
        assert_eq!((take_summary(&uar), slot_words(&uar, 17)), (rings, (5, 0)), "{word:?}");
    }
}

#[test]
fn a_sleeping_adapter_is_kicked_and_a_waking_one_is_not() {
    let uar = uar(7);
    let door = QpDoorbell::new(uar.clone(), 1023.into()).expect("valid");
    let kicked = || Word32::new(&uar.kick.page, 0).expect("inside").load(Ordering::SeqCst);
    door.ring_sends();
    assert_eq!(kicked(), 0);
    uar.armed.store(1, Ordering::SeqCst);
    door.ring_sends();
    assert_eq!(kicked(), 7);
    assert_eq!(take_summary(&uar), 1 << 63);
}

#[test]
fn an_arm_request_leaves_the_consumer_index() {
    let uar = uar(1);
    let door = CqDoorbell::new(uar.clone(), 16.into()).expect("valid");
    door.free(12);
    door.arm(ArmRequest { word: 5, seen: 14 });
    assert_eq!(slot_words(&uar, 16), (12, 5));
    assert_eq!(slot_seen(&uar, 16), 14);
    assert_eq!(take_summary(&uar), 1 << 1);
}

#[test]
fn nonsense_of_the_kernel_is_refused() {
    let uar = uar(1);
    assert!(QpDoorbell::new(uar.clone(), (SLOT_FIRST - 1).into()).is_err());
    assert!(CqDoorbell::new(uar, SLOT_END.into()).is_err());
    let short = Mapping::anonymous(4096).expect("mmap");
    assert!(Uar::new(1.into(), short, None, page().into()).is_err());
}

#[test]
fn no_doorbell_brings_a_removed_adapter_back_to_life() {
    let uar = uar(9);
    assert!(!uar.life.has_ended());
    replace_by_one_page(&[uar.memory.words(), uar.kick.page.words()]);
    // The words of this slot have the offset of the life word in their page.
    QpDoorbell::new(uar.clone(), 66.into()).expect("valid").post_sends(1);
    assert_ne!(uar.life.word.load(Ordering::Relaxed), 0);
    assert!(uar.life.has_ended());
    // The context stays dead whatever is stored.
    uar.life.word.store(uar.life.state.token, Ordering::Relaxed);
    assert!(uar.life.has_ended());
}

#[test]
fn tokens_differ() {
    let tokens = [uar(1), uar(2)].map(|uar| uar.life.state.token);
    assert_ne!(tokens[0], tokens[1]);
    assert!(!tokens.contains(&0));
}

#[test]
fn a_uar_is_mapped_once() {
    let table = UarTable::new(page());
    let first = table.get(4.into(), || Mapping::anonymous(UAR_LEN as usize)).expect("mapped");
    let again = table.get(4.into(), || panic!("mapped twice")).expect("known");
    assert!(first.is_same(&again));
    // The word in the first one is for all.
    let second = table.get(6.into(), || Mapping::anonymous(UAR_LEN as usize)).expect("mapped");
    assert!(!second.life.has_ended());
    end_life(&first);
    assert!(second.life.has_ended());
    assert!(table.get(5.into(), || Err(Errno::NOMEM)).is_err());
    assert!(table.get(5.into(), || Mapping::anonymous(UAR_LEN as usize)).is_ok());
}

#[test]
fn a_kick_in_memory_wakes_who_waits_for_it() {
    let kick = page();
    let memory = Mapping::anonymous(UAR_LEN as usize).expect("mmap");
    let uar = Uar::new(1.into(), memory, None, Kick::memory(kick.clone())).expect("valid");
    let uar = Shared::new(uar).expect("memory");
    uar.armed.store(1, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let word = kick.word32(0).expect("inside");
        let waits = scope.spawn(|| {
            while word.load(Ordering::SeqCst) == 0 {
                let _woken = futex::wait(word, futex::Flags::empty(), 0, None);
            }
        });
        QpDoorbell::new(uar, 35.into()).expect("valid").post_sends(9);
        waits.join().expect("woken");
    });
}
