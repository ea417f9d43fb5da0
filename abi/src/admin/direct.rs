// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Address ranges of direct transfers ([`crate::direct`]).

use zerocopy::little_endian::U32;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{GuestAddr, Qpn, RangeNumber};

/// Parameters of SET_WINDOW, which is refused while a range has a transfer. After a reset the
/// ranges have their maximum length, begin at the start of BAR4, and there are no blocks.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SetWindow {
    /// The bus address of the adapter's packet memory: `blocks` times
    /// [`crate::direct::RANGE_LEN`] bytes, of device memory or RAM. From now on only the adapter
    /// uses it.
    pub memory: GuestAddr,
    /// Offset of the first range in BAR4. It need not be aligned.
    pub base: U32,
    /// Length of all ranges: a multiple of [`crate::direct::RANGE_LEN`], at most
    /// [`crate::direct::WINDOW_LEN`]. They end in BAR4.
    pub length: U32,
    /// Number of blocks, at most [`crate::direct::RANGES`].
    pub blocks: U32,
    /// Zero.
    pub reserved: [u8; 4],
}

/// Result of QUERY_WINDOW.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct WindowRegisters {
    /// As in [`SetWindow`].
    pub base: U32,
    /// As in [`SetWindow`].
    pub length: U32,
    /// As in [`SetWindow`].
    pub blocks: U32,
    /// Number of blocks that ranges have.
    pub allocated: U32,
    /// Number of ranges that wait for a block.
    pub waiting: U32,
    /// Number of transfers for which no block was free: they waited, or ARM_RANGE has failed.
    pub short: U32,
}

/// Parameters of ARM_RANGE.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ArmRange {
    /// The bus address of the first byte in packet memory; any address of device memory or RAM.
    /// Zero for a block of the adapter.
    pub memory: GuestAddr,
    /// The range. It must not have a transfer.
    pub range: RangeNumber,
    /// The QP whose TRANSFER refers to the range, of type RC or UC.
    pub qpn: Qpn,
    /// Number of bytes of the transfer: from 1 to [`crate::direct::RANGE_LEN`] if it is counted, to
    /// [`crate::direct::MAPPED_LEN_MAX`] if it is mapped, or a READ through a block.
    pub length: U32,
    /// Milliseconds from now until the transfer fails if it is not complete, 1 to
    /// [`crate::direct::TIME_LIMIT_MAX_MS`].
    pub time_limit_ms: U32,
    /// A [`crate::direct::Direction`].
    pub direction: u8,
    /// A [`crate::direct::Notice`]. Transfers with a block are counted.
    pub notice: u8,
    /// One if the adapter answers a read of the window at once although its data has not arrived:
    /// with ones, and the transfer fails. Zero if it may wait for the data, and the VMM with it.
    /// Not more than one. A driver sets it for ranges that programs map, because such a wait stops
    /// the whole guest.
    pub at_once: u8,
    /// A [`crate::direct::PacketMemory`].
    pub packet_memory: u8,
    /// Zero.
    pub reserved: [u8; 4],
}

/// Result of QUERY_RANGE.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RangeRegisters {
    /// Packet memory of the latest transfer; zero for a block of the adapter.
    pub memory: GuestAddr,
    /// Number of bytes of the latest transfer.
    pub length: U32,
    /// Number of these bytes that the controller has moved.
    pub count: U32,
    /// A [`crate::direct::Direction`].
    pub direction: u8,
    /// One while the controller may move bytes; otherwise zero.
    pub pci_valid: u8,
    /// One while the range waits for the adapter: data from the peer has not arrived, or all bytes
    /// have been moved and TRANSFER has not ended.
    pub adapter_valid: u8,
    /// The reason for which the transfer has failed, as a number of `vendor_err` in
    /// docs/adapter.md; otherwise zero.
    pub failure: u8,
    /// Number of bytes of the latest packet that a READ has brought into a block; otherwise zero.
    pub response_length: U32,
}
