// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The receive queue: entries with a header of 16 bytes and `count` [`crate::sq::Sge`]s, in strides
//! of 32 to 512 bytes.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::sq::{MAX_SGE, Sge};

/// Length of [`RqWqe`] in bytes.
pub const HEADER_LEN: u32 = 16;
/// Smallest stride in bytes.
pub const STRIDE_MIN: u32 = 32;
/// Largest stride in bytes.
pub const STRIDE_MAX: u32 = 512;

/// Returns the stride in bytes for `max_sge` segments, or `None` if no stride is large enough.
#[must_use]
pub const fn stride(max_sge: u32) -> Option<u32> {
    if max_sge > MAX_SGE {
        return None;
    }
    let need = (HEADER_LEN + max_sge * size_of::<Sge>() as u32).next_power_of_two();
    Some(if need < STRIDE_MIN { STRIDE_MIN } else { need })
}

/// The header of a receive queue entry.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RqWqe {
    /// The user's work request ID, which is returned in the CQE.
    pub wr_id: U64,
    /// Number of [`Sge`]s that follow.
    pub count: U16,
    /// Zero.
    pub reserved: U16,
    /// Zero.
    pub reserved2: U32,
}

impl RqWqe {
    /// Returns a header for `count` segments.
    #[must_use]
    pub const fn new(wr_id: u64, count: u16) -> Self {
        Self {
            wr_id: U64::new(wr_id),
            count: U16::new(count),
            reserved: U16::ZERO,
            reserved2: U32::ZERO,
        }
    }
}

const _: () = assert!(size_of::<RqWqe>() == HEADER_LEN as usize);
const _: () = assert!(matches!(stride(1), Some(32)) && matches!(stride(MAX_SGE), Some(512)));
