// SPDX-License-Identifier: GPL-2.0 OR MIT
//! BAR2: memory that guest and device share. The first quarter is an array of *UARs* (user access
//! regions), the second quarter contains send queues, and the rest is *device memory*.
//!
//! Device memory belongs to the guest, like its RAM: the guest's kernel allocates it, and the
//! adapter accesses it at the bus addresses of BAR2, in regions and work requests. It is the only
//! part of the BAR that the adapter accesses in this way, and a reset does not change it.
//!
//! A UAR belongs to one context: UAR 0 to the kernel driver, the others to user contexts, which map
//! them. It has a control area of [`CONTROL_LEN`] bytes, followed by [`SLOTS`] doorbell slots of
//! one cache line each. A slot belongs to one QP, CQ, SRQ or EQ. The device assigns it when the
//! object is created. Its offset is `slot * SLOT_LEN`. Slots that are not assigned, or that are in
//! another UAR than the object's, have no effect.
//!
//! # Ringing a doorbell
//! To post to a send queue or arm a CQ:
//! 1. store the entries, then (release) the slot's word: an absolute index, so that the device only
//!    needs to see the newest one;
//! 2. atomically OR the slot's group bit ([`crate::SlotIndex::summary_bit`]) into
//!    [`Control::summary`]. On x86 this locked instruction is also the full barrier that the next
//!    step needs;
//! 3. load [`Control::armed`]; if it is not zero, write the UAR's index to [`crate::regs::KICK`].
//!
//! The device swaps the summary with zero, and then checks the slots of each group whose bit was
//! set. Before it sleeps, it sets `armed`, issues a full barrier and checks the summaries once
//! more. Receive producer indices and CQ consumer indices are only stored, as in step 1: the device
//! reads them when it needs them.

use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Length of a UAR in bytes.
pub const UAR_LEN: u32 = 64 << 10;
/// Number of UARs.
pub const UAR_COUNT: u32 = 1024;
/// Length of a doorbell slot in bytes.
pub const SLOT_LEN: u32 = 64;
/// Length of the control area at the start of each UAR in bytes.
pub const CONTROL_LEN: u32 = 1024;
/// The first slot number; lower ones are the control area.
pub const SLOT_FIRST: u32 = CONTROL_LEN / SLOT_LEN;
/// One past the last slot number.
pub const SLOT_END: u32 = UAR_LEN / SLOT_LEN;
/// Number of usable slots in a UAR.
pub const SLOTS: u32 = SLOT_END - SLOT_FIRST;
/// Number of slots that share one bit of the summary.
pub const SLOTS_PER_GROUP: u32 = 16;
/// The slot of the asynchronous event queue, in UAR 0.
pub const ASYNC_EQ_SLOT: u32 = SLOT_FIRST;

/// Offset in BAR2 of the memory for device-resident send queues.
pub const SQ_MEMORY_OFFSET: u64 = 64 << 20;
/// Length of that memory in bytes.
pub const SQ_MEMORY_LEN: u64 = 64 << 20;
/// Device-resident send queues are allocated, and mapped, in units of this many bytes.
pub const SQ_MEMORY_UNIT: u32 = 4096;

/// Offset in BAR2 of device memory.
pub const DEVICE_MEMORY_OFFSET: u64 = 128 << 20;
/// Maximum length of device memory in bytes. [`crate::regs::DEVICE_MEMORY`] shows the actual
/// length.
pub const DEVICE_MEMORY_MAX: u64 = 128 << 20;
/// The length of device memory is a multiple of this many bytes.
pub const DEVICE_MEMORY_UNIT: u64 = 2 << 20;

/// The control area of a UAR. Words that the guest writes and words that the device writes are in
/// different cache lines.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Control {
    /// The guest sets bit `g` (atomic OR) when it has rung a doorbell of group `g`. The device
    /// swaps the word with zero.
    pub summary: U64,
    /// Zero.
    pub reserved: [u8; 56],
    /// Written by the device: not zero while it sleeps and must be woken by a write to the kick
    /// page.
    pub armed: U32,
    /// Zero.
    pub pad1: U32,
    /// Written by the device in UAR 0 only: a counter, see [`crate::regs::HEARTBEAT`].
    pub heartbeat: U64,
    /// Zero.
    pub pad2: [u8; 48],
    /// Written by the guest: a random number that is not zero, the context's token, from the time
    /// at which the context maps its first UAR until the adapter, dead or reset, no longer accesses
    /// memory of the context. A reset zeroes it together with all doorbells. The driver zeroes it
    /// when it finds the adapter dead. When the device goes away, the kernel puts a page of zeroes
    /// in its place, which all mappings of the context then share. So any other value than the
    /// token means that the adapter is dead.
    pub life: U32,
    /// Zero.
    pub pad3: [u8; 60],
}

