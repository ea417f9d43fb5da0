// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The offsets of doorbells, and the words that they store. This is the arithmetic of
//! [`crate::uar`], for drivers and for the device.

use core::mem::offset_of;

use crate::uar::{
    ARM_COUNT_SHIFT, ARM_KIND_MASK, ARM_NEXT, ARM_SOLICITED, ARMED_OFFSET, CqSlot, EqSlot,
    HEARTBEAT_OFFSET, QpSlot, SLOT_END, SLOT_FIRST, SLOT_LEN, SLOTS_PER_GROUP, SUMMARY_OFFSET,
    SrqSlot, UAR_LEN,
};
use crate::{SlotIndex, UarIndex};

/// Offset in a slot of [`QpSlot::rq_pi`].
pub const RQ_PI: u32 = offset_of!(QpSlot, rq_pi) as u32;
/// Offset in a slot of [`SrqSlot::freed`].
pub const SRQ_FREED: u32 = offset_of!(SrqSlot, freed) as u32;
/// Offset in a slot of [`EqSlot::ci`].
const EQ_CI: u32 = offset_of!(EqSlot, ci) as u32;
/// Offset in a slot of [`CqSlot::arm`].
pub const CQ_ARM: u32 = offset_of!(CqSlot, arm) as u32;
/// Offset in a slot of [`CqSlot::seen`].
pub const CQ_SEEN: u32 = offset_of!(CqSlot, seen) as u32;
/// Offset in a slot of [`CqSlot::state`].
pub const CQ_STATE: u32 = offset_of!(CqSlot, state) as u32;
/// Offset in a slot of [`CqSlot::taken`].
pub const CQ_TAKEN: u32 = offset_of!(CqSlot, taken) as u32;

/// Returns the offset in a QP's slot of one of its words for marks.
#[must_use]
pub const fn mark_offset(word: u32) -> u32 {
    size_of::<QpSlot>() as u32 + 4 * word
}

/// A 32-bit word of BAR2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarWord32(u64);

/// A 64-bit word of BAR2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarWord64(u64);

/// A part of BAR2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BarRange {
    /// The first byte, counted from the start of BAR2.
    pub start: u64,
    /// The length in bytes.
    pub len: u64,
}

/// The word at which the adapter's heartbeat is shown to the driver.
pub const HEARTBEAT: BarWord32 = BarWord32(HEARTBEAT_OFFSET as u64);

impl BarWord32 {
    /// Returns the offset of the word in BAR2.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0
    }
}

impl BarWord64 {
    /// Returns the offset of the word in BAR2.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0
    }
}

impl BarRange {
    /// Returns the 32-bit word `at` bytes after the start of the range.
    #[inline]
    #[must_use]
    pub const fn word32(self, at: u64) -> BarWord32 {
        BarWord32(self.start.wrapping_add(at))
    }
}

impl UarIndex {
    /// Returns the offset of the UAR in BAR2.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.get() as u64 * UAR_LEN as u64
    }

    /// Returns the range of the UAR in BAR2.
    #[inline]
    #[must_use]
    pub const fn range(self) -> BarRange {
        BarRange { start: self.offset(), len: UAR_LEN as u64 }
    }

    /// Returns the address of [`crate::uar::Control::summary`].
    #[inline]
    #[must_use]
    pub const fn summary(self) -> BarWord64 {
        BarWord64(self.offset() + SUMMARY_OFFSET as u64)
    }

    /// Returns the address of [`crate::uar::Control::armed`].
    #[inline]
    #[must_use]
    pub const fn armed(self) -> BarWord32 {
        BarWord32(self.offset() + ARMED_OFFSET as u64)
    }
}

impl SlotIndex {
    /// Returns whether a UAR has this slot. The lowest numbers are the control area.
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

/// The address of a doorbell: a slot of a UAR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doorbell {
    /// The offset of the slot in BAR2.
    offset: u64,
}

impl Doorbell {
    /// Returns the doorbell of this slot, which must exist.
    #[must_use]
    pub const fn new(uar: UarIndex, slot: SlotIndex) -> Self {
        Self { offset: uar.offset() + slot.offset() as u64 }
    }

    /// Returns the UAR of the doorbell.
    #[must_use]
    pub const fn uar(self) -> UarIndex {
        UarIndex::new((self.offset / UAR_LEN as u64) as u32)
    }

    /// Returns its slot there.
    #[must_use]
    pub const fn slot(self) -> SlotIndex {
        SlotIndex::new((self.offset % UAR_LEN as u64) as u32 / SLOT_LEN)
    }

