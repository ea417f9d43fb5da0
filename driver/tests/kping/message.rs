// SPDX-License-Identifier: GPL-2.0
//! The messages of the two sides.

use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The client asks: read the region, whose pattern is of `sequence`, and write the inverse of it
/// back.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Ask {
    /// Number of the request.
    pub(crate) sequence: U64,
    /// The region's first byte.
    pub(crate) address: U64,
    /// The region's length.
    pub(crate) length: U32,
    /// The region's key.
    pub(crate) key: U32,
    /// One if the answer must invalidate the key.
    pub(crate) invalidate: U32,
    /// Zero.
    pub(crate) reserved: U32,
}

/// The server answers when it is done.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Answer {
    /// From the request.
    pub(crate) sequence: U64,
    /// Words that were not of the pattern.
    pub(crate) wrong: U64,
}
