//! Packets that arrived out of order, after a missing one.
//!
//! The protocol does not change: the peer cannot distinguish a held packet from a packet that the
//! network has delayed. The responder executes the held packets in order when the missing packet
//! has arrived, so the peer only has to send the missing packet again. The caller stores the
//! packets, in slots that this module assigns.

use crate::psn::Psn;

/// Maximum number of held packets.
pub(super) const HELD_MAX: u32 = 255;

const WORDS: usize = 4;

/// A slot for a packet, 0 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(u8);

impl Slot {
    /// Returns the slot as an index.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns all slots.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).map(Self)
    }

    const fn of(psn: Psn) -> Self {
        // CAST: consecutive numbers get consecutive slots.
        Self((psn.get() % 256) as u8)
    }

    const fn word_and_bit(self) -> (usize, u64) {
        ((self.0 / 64) as usize, 1 << (self.0 % 64))
    }
}

/// The slots in use. They belong to sequence numbers after the expected number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EarlyPackets([u64; WORDS]);

impl EarlyPackets {
    /// Returns a slot for a packet that is at most [`HELD_MAX`] ahead, or `None` if the packet is
    /// already held.
    pub(super) fn hold(&mut self, psn: Psn) -> Option<Slot> {
        let slot = Slot::of(psn);
        let (word, bit) = slot.word_and_bit();
        let word = self.0.get_mut(word)?;
        let new = *word & bit == 0;
        *word |= bit;
        new.then_some(slot)
    }

    /// Returns the slot of a held packet, and frees it.
    pub(super) fn release(&mut self, psn: Psn) -> Option<Slot> {
        let slot = Slot::of(psn);
        let (word, bit) = slot.word_and_bit();
        let word = self.0.get_mut(word)?;
        let was = *word & bit != 0;
        *word &= !bit;
        was.then_some(slot)
    }

    /// Frees the slots of `count` packets. Their numbers belong to the answer of a READ, so no
    /// packet may have them.
    pub(super) fn forget(&mut self, first: Psn, count: u32) {
        if count > HELD_MAX {
            *self = Self::default();
        } else {
            for ahead in 0..count {
                self.release(first.plus(ahead));
            }
        }
    }

    /// Frees a slot.
    pub(super) fn lose(&mut self, slot: Slot) {
        let (word, bit) = slot.word_and_bit();
        if let Some(word) = self.0.get_mut(word) {
            *word &= !bit;
        }
    }

    /// Returns the number of slots in use.
    pub(super) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub(super) fn has(&self, slot: Slot) -> bool {
        let (word, bit) = slot.word_and_bit();
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }
}
