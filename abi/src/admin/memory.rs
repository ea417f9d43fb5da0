// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Regions.

use bitflags::bitflags;
use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Pages;

bitflags! {
    /// Bits of [`RegMr::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MrFlags: u32 {
        /// All of guest memory, addressed by guest address; `iova`, `length` and `pages` are
        /// zero. For PDs of context 0 only (`get_dma_mr`).
        const ALL_MEMORY = 1 << 0;
    }
}

/// Parameters of REG_MR.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegMr {
    /// The pages. The first page holds `iova` rounded down to the page size.
    pub pages: Pages,
    /// First address of the region, as work requests name it.
    pub iova: U64,
    /// Bytes.
    pub length: U64,
    /// The PD.
    pub pdn: U32,
    /// [`crate::qp::Access`].
    pub access: U32,
    /// [`MrFlags`].
    pub flags: U32,
    /// Zero.
    pub reserved: [U32; 3],
}

impl RegMr {
    /// A region of `length` bytes at `iova`.
    #[must_use]
    pub const fn new(pdn: u32, access: u32, iova: u64, length: u64, pages: Pages) -> Self {
        Self {
            pages,
            iova: U64::new(iova),
            length: U64::new(length),
            pdn: U32::new(pdn),
            access: U32::new(access),
            flags: U32::ZERO,
            reserved: [U32::ZERO; 3],
        }
    }

    /// All of guest memory.
    #[must_use]
    pub const fn all_memory(pdn: u32, access: u32) -> Self {
        let mut this = Self::new(pdn, access, 0, 0, Pages::new(0, 0, 0));
        this.flags = U32::new(MrFlags::ALL_MEMORY.bits());
        this
    }
}

/// Result of REG_MR.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MrResult {
    /// The key, local and remote: index in bits 8–31, instance in bits 0–7.
    pub key: U32,
    /// Zero.
    pub reserved: [U32; 11],
}

impl MrResult {
    /// A result with this key.
    #[must_use]
    pub const fn new(key: u32) -> Self {
        Self { key: U32::new(key), reserved: [U32::ZERO; 11] }
    }
}
