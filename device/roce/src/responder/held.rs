//! Packets that have come before one that is missing.
//!
//! Holding them changes nothing on the wire: to the peer it looks like a network that has delayed
//! them. They are executed in order when the missing one has come, so the peer has to send only
//! that one again. The bytes are the caller's to keep, in slots that are named here.

use crate::psn::Psn;

/// The most packets that are held.
pub(super) const MOST: u32 = 255;

const WORDS: usize = 4;

/// A place for a packet, 0 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(u8);

impl Slot {
    /// The place as an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    const fn of(psn: Psn) -> Self {
        // CAST: consecutive numbers get consecutive slots.
        Self((psn.get() % 256) as u8)
    }

    const fn word_and_bit(self) -> (usize, u64) {
        ((self.0 / 64) as usize, 1 << (self.0 % 64))
    }
}

/// The slots that are in use. They stand for the numbers that follow the expected one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held([u64; WORDS]);

impl Held {
    /// Returns the slot for a packet that is at most [`MOST`] ahead; `None` if it is held already.
    pub(super) fn hold(&mut self, psn: Psn) -> Option<Slot> {
        let slot = Slot::of(psn);
        let (word, bit) = slot.word_and_bit();
        let word = self.0.get_mut(word)?;
        let new = *word & bit == 0;
        *word |= bit;
        new.then_some(slot)
    }

    /// Returns the slot of a packet if it is held, and holds it no longer.
    pub(super) fn release(&mut self, psn: Psn) -> Option<Slot> {
        let slot = Slot::of(psn);
        let (word, bit) = slot.word_and_bit();
        let word = self.0.get_mut(word)?;
        let was = *word & bit != 0;
        *word &= !bit;
        was.then_some(slot)
    }

    /// Holds none of `count` packets any longer. Their numbers belong to the answer of a READ, so
    /// no packet may have them.
    pub(super) fn forget(&mut self, first: Psn, count: u32) {
        if count > MOST {
            *self = Self::default();
        } else {
            for ahead in 0..count {
                self.release(first.plus(ahead));
            }
        }
    }

    pub(super) fn has(&self, slot: Slot) -> bool {
        let (word, bit) = slot.word_and_bit();
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }
}
