// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Doorbells, which tell the adapter of posted requests. [`abi::uar`] defines the protocol.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::direct::MARKS;
use abi::doorbell::{
    ArmRequest, CQ_ARM, CQ_SEEN, CQ_STATE, CQ_TAKEN, RQ_PI, SRQ_FREED, mark_offset,
};
use abi::uar::{ARMED_OFFSET, CqState, LIFE_OFFSET, SUMMARY_OFFSET, UAR_COUNT, UAR_LEN};
use abi::{SlotIndex, UarIndex};

use crate::handover::BellPlace;
use crate::heap::Shared;
use crate::mapping::{Mapping, Word32, Word64};

/// A doorbell page of this context, with the kick page that belongs to it.
#[derive(Debug)]
pub struct Uar {
    index: UarIndex,
    memory: Shared<Mapping>,
    summary: Word64,
    armed: Word32,
    life: Life,
    kick: Shared<Mapping>,
}

/// Shows whether the adapter of a context is dead: by a word in the first UAR of the context
/// ([`abi::uar::Control::life`]), which contains the context's token until the adapter dies.
///
/// That UAR is mapped before the context has any queue, and no queue is created on a dead adapter.
/// So the word was set before the adapter died, for any reason, and is zero afterwards.
///
/// When the device goes away, the kernel replaces all pages of all mappings of a context by one
/// ordinary page (`rdma_umap_fault` in `drivers/infiniband/core/uverbs_main.c`). This page is zero
/// at first. From then on, a store to any mapping, such as a doorbell or an entry of a send queue,
/// may also change the word. So the token is random, and death is remembered.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    word: Word32,
    state: Shared<LifeState>,
}

#[derive(Debug)]
struct LifeState {
    /// The value of the word while the adapter is alive: random, and not zero.
    token: u32,
    /// Set when the word was first seen to have another value.
    ended: AtomicBool,
}

impl Life {
    /// Sets the word, in the memory of a context's first UAR.
    ///
    /// # Errors
    /// `EIO` if the memory has no such word; `ENOMEM`.
    fn begin(memory: &Shared<Mapping>) -> Result<Self, Errno> {
        let word = Word32::new(memory, LIFE_OFFSET).ok_or(Errno::IO)?;
        // CAST: the lower half of a random number.
        let token = (RandomState::new().hash_one(LIFE_OFFSET) as u32).max(1);
        word.store(token, Ordering::Release);
        Ok(Self { word, state: Shared::new(LifeState { token, ended: AtomicBool::new(false) })? })
    }

    /// Returns whether the adapter is dead, and accesses no memory any more.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        let LifeState { token, ended } = &*self.state;
        if self.word.load(Ordering::Acquire) == *token && !ended.load(Ordering::Relaxed) {
            return false;
        }
        self.end();
        true
    }

    #[cold]
    fn end(&self) {
        self.state.ended.store(true, Ordering::Relaxed);
    }
}

impl Uar {
    /// Creates UAR number `index`, which is mapped at `memory`. `life` is `None` for the first UAR
    /// of a context.
    ///
    /// # Errors
    /// `EIO` if the kernel's answer is invalid: no such UAR, or too short a mapping; `ENOMEM`.
    fn new(
        index: UarIndex,
        memory: Mapping,
        life: Option<Life>,
        kick: Shared<Mapping>,
    ) -> Result<Self, Errno> {
        if index.get() >= UAR_COUNT || memory.len() < UAR_LEN as usize {
            return Err(Errno::IO);
        }
        let memory = Shared::new(memory)?;
        let summary = Word64::new(&memory, SUMMARY_OFFSET).ok_or(Errno::IO)?;
        let armed = Word32::new(&memory, ARMED_OFFSET).ok_or(Errno::IO)?;
        let life = life.map_or_else(|| Life::begin(&memory), Ok)?;
        Ok(Self { index, memory, summary, armed, life, kick })
    }

    /// Tells the adapter that a slot of the group with this bit has changed, and wakes the adapter
    /// if it sleeps.
    #[inline]
    fn ring(&self, bit: u64) {
        // SeqCst: the load of `armed` below must not pass this. The adapter sets `armed` and
        // then reads the summary, so one of us sees the other.
        self.summary.fetch_or(bit, Ordering::SeqCst);
        if self.armed.load(Ordering::SeqCst) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.kick.write_register(self.index.get());
    }

    /// Returns the state of the adapter, which all UARs of a context share.
    pub(crate) fn life(&self) -> &Life {
        &self.life
    }
}

/// The doorbell pages that a context has mapped. Each is mapped once.
#[derive(Debug)]
pub struct UarTable {
    kick: Shared<Mapping>,
    known: Mutex<Vec<Shared<Uar>>>,
}

impl UarTable {
    /// Creates an empty table; `kick` is the context's kick page.
    #[must_use]
    pub fn new(kick: Shared<Mapping>) -> Self {
        Self { kick, known: Mutex::new(Vec::new()) }
    }

