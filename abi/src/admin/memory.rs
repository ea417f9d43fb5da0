// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Regions and windows.

use bitflags::bitflags;
use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{GuestAddr, Key, Pdn};

use super::Pages;

bitflags! {
    /// Bits of [`RegMr::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MrFlags: u32 {
        /// All of guest memory, addressed by guest address; `iova`, `length` and `pages` are
        /// zero. For PDs of context 0 only (`get_dma_mr`).
        const ALL_MEMORY = 1 << 0;
        /// The key is valid for one message of the peer; see docs/adapter.md, section 5.
        const ONE_TOUCH = 1 << 1;
        /// All pages must be memory that the adapter reaches. Otherwise BAD_ADDRESS. (Without this,
        /// accesses to what it does not reach fail.)
        const PRESENT = 1 << 2;
        /// Work requests of its PD cannot send from the region. (Without this, each region can be a
        /// source.) REREG_MR keeps it. For devices with [`super::DeviceFeatures::KEY_OPTIONS`].
        const NO_LOCAL_READ = 1 << 3;
        /// Pages come and go by MAP_PAGES and UNMAP_PAGES, and none is present at first. Of `pages`
        /// only the page size is given. The region may be longer than
        /// [`super::DeviceCaps::max_mr_size`], up to [`PAGED_MAX`] pages. With no other flag except
        /// `NO_LOCAL_READ`. For devices with [`super::DeviceFeatures::PAGED`].
        const PAGED = 1 << 4;
    }
}

/// Maximum number of pages of a region with [`MrFlags::PAGED`].
pub const PAGED_MAX: u64 = 1 << 36;
/// Maximum number of pages of one MAP_PAGES, and of one [`PageRequest`].
pub const MAP_PAGES_MAX: u32 = 512;

/// Parameters of MAP_PAGES, which makes pages of a region with [`MrFlags::PAGED`] present. Those
/// that are present already are replaced. Nothing is changed in case of an error.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MapPages {
    /// The key of the region.
    pub key: Key,
    /// Number of pages, 0 to [`MAP_PAGES_MAX`].
    pub count: U32,
    /// The first page: 0 is the page of the region's first byte.
    pub first: U64,
    /// A contiguous array of page addresses (8 bytes each), which are memory that the adapter
    /// reaches. Zero without pages, and with [`MapFlags::FAILED`].
    pub list: GuestAddr,
    /// [`MapFlags`].
    pub flags: U32,
}

bitflags! {
    /// Bits of [`MapPages::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MapFlags: u32 {
        /// The pages that are absent cannot be had: the next access of each fails.
        const FAILED = 1 << 0;
        /// Ends the page request that was returned last, and returns the next one.
        const NEXT = 1 << 1;
    }
}

/// The result of MAP_PAGES: with [`MapFlags::NEXT`], the next pages that a message waits for.
/// Requests are asked for after [`crate::eq::Kind::PageFault`], until there is none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PageRequest {
    /// The first page.
    pub first: U64,
    /// Number of pages, at most [`MAP_PAGES_MAX`]; zero if there is no request.
    pub count: U32,
    /// Zero.
    pub reserved: U32,
}

/// Parameters of UNMAP_PAGES, which makes pages of a region with [`MrFlags::PAGED`] absent. When it
/// completes, the adapter does not use them any more.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UnmapPages {
    /// The key of the region.
    pub key: Key,
    /// Zero.
    pub reserved: U32,
    /// The first page.
    pub first: U64,
    /// Number of pages. Those after the end of the region do not matter.
    pub count: U64,
}

bitflags! {
    /// Bits of [`ReregMr::what`]: the attributes to change (`enum ib_mr_rereg_flags`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Rereg: u32 {
        /// `IB_MR_REREG_TRANS`: pages, iova and length.
        const TRANSLATION = 1 << 0;
        /// `IB_MR_REREG_PD`.
        const PD = 1 << 1;
        /// `IB_MR_REREG_ACCESS`.
        const ACCESS = 1 << 2;
    }
}

wire_enum! {
    /// Types of windows, numbered as `enum ib_mw_type`.
    pub enum MwType: u8 {
        /// All QPs of the window's PD can use it. Binding it again ends the earlier binding.
        Type1 = 1,
        /// Only one QP can use the window. It must be invalidated before it is bound again.
        Type2 = 2,
    }
}

/// Parameters of REG_MR.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegMr {
    /// The pages. The first page holds `iova` rounded down to the page size.
    pub pages: Pages,
    /// First address of the region, as work requests name it. With `ZERO_BASED` it only determines
    /// where in the first page the region begins, and addresses in work requests start at zero.
    pub iova: U64,
    /// Number of bytes.
    pub length: U64,
    /// The PD.
    pub pdn: Pdn,
    /// [`crate::qp::Access`].
    pub access: U32,
    /// [`MrFlags`].
    pub flags: U32,
}

impl RegMr {
    /// Returns parameters for a region of `length` bytes at `iova`.
    #[must_use]
    pub fn new(pdn: impl Into<Pdn>, access: u32, iova: u64, length: u64, pages: Pages) -> Self {
        Self {
            pages,
            iova: U64::new(iova),
            length: U64::new(length),
            pdn: pdn.into(),
            access: U32::new(access),
            flags: U32::ZERO,
        }
    }

    /// Returns parameters for all of guest memory.
    #[must_use]
    pub fn all_memory(pdn: impl Into<Pdn>, access: u32) -> Self {
        let mut this = Self::new(pdn, access, 0, 0, Pages::new(0, 0, 0));
        this.flags = U32::new(MrFlags::ALL_MEMORY.bits());
        this
    }
}

/// Parameters of REREG_MR. Fields that [`ReregMr::what`] does not name are zero. In case of an
/// error the region is unchanged.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReregMr {
    /// As in [`RegMr`].
    pub pages: Pages,
    /// As in [`RegMr`].
    pub iova: U64,
    /// As in [`RegMr`].
    pub length: U64,
    /// The new PD.
    pub pdn: Pdn,
    /// The new [`crate::qp::Access`].
    pub access: U32,
    /// [`Rereg`].
    pub what: U32,
    /// The key of the region, from REG_MR.
    pub key: Key,
}

impl ReregMr {
    /// Returns parameters for region `key`. The caller sets the new attributes.
    #[must_use]
    pub fn new(key: impl Into<Key>, what: Rereg) -> Self {
        Self { key: key.into(), what: U32::new(what.bits()), ..Self::default() }
    }
}

/// Parameters of ALLOC_MR, which creates an invalid region that REG_MR work requests make valid.
/// DEREG_MR removes it, and uses only the index of the key.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AllocMr {
    /// The PD.
    pub pdn: Pdn,
    /// Maximum number of pages of a registration, 1 to [`super::DeviceCaps::max_fast_reg_pages`].
    pub max_pages: U32,
}

impl AllocMr {
    /// Returns parameters for a region of up to `max_pages` pages.
    #[must_use]
    pub fn new(pdn: impl Into<Pdn>, max_pages: u32) -> Self {
        Self { pdn: pdn.into(), max_pages: U32::new(max_pages) }
    }
}

/// Parameters of ALLOC_MW, which creates a window that is not bound. DEALLOC_MW uses only the index
/// of the key.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AllocMw {
    /// The PD.
    pub pdn: Pdn,
    /// The type of the window: a [`MwType`].
    pub mw_type: u8,
}

impl AllocMw {
    /// Returns parameters for a window of this type.
    #[must_use]
    pub fn new(pdn: impl Into<Pdn>, mw_type: MwType) -> Self {
        Self { pdn: pdn.into(), mw_type: mw_type as u8 }
    }
}
