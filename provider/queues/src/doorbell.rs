// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Doorbells, which tell the adapter of posted requests. [`abi::uar`] defines the protocol.

#[cfg(test)]
pub(crate) mod tests;
mod uar;

use std::sync::atomic::{Ordering, fence};

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::SlotIndex;
use abi::direct::MARKS;
use abi::doorbell::{
    ArmRequest, CQ_ARM, CQ_SEEN, CQ_STATE, CQ_TAKEN, RQ_PI, SRQ_FREED, mark_offset,
};
use abi::uar::CqState;

use crate::handover::BellPlace;
use crate::heap::Shared;
use crate::mapping::Word32;

pub(crate) use self::uar::Life;
pub use self::uar::{Kick, Uar, UarTable};

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
    /// is [`RQ_PI`] bytes after it, and the words for marks follow.
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

    /// Returns whether the adapter is a process of this system, which needs a processor, too.
    pub(crate) fn is_of_process(&self) -> bool {
        self.bell.uar.is_process()
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