    /// Returns the UAR with this number; `map` maps it when it is needed for the first time.
    ///
    /// # Errors
    /// The errors of `map`; `EIO` if the kernel's answer is invalid; `ENOMEM`.
    pub fn get(
        &self,
        index: UarIndex,
        map: impl FnOnce() -> Result<Mapping, Errno>,
    ) -> Result<Shared<Uar>, Errno> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uar) = known.iter().find(|uar| uar.index == index) {
            return Ok(uar.clone());
        }
        let life = known.first().map(|first| first.life.clone());
        let uar = Shared::new(Uar::new(index, map()?, life, self.kick.clone())?)?;
        known.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        known.push(uar.clone());
        Ok(uar)
    }
}

/// The bell of a slot.
#[derive(Debug)]
struct Bell {
    uar: Shared<Uar>,
    bit: u64,
}

impl Bell {
    /// Returns the bell of `slot`, and the byte offset of the slot's words.
    fn new(uar: Shared<Uar>, slot: SlotIndex) -> Result<(Self, u32), Errno> {
        if !slot.exists() {
            return Err(Errno::IO);
        }
        Ok((Self { uar, bit: slot.summary_bit() }, slot.offset()))
    }

    /// Returns its place, for another poster.
    fn place(&self) -> BellPlace {
        let Uar { index, memory, kick, .. } = &*self.uar;
        BellPlace { page: memory.area(), kick: kick.area(), number: *index, bit: self.bit }
    }

    #[inline]
    fn ring(&self) {
        self.uar.ring(self.bit);
    }
}

/// The doorbell of a QP ([`abi::uar::QpSlot`]).
#[derive(Debug)]
pub struct QpDoorbell {
    bell: Bell,
    sends: Word32,
    recvs: Word32,
    /// Offset of the slot in the UAR.
    at: u32,
}

impl QpDoorbell {
    /// Returns the doorbell in `slot` of `uar`.
    ///
    /// # Errors
    /// `EIO` if there is no such slot.
    pub fn new(uar: Shared<Uar>, slot: SlotIndex) -> Result<Self, Errno> {
        let (bell, at) = Bell::new(uar, slot)?;
        let word = |offset| Word32::new(&bell.uar.memory, at + offset).ok_or(Errno::IO);
        let (sends, recvs) = (word(0)?, word(RQ_PI)?);
        Ok(Self { bell, sends, recvs, at })
    }

    /// Returns the place of its bell, for another poster.
    pub(crate) fn bell(&self) -> BellPlace {
        self.bell.place()
    }

    /// Returns the offset in the UAR of the send queue's producer index. That of the receive queue
    /// is [`RQ_PI`] bytes behind it, and the words for marks follow.
    pub(crate) fn offset(&self) -> u32 {
        self.at
    }

    /// Stores a mark in one of its words. Returns `None` if there is no such word.
    pub(crate) fn mark(&self, word: u32, mark: u32) -> Option<()> {
        let at = (word < MARKS).then(|| self.at + mark_offset(word))?;
        Word32::new(&self.bell.uar.memory, at)?.store(mark, Ordering::Release);
        self.bell.ring();
        Some(())
    }

    /// Posts all entries of the send queue below `producer`.
    #[inline]
    pub(crate) fn post_sends(&self, producer: u32) {
        self.sends.store(producer, Ordering::Release);
        self.bell.ring();
    }

    /// Rings the bell, so that the adapter examines a send queue in its own memory.
    #[inline]
    pub(crate) fn ring_sends(&self) {
        self.bell.ring();
    }

    /// Posts all entries of the receive queue below `producer`. The adapter reads the index when a
    /// message needs an entry, so no bell is rung unless `rings` is true: the receives of a TCP
    /// connection that carries bytes open its window.
    #[inline]
    pub(crate) fn post_recvs(&self, producer: u32, rings: bool) {
        self.recvs.store(producer, Ordering::Release);
        if rings {
            self.bell.ring();
        }
    }

    /// Sets both producer indices to zero, as a return to Reset requires.
    pub(crate) fn clear(&self) {
        self.sends.store(0, Ordering::Release);
        self.recvs.store(0, Ordering::Release);
    }
}

/// The doorbell of an SRQ ([`abi::uar::SrqSlot`]).
#[derive(Debug)]
pub struct SrqDoorbell {
    producer: Word32,
    freed: Word32,
}

impl SrqDoorbell {
    /// Returns the doorbell in `slot` of `uar`.
    ///
    /// # Errors
    /// `EIO` if there is no such slot.
    pub fn new(uar: Shared<Uar>, slot: SlotIndex) -> Result<Self, Errno> {
        let (bell, at) = Bell::new(uar, slot)?;
        let word = |offset| Word32::new(&bell.uar.memory, at + offset).ok_or(Errno::IO);
        Ok(Self { producer: word(0)?, freed: word(SRQ_FREED)? })
    }

    /// Posts all entries below `producer`. The adapter reads the index when a message needs an
    /// entry, so no bell is rung.
    #[inline]
    pub(crate) fn post(&self, producer: u32) {
        self.producer.store(producer, Ordering::Release);
    }