/// Offset of [`Control::summary`] in a UAR.
pub const SUMMARY_OFFSET: u32 = 0;
/// Offset of [`Control::armed`] in a UAR.
pub const ARMED_OFFSET: u32 = 64;
/// Offset of [`Control::heartbeat`] in a UAR.
pub const HEARTBEAT_OFFSET: u32 = 72;
/// Offset of [`Control::life`] in a UAR.
pub const LIFE_OFFSET: u32 = 128;

/// The slot of a QP. The words after these are for marks ([`crate::direct::MARKS`]).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QpSlot {
    /// Producer index of the send queue; not used if the queue is in device memory.
    pub sq_pi: U32,
    /// Producer index of the receive queue.
    pub rq_pi: U32,
}

/// The slot of an SRQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SrqSlot {
    /// Producer index. It is stored without ringing the doorbell.
    pub pi: U32,
    /// Written by the device: all entries below this index are free, even if no completion has
    /// shown it. It changes when a QP of the SRQ ends or is reset, because the receives of this QP
    /// do not complete any more.
    pub freed: U32,
}

/// The slot of a CQ. An arm request stores `seen`, then `arm`, alone or with `ci` as one 64-bit
/// word; see [`crate::doorbell::ArmRequest`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CqSlot {
    /// Consumer index.
    pub ci: U32,
    /// Arm request: the kind in bits 0–1 ([`ARM_NEXT`], [`ARM_SOLICITED`]), and a counter that is
    /// incremented with each request in bits 2–31. If there are completions of this kind at or
    /// after `seen`, the event is raised at once; otherwise with the next one. Until the event, a
    /// request for solicited completions does not take back one for any completion (IBTA volume 1,
    /// 11.4.2.2).
    pub arm: U32,
    /// Index of the first completion that the consumer had not seen when it armed the CQ.
    /// Completions before it, polled or not, raise no event (IBTA volume 1, 11.4.2.2: "the next
    /// completion").
    pub seen: U32,
    /// Written by the device: a [`CqState`]. While it is [`CqState::Full`], the consumer rings the
    /// doorbell when it has stored `ci`, with a full barrier in between.
    pub state: U32,
    /// Written by the device: the last `arm` that it has read, with its `seen`. Until this is the
    /// last request, the next one must stand for both, because the device may not read the last.
    pub taken: U32,
}

wire_enum! {
    /// The state of a CQ, in [`CqSlot::state`].
    pub enum CqState: u32 {
        /// The CQ has room, as far as the device knows.
        Room = 0,
        /// The CQ is a holding CQ, and few entries were free when the device last looked.
        Few = 1,
        /// The CQ is a holding CQ, and entries wait for room.
        Full = 2,
        /// The CQ has failed.
        Failed = 3,
    }
}

/// The slot of an EQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EqSlot {
    /// Consumer index. It must be stored, followed by a full barrier, *before* the entries below it
    /// are processed: from then on the device writes a new entry for these objects.
    pub ci: U32,
    /// Zero.
    pub pad: U32,
}

/// Arm for any completion.
pub const ARM_NEXT: u32 = 1;
/// Arm for a solicited completion or one with an error.
pub const ARM_SOLICITED: u32 = 2;
/// Bits of [`CqSlot::arm`] that hold the kind.
pub const ARM_KIND_MASK: u32 = 3;
/// The lowest bit of the counter in [`CqSlot::arm`].
pub const ARM_COUNT_SHIFT: u32 = 2;

const _: () = assert!(size_of::<Control>() == 192);
const _: () = assert!(core::mem::offset_of!(Control, armed) == ARMED_OFFSET as usize);
const _: () = assert!(core::mem::offset_of!(Control, heartbeat) == HEARTBEAT_OFFSET as usize);
const _: () = assert!(core::mem::offset_of!(Control, life) == LIFE_OFFSET as usize);
const _: () = assert!(size_of::<QpSlot>() == 8 && size_of::<CqSlot>() == 20);
const _: () = assert!(size_of::<SrqSlot>() == 8);
const _: () = assert!(UAR_COUNT as u64 * UAR_LEN as u64 == SQ_MEMORY_OFFSET);
const _: () = assert!(SQ_MEMORY_OFFSET + SQ_MEMORY_LEN == DEVICE_MEMORY_OFFSET);
const _: () = assert!(DEVICE_MEMORY_OFFSET + DEVICE_MEMORY_MAX == crate::pci::BAR_UAR_LEN);
