// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Address ranges of direct transfers and device memory: their methods, and where to map them.

use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::RangeNumber;
use crate::direct::{RANGE_LEN, RANGES};
use crate::uar::DEVICE_MEMORY_MAX;

/// A method of queue pairs (`UVERBS_OBJECT_QP`): a [`RangeReq`], answered by a [`RangeResp`].
pub const METHOD_RANGE: u16 = 1 << 12;
/// Attribute of [`METHOD_RANGE`]: the queue pair.
pub const ATTR_RANGE_QP: u16 = (1 << 12) + 2;
/// Attribute of [`METHOD_RANGE`]: device memory, for [`RangeOp::Arm`].
pub const ATTR_RANGE_DM: u16 = ATTR_RANGE_QP + 1;
/// A method of device memory (`UVERBS_OBJECT_DM`), answered by a [`DmResp`].
pub const METHOD_QUERY_DM: u16 = 1 << 12;
/// Attribute of [`METHOD_QUERY_DM`]: the device memory.
pub const ATTR_QUERY_DM: u16 = (1 << 12) + 2;

/// Returns the mmap offset of the device memory with this uverbs handle; `None` if a process has
/// too many objects for that. Keys that the kernel chooses itself are far below.
#[must_use]
pub const fn device_memory_mmap(handle: u32) -> Option<u64> {
    if handle < 1 << 16 { Some((1 << 43) + handle as u64 * DEVICE_MEMORY_MAX) } else { None }
}

/// Returns one of the mmap offsets for device memory whose own offset ([`device_memory_mmap`]) is
/// still that of a mapping of memory which was freed and had the same handle. [`DmResp::mmap`]
/// tells which one it got. `None` beyond the last. They are between ranges and other device memory.
#[must_use]
pub const fn spare_memory_mmap(number: u32) -> Option<u64> {
    if number < 64 { Some((1 << 42) + (1 + number as u64) * DEVICE_MEMORY_MAX) } else { None }
}

/// Returns the mmap offset of an address range, a page; `None` if there is no such range. It is
/// between what the kernel chooses itself and device memory.
#[must_use]
pub const fn range_mmap(range: RangeNumber) -> Option<u64> {
    let range = range.get();
    if range < RANGES { Some((1 << 42) + range as u64 * RANGE_LEN as u64) } else { None }
}

wire_enum! {
    /// What a program does with an address range.
    pub enum RangeOp: u8 {
        /// Takes a free range for the queue pair, which may then be mapped.
        Get = 0,
        /// Ends the range's transfer and gives the range back.
        Put = 1,
        /// Arms the range. The packet memory is device memory of the same context.
        Arm = 2,
        /// Tells the state of the range.
        Query = 3,
        /// Tells the adapter that all bytes of a mapped transfer have been moved.
        Done = 4,
    }
}

/// Request of [`METHOD_RANGE`]. What an operation does not need is zero.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RangeReq {
    /// A [`RangeOp`].
    pub op: u8,
    /// A [`crate::direct::Direction`].
    pub direction: u8,
    /// A [`crate::direct::Notice`].
    pub notice: u8,
    /// A [`crate::direct::PacketMemory`], for [`RangeOp::Arm`]: an address in the device memory, or
    /// a free block. With a block there is no device memory, and the offset is zero.
    pub packet_memory: u8,
    /// The range, but for [`RangeOp::Get`].
    pub range: RangeNumber,
    /// Offset of the first byte in the device memory.
    pub offset: U64,
    /// Number of bytes of the transfer.
    pub length: U32,
    /// Milliseconds until the transfer fails.
    pub time_limit_ms: U32,
}

/// Response of [`METHOD_RANGE`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RangeResp {
    /// The number of the range.
    pub range: RangeNumber,
    /// Bytes that have been moved.
    pub count: U32,
    /// [`crate::admin::RangeRegisters::pci_valid`].
    pub pci_valid: u8,
    /// [`crate::admin::RangeRegisters::adapter_valid`].
    pub adapter_valid: u8,
    /// [`crate::admin::RangeRegisters::failure`].
    pub failure: u8,
    /// Zero.
    pub reserved: [u8; 5],
}

/// Response of [`METHOD_QUERY_DM`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmResp {
    /// Number of bytes of the device memory.
    pub length: U64,
    /// mmap offset. Zero if the kernel module is older: then it is that of [`device_memory_mmap`].
    pub mmap: U64,
}

/// The offsets of ranges and those of device memory do not overlap.
const _: () = {
    assert!(RANGES as u64 * RANGE_LEN as u64 <= DEVICE_MEMORY_MAX);
    assert!(matches!(spare_memory_mmap(63), Some(last) if last + DEVICE_MEMORY_MAX <= 1 << 43));
};
const _: () = assert!(size_of::<DmResp>() == 16);
const _: () = assert!(size_of::<RangeReq>() == 24 && size_of::<RangeResp>() == 16);