    /// Returns the index below which all entries are free, as the adapter stored it last.
    pub(crate) fn freed(&self) -> u32 {
        self.freed.load(Ordering::Acquire)
    }
}

/// The doorbell of a CQ ([`abi::uar::CqSlot`]).
#[derive(Debug)]
pub struct CqDoorbell {
    bell: Bell,
    consumer: Word32,
    request: Word32,
    seen: Word32,
    /// The state that the adapter stores.
    state: Word32,
    /// The arm request that the adapter has read last.
    taken: Word32,
    /// Offset of the slot in the UAR.
    at: u32,
    /// True if the adapter may hold entries back.
    holding: bool,
    /// The word that shows whether the adapter is dead.
    pub(crate) life: Life,
}

impl CqDoorbell {
    /// Returns the doorbell in `slot` of `uar`.
    ///
    /// # Errors
    /// `EIO` if there is no such slot.
    pub fn new(uar: Shared<Uar>, slot: SlotIndex) -> Result<Self, Errno> {
        let (bell, at) = Bell::new(uar, slot)?;
        let word = |offset| Word32::new(&bell.uar.memory, at + offset).ok_or(Errno::IO);
        let (consumer, request, seen) = (word(0)?, word(CQ_ARM)?, word(CQ_SEEN)?);
        let (state, taken) = (word(CQ_STATE)?, word(CQ_TAKEN)?);
        let life = bell.uar.life.clone();
        Ok(Self { bell, consumer, request, seen, state, taken, at, holding: false, life })
    }

    /// Returns the place of its bell, for another consumer.
    pub(crate) fn bell(&self) -> BellPlace {
        self.bell.place()
    }

    /// Returns the offset in the UAR of the consumer index, which the arm request follows.
    pub(crate) fn offset(&self) -> u32 {
        self.at
    }

    /// Returns whether the adapter may hold entries back.
    pub(crate) fn is_holding(&self) -> bool {
        self.holding
    }

    /// Returns the doorbell of a CQ whose entries the adapter may hold back.
    #[must_use]
    pub fn holding(self, holding: bool) -> Self {
        Self { holding, ..self }
    }

    /// Frees all entries below `consumer`. If the adapter holds entries back, rings the bell.
    #[inline]
    pub(crate) fn free(&self, consumer: u32) {
        self.consumer.store(consumer, Ordering::Release);
        if self.holding {
            self.let_held_entries_go_on();
        }
    }

    #[cold]
    fn let_held_entries_go_on(&self) {
        // The index is visible before the state is read.
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == CqState::Full as u32 {
            self.bell.ring();
        }
    }

    /// Returns the state that the adapter has stored, or `None` for one that is not known.
    pub(crate) fn state(&self) -> Option<CqState> {
        CqState::from_raw(self.state.load(Ordering::Acquire))
    }

    /// Returns the word of the arm request that the adapter has read last.
    #[inline]
    pub(crate) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }

    /// Returns the index below which all entries are free.
    #[inline]
    pub(crate) fn freed(&self) -> u32 {
        self.consumer.load(Ordering::Acquire)
    }

    /// Returns the index of the last arm request.
    #[inline]
    pub(crate) fn seen(&self) -> u32 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Asks for an event.
    #[inline]
    pub(crate) fn arm(&self, request: ArmRequest) {
        self.seen.store(request.seen, Ordering::Release);
        self.request.store(request.word, Ordering::Release);
        self.bell.ring();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use abi::uar::{SLOT_END, SLOT_FIRST};

    use super::*;
    use crate::mapping::tests::replace_by_one_page;

    fn page() -> Shared<Mapping> {
        Shared::new(Mapping::anonymous(4096).expect("mmap")).expect("memory")
    }

    /// Returns a UAR in plain memory, as the adapter would see it.
    pub(crate) fn uar(index: u32) -> Shared<Uar> {
        let memory = Mapping::anonymous(UAR_LEN as usize).expect("mmap");
        Shared::new(Uar::new(index.into(), memory, None, page()).expect("valid")).expect("memory")
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
        let load =
            |at| Word32::new(&uar.memory, slot + at).expect("inside").load(Ordering::Acquire);
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
        let kicked = || Word32::new(&uar.kick, 0).expect("inside").load(Ordering::SeqCst);
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
        assert!(Uar::new(1.into(), short, None, page()).is_err());
    }

    #[test]
    fn no_doorbell_brings_a_removed_adapter_back_to_life() {
        let uar = uar(9);
        assert!(!uar.life.has_ended());
        replace_by_one_page(&[uar.memory.words(), uar.kick.words()]);
        // The words of this slot have the offset of the life word in their page.
        QpDoorbell::new(uar.clone(), 66.into()).expect("valid").post_sends(1);
        assert_ne!(uar.life.word.load(Ordering::Relaxed), 0);
        assert!(uar.life.has_ended());
        // It stays dead whatever is stored.
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
}