    /// Returns the offset in BAR2 of its first word.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Returns the range of the whole slot.
    #[inline]
    #[must_use]
    pub const fn words(self) -> BarRange {
        BarRange { start: self.offset, len: SLOT_LEN as u64 }
    }

    /// Returns the address of a QP's word for marks with this number, which must be below
    /// [`crate::direct::MARKS`].
    #[inline]
    #[must_use]
    pub const fn mark(self, word: u32) -> BarWord32 {
        self.word32(mark_offset(word))
    }

    /// Returns the address of [`QpSlot::sq_pi`].
    #[inline]
    #[must_use]
    pub const fn sq_pi(self) -> BarWord32 {
        self.word32(0)
    }

    /// Returns the address of [`QpSlot::rq_pi`].
    #[inline]
    #[must_use]
    pub const fn rq_pi(self) -> BarWord32 {
        self.word32(RQ_PI)
    }

    /// Returns the address of [`SrqSlot::pi`].
    #[inline]
    #[must_use]
    pub const fn srq_pi(self) -> BarWord32 {
        self.word32(0)
    }

    /// Returns the address of [`SrqSlot::freed`].
    #[inline]
    #[must_use]
    pub const fn srq_freed(self) -> BarWord32 {
        self.word32(SRQ_FREED)
    }

    /// Returns the address of [`CqSlot::ci`].
    #[inline]
    #[must_use]
    pub const fn cq_ci(self) -> BarWord32 {
        self.word32(0)
    }

    /// Returns the address of [`CqSlot::ci`] and [`CqSlot::arm`], as one word: see [`ci_and_arm`].
    #[inline]
    #[must_use]
    pub const fn cq_ci_and_arm(self) -> BarWord64 {
        BarWord64(self.offset)
    }

    /// Returns the address of [`CqSlot::seen`].
    #[inline]
    #[must_use]
    pub const fn cq_seen(self) -> BarWord32 {
        self.word32(CQ_SEEN)
    }

    /// Returns the address of [`CqSlot::state`].
    #[inline]
    #[must_use]
    pub const fn cq_state(self) -> BarWord32 {
        self.word32(CQ_STATE)
    }

    /// Returns the address of [`CqSlot::taken`].
    #[inline]
    #[must_use]
    pub const fn cq_taken(self) -> BarWord32 {
        self.word32(CQ_TAKEN)
    }

    /// Returns the address of [`EqSlot::ci`].
    #[inline]
    #[must_use]
    pub const fn eq_ci(self) -> BarWord32 {
        self.word32(EQ_CI)
    }

    const fn word32(self, at: u32) -> BarWord32 {
        BarWord32(self.offset + at as u64)
    }
}

/// Returns the value of [`CqSlot::arm`] for the `count`th arm request, of this kind.
#[inline]
#[must_use]
pub const fn arm_request(count: u32, kind: u32) -> u32 {
    count << ARM_COUNT_SHIFT | kind
}

/// An arm request of a CQ. The default is the state of a new CQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArmRequest {
    /// [`CqSlot::arm`].
    pub word: u32,
    /// [`CqSlot::seen`].
    pub seen: u32,
}

impl ArmRequest {
    /// Returns the request that follows this one: of this kind, by a consumer that has seen the
    /// completions below `end`. `taken` is [`CqSlot::taken`] from before. If the adapter may not
    /// have read this request yet, the new one stands for both.
    #[inline]
    #[must_use]
    pub const fn then(self, kind: u32, end: u32, taken: u32) -> Self {
        let count = (self.word >> ARM_COUNT_SHIFT).wrapping_add(1);
        if taken == self.word {
            return Self { word: arm_request(count, kind), seen: end };
        }
        let kind = stronger_kind(self.word & ARM_KIND_MASK, kind);
        Self { word: arm_request(count, kind), seen: self.seen }
    }
}

/// Returns the kind that a CQ is armed for by a request of the kind `new` while it is armed for
/// `old`: any completion stays any.
#[inline]
#[must_use]
pub const fn stronger_kind(old: u32, new: u32) -> u32 {
    match (old, new) {
        (ARM_NEXT, ARM_SOLICITED) => ARM_NEXT,
        _ => new,
    }
}

/// Returns the word with [`CqSlot::ci`] and [`CqSlot::arm`], which are stored together.
#[inline]
#[must_use]
pub const fn ci_and_arm(ci: u32, arm: u32) -> u64 {
    ci as u64 | (arm as u64) << 32
}

/// Returns [`CqSlot::arm`] from a word that [`ci_and_arm`] has returned.
#[inline]
#[must_use]
pub const fn arm_of(ci_and_arm: u64) -> u32 {
    (ci_and_arm >> 32) as u32
}

const _: () = assert!(SlotIndex::new(SLOT_END - 1).group() == 63);
