// SPDX-License-Identifier: GPL-2.0
//! The messages of the two sides.

use kernel::prelude::*;
use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::kclient::memory::Memory;

/// The client asks: read the region, whose pattern is of `sequence`, and write the inverse of it
/// back.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Ask {
    /// Number of the request.
    pub(crate) sequence: U64,
    /// The region's first byte.
    pub(crate) address: U64,
    /// Its length.
    pub(crate) length: U32,
    /// Its key.
    pub(crate) key: U32,
    /// One if the answer shall invalidate the key.
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

/// Returns the message at the start of some memory.
pub(crate) fn read<T>(memory: &Memory) -> Result<T>
where
    T: zerocopy::FromBytes + zerocopy::IntoBytes,
{
    let mut message = T::new_zeroed();
    memory.read(0, message.as_mut_bytes())?;
    Ok(message)
}

/// Stores a message at the start of some memory.
pub(crate) fn write<T>(memory: &Memory, message: &T) -> Result
where
    T: zerocopy::IntoBytes + zerocopy::Immutable,
{
    memory.write(0, message.as_bytes())
}
