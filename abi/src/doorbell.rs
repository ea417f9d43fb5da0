// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The offsets of doorbells and the words that they store: the arithmetic of [`crate::uar`], for
//! those that ring and for the device, which looks.

use core::mem::offset_of;

use crate::uar::{
    ARM_COUNT_SHIFT, CqSlot, QpSlot, SLOT_END, SLOT_FIRST, SLOT_LEN, SLOTS_PER_GROUP, SrqSlot,
    UAR_LEN,
};
use crate::{SlotIndex, UarIndex};

/// Offset in a slot of [`QpSlot::rq_pi`].
pub const RQ_PI: u32 = offset_of!(QpSlot, rq_pi) as u32;
/// Offset in a slot of [`SrqSlot::freed`].
pub const SRQ_FREED: u32 = offset_of!(SrqSlot, freed) as u32;
/// Offset in a slot of [`CqSlot::seen`].
pub const CQ_SEEN: u32 = offset_of!(CqSlot, seen) as u32;

impl UarIndex {
    /// Returns the offset of the UAR in BAR2.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.get() as u64 * UAR_LEN as u64
    }
}

impl SlotIndex {
    /// Returns whether a UAR has such a slot: its control area has the first numbers.
    #[inline]
    #[must_use]
    pub const fn exists(self) -> bool {
        SLOT_FIRST <= self.get() && self.get() < SLOT_END
    }

    /// Returns the offset of the slot in its UAR.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.get() * SLOT_LEN
    }

    /// Returns the number of the slot's group, which is that of its bit in
    /// [`crate::uar::Control::summary`].
    #[inline]
    #[must_use]
    pub const fn group(self) -> u32 {
        self.get() / SLOTS_PER_GROUP
    }

    /// Returns the bit of the slot's group in [`crate::uar::Control::summary`].
    #[inline]
    #[must_use]
    pub const fn summary_bit(self) -> u64 {
        1 << self.group()
    }
}

/// The place of a doorbell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doorbell {
    /// Its UAR.
    pub uar: UarIndex,
    /// Its slot there.
    pub slot: SlotIndex,
}

impl Doorbell {
    /// Makes the doorbell of this slot.
    #[must_use]
    pub const fn new(uar: UarIndex, slot: SlotIndex) -> Self {
        Self { uar, slot }
    }

    /// Returns the offset in BAR2 of its first word.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.uar.offset() + self.slot.offset() as u64
    }
}

/// Returns an arm request as [`CqSlot::arm`] holds it: of this kind, and the `count`th.
#[inline]
#[must_use]
pub const fn arm_request(count: u32, kind: u32) -> u32 {
    count << ARM_COUNT_SHIFT | kind
}

/// Returns the word that holds [`CqSlot::ci`] and [`CqSlot::arm`], which are stored as one.
#[inline]
#[must_use]
pub const fn ci_and_arm(ci: u32, arm: u32) -> u64 {
    ci as u64 | (arm as u64) << 32
}

const _: () = assert!(SlotIndex::new(SLOT_END - 1).group() == 63);
