// SPDX-License-Identifier: GPL-2.0
//! The messages of the two sides.

use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The client asks for blocks, or gives some.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Ask {
    /// First sector on the disk.
    pub(crate) sector: U64,
    /// The client's memory.
    pub(crate) address: U64,
    /// The key of that memory.
    pub(crate) key: U32,
    /// Bytes, whole sectors.
    pub(crate) length: U32,
    /// One if the client gives blocks, zero if it takes them.
    pub(crate) write: U32,
    /// One if the server must not use its disk.
    pub(crate) silent: U32,
    /// Time limit of the transfers in milliseconds.
    pub(crate) limit_ms: U32,
    /// Zero.
    pub(crate) reserved: U32,
}

/// The server answers; the answer is posted after the transfers, and leaves when they are done.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Answer {
    /// From the request.
    pub(crate) sector: U64,
}
