// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Rules for faults that a guest sets for its own function (docs/faults.md), for devices with
//! [`super::DeviceFeatures::FAULTS`]. They end with the next reset.

use zerocopy::little_endian::U32;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::GuestAddr;

/// Bytes of the buffer of EDIT_FAULTS.
pub const FAULT_TEXT_LEN: u32 = 512;
/// Maximum length of the buffer of LIST_FAULTS.
pub const FAULT_LINES_MAX: u32 = 4096;

/// Parameters of EDIT_FAULTS.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EditFaults {
    /// Guest address of a buffer of [`FAULT_TEXT_LEN`] bytes, 8-byte aligned. It begins with a rule
    /// as text, or with `clear`, or with `clear NUMBER`.
    pub addr: GuestAddr,
    /// Length of the text.
    pub len: U32,
    /// Zero.
    pub reserved: U32,
}

/// Result of EDIT_FAULTS.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FaultEdited {
    /// The number of the rule that was added or removed, or zero.
    pub number: U32,
    /// If nothing was changed, the length of the reason that was written to the buffer; otherwise
    /// zero.
    pub reason: U32,
}

/// Parameters of LIST_FAULTS.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ListFaults {
    /// Guest address of the buffer to fill, 8-byte aligned.
    pub addr: GuestAddr,
    /// Length of the buffer, from [`FAULT_TEXT_LEN`] to [`FAULT_LINES_MAX`].
    pub len: U32,
    /// The lowest number of a rule to list.
    pub from: U32,
}

/// Result of LIST_FAULTS.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FaultLines {
    /// Number of bytes written: whole lines.
    pub len: U32,
    /// The number to continue from, or [`super::NONE`].
    pub next: U32,
}
