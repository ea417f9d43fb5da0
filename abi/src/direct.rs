// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Direct transfers: another PCI device, called the controller here, stores to or reads from a
//! trapped window, which is BAR4, and the adapter moves the data to or from a peer when it is
//! complete.
//!
//! The window consists of up to [`RANGES`] address ranges of [`RANGE_LEN`] bytes. SET_WINDOW says
//! where in BAR4 they begin, and how many there are. ARM_RANGE assigns a direction, a length,
//! packet memory and a QP to a range. A work request TRANSFER of this QP ends when the controller
//! has moved all bytes of the range:
//!
//! | direction | work requests | course |
//! | --- | --- | --- |
//! | WRITE | TRANSFER, WRITE out of the packet memory | The controller stores. When all bytes are there TRANSFER ends and the WRITE leaves |
//! | READ | READ into the packet memory, TRANSFER | When the data has arrived TRANSFER begins, and the controller's reads are answered until it has read all bytes |
//!
//! That is so if the packet memory is any memory, which ARM_RANGE names by its address. It can also
//! be a block of those that SET_WINDOW gives to the adapter ([`PacketMemory`]). Work requests then
//! name the range itself, by the key [`crate::Key::WINDOW`], and TRANSFER follows them:
//!
//! | direction | work requests | course |
//! | --- | --- | --- |
//! | WRITE | WRITE out of ranges, TRANSFER of each | Each packet leaves when the controller has stored its bytes. TRANSFER gives the block back |
//! | READ | READ into ranges, TRANSFER of each | The controller's reads of a packet's bytes are answered when it has arrived. The next packet for the same bytes is taken when they have been read. TRANSFER ends when all have been read |
//!
//! A controller, or its driver, that can store a word needs neither range nor command. The work
//! request AWAIT waits until a word of the QP's own doorbell has the value that it names
//! ([`Await`]).

use crate::RangeNumber;
use crate::uar::{QpSlot, SLOT_LEN};

/// Maximum number of address ranges, and of the adapter's blocks.
pub const RANGES: u32 = 32;
/// Length of an address range, and of a block, in bytes.
pub const RANGE_LEN: u32 = 4096;
/// Maximum length of all ranges in bytes.
pub const WINDOW_LEN: u32 = RANGES * RANGE_LEN;
/// Maximum length in bytes of a mapped transfer, and of a READ through a block of the adapter. That
/// of others is [`RANGE_LEN`].
pub const MAPPED_LEN_MAX: u32 = 16 << 20;
/// Maximum time limit of a range in milliseconds.
pub const TIME_LIMIT_MAX_MS: u32 = 60_000;

wire_enum! {
    /// The RDMA operation of a transfer.
    pub enum Direction: u8 {
        /// The controller reads data that an RDMA READ has fetched.
        Read = 0,
        /// The controller stores data, which an RDMA WRITE then sends.
        Write = 1,
    }
}

wire_enum! {
    /// The way in which the adapter learns which bytes the controller has moved.
    pub enum Notice: u8 {
        /// The adapter counts the bytes that it moves through the window, which is trapped.
        Counted = 0,
        /// The controller has the bus address of the packet memory and does not use the window. The
        /// driver writes [`crate::regs::RANGE_DONE`] when all bytes have been moved.
        Mapped = 1,
    }
}

wire_enum! {
    /// The packet memory of a transfer.
    pub enum PacketMemory: u8 {
        /// Memory at the bus address that ARM_RANGE names.
        Address = 0,
        /// A block of the adapter. If none is free, the range waits for one. Ranges get blocks in
        /// the order in which they were armed.
        Block = 1,
        /// A block of the adapter. If none is free, ARM_RANGE fails.
        FreeBlock = 2,
    }
}

/// Number of words for marks in the doorbell slot of a QP ([`crate::doorbell::Doorbell::mark`]).
pub const MARKS: u32 = (SLOT_LEN - size_of::<QpSlot>() as u32) / 4;
/// This bit of a word says that the transfer of the mark in the other bits has failed.
pub const MARK_FAILED: u32 = 1 << 31;

/// The condition that an AWAIT waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Await {
    /// The number of the word, below [`MARKS`].
    pub word: u32,
    /// The value that it must have, from 1 to [`MARK_FAILED`] - 1. A reset of the QP zeroes the
    /// words.
    pub mark: u32,
    /// Milliseconds from the time at which it is executed until it fails, 1 to
    /// [`TIME_LIMIT_MAX_MS`].
    pub time_limit_ms: u32,
}

impl Await {
    /// Returns it as the fields `raddr` and `rkey` of a [`crate::sq::SqWqe`] contain it.
    #[must_use]
    pub const fn fields(self) -> (u64, u32) {
        // CAST: to the wider type.
        (self.time_limit_ms as u64 | (self.word as u64) << 32, self.mark)
    }

    /// Returns what these fields contain, or `None` if a value is out of bounds.
    #[must_use]
    pub const fn from_fields(raddr: u64, rkey: u32) -> Option<Self> {
        // CAST: both halves.
        let this = Self { word: (raddr >> 32) as u32, mark: rkey, time_limit_ms: raddr as u32 };
        let Self { word, mark, time_limit_ms: limit } = this;
        let known = word < MARKS && mark != 0 && mark < MARK_FAILED;
        if known && limit != 0 && limit <= TIME_LIMIT_MAX_MS { Some(this) } else { None }
    }
}

/// A position in the ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address range.
    pub range: RangeNumber,
    /// Offset in the range in bytes.
    pub within: u32,
}

impl Place {
    /// Returns the position at this offset from the first range, or `None` after the last one.
    #[must_use]
    pub const fn at(offset: u64) -> Option<Self> {
        if offset >= WINDOW_LEN as u64 {
            return None;
        }
        // CAST: it is below the length of the window.
        let offset = offset as u32;
        Some(Self { range: RangeNumber::new(offset / RANGE_LEN), within: offset % RANGE_LEN })
    }

    /// Returns the number of bytes from here to the end of the range.
    #[must_use]
    pub const fn left(self) -> u64 {
        // CAST: to the wider type.
        RANGE_LEN.saturating_sub(self.within) as u64
    }
}

const _: () = assert!(WINDOW_LEN as u64 <= crate::pci::BAR_WINDOW_LEN);
