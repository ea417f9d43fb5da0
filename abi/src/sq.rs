// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The send queue: entries with a header of 32 bytes and segments, in strides of 64 to 512 bytes.
//!
//! | opcode | segments after the header |
//! | --- | --- |
//! | SEND, WRITE (and with immediate) | `count` [`Sge`]s; or, inline, `count` bytes of data |
//! | READ | `count` [`Sge`]s |
//! | READ_INV | one [`Sge`] |
//! | CMP_SWP, FETCH_ADD | one [`AtomicSeg`], then exactly one [`Sge`] of 8 bytes |
//! | ATOMIC_WRITE | one [`Sge`] of 8 bytes; or, inline, 8 bytes of data |
//! | FLUSH | one [`AtomicSeg`]: [`FlushFlags`], and the length; `count` is zero |
//! | SEND_INV | as SEND |
//! | LOCAL_INV | none; `count` is zero |
//! | REG_MR | one [`RegMrSeg`]; `count` is zero |
//! | BIND_MW | one [`BindMwSeg`]; `count` is zero |
//! | TRANSFER, AWAIT | none; `count` is zero |
//! | SEGMENT | one [`SegmentSeg`], the headers, then `count` [`Sge`]s |
//! | SEND_CMD | one [`CommandSeg`], its [`Sge`]s, then as SEND |
//!
//! Datagram QPs ([`crate::qp::Type::is_datagram`]) have SEND only, with one [`DatagramSeg`] between
//! the header and the rest. XRC initiators have SEND, WRITE, READ, atomics, ATOMIC_WRITE and FLUSH,
//! with one [`XrcSeg`] in this place. QPs of raw packets have SEND, whose data is an Ethernet frame
//! without its check sequence, and SEGMENT.
//!
//! A queue is in guest memory and is posted by a producer index, or it is in device memory
//! ([`crate::uar::SQ_MEMORY_OFFSET`]) and is posted by storing the WQE's [`SqWqe::stamp`] last.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::qp::{AddressVector, Destination};
use crate::{GuestAddr, Key, Qpn, Srqn};

mod opcode;

pub use opcode::{
    Class, KERNEL_WR_AWAIT, KERNEL_WR_OPCODES, KERNEL_WR_TRANSFER, Opcode, OpcodeInfo,
};

/// Maximum number of scatter/gather entries of a work request, on either queue.
pub const MAX_SGE: u32 = 16;
/// Maximum number of bytes of inline data.
pub const MAX_INLINE: u32 = STRIDE_MAX - HEADER_LEN;
/// Length of [`SqWqe`] in bytes.
pub const HEADER_LEN: u32 = 32;
/// Length of [`DatagramSeg`] in bytes.
pub const DATAGRAM_LEN: u32 = 48;
/// Length of [`XrcSeg`] in bytes.
pub const XRC_LEN: u32 = 16;
/// Maximum length of a datagram in bytes: the largest path MTU.
pub const MAX_DATAGRAM: u32 = 4096;
/// Smallest stride in bytes.
pub const STRIDE_MIN: u32 = 64;
/// Largest stride in bytes.
pub const STRIDE_MAX: u32 = 512;
/// Largest log2 of the entries of an SQ or RQ.
pub const LOG_WQES_MAX: u32 = 15;
/// Maximum length of a message in bytes.
pub const MAX_MESSAGE: u32 = 1 << 30;

impl Destination {
    /// Returns the length of the segment in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Address => DATAGRAM_LEN,
            Self::Srq => XRC_LEN,
        }
    }
}

/// Returns the stride in bytes for sends with this destination, `max_sge` segments and `max_inline`
/// bytes of data, or `None` if no stride is large enough.
#[must_use]
pub const fn stride(destination: Destination, max_sge: u32, max_inline: u32) -> Option<u32> {
    /// The operands of an atomic, and its segment.
    const LEAST: u32 = 32;
    let ahead = destination.bytes();
    if max_sge > MAX_SGE || max_inline > MAX_INLINE - ahead {
        return None;
    }
    let sges = max_sge * size_of::<Sge>() as u32;
    let least = if sges > LEAST { sges } else { LEAST };
    let body = if least > max_inline { least } else { max_inline };
    Some((HEADER_LEN + ahead + body).next_power_of_two())
}

/// Returns the stride of the send queue of a QP of raw packets for these capacities, and for
/// SEGMENTs with `max_headers` bytes of headers; it has no SEGMENTs if that is zero.
#[must_use]
pub const fn raw_stride(max_sge: u32, max_inline: u32, max_headers: u32) -> Option<u32> {
    if max_headers > MAX_SEGMENT_HEADERS {
        return None;
    }
    let segment = match max_headers {
        0 => 0,
        _ => size_of::<SegmentSeg>() as u32 + max_headers.next_multiple_of(16),
    };
    let Some(plain) = stride(Destination::None, max_sge, max_inline) else { return None };
    let need = HEADER_LEN + segment + max_sge * size_of::<Sge>() as u32;
    let need = need.next_power_of_two();
    Some(if need > plain { need } else { plain })
}

/// Returns the maximum number of inline bytes for a stride, in sends with this destination.
#[must_use]
pub const fn inline_capacity(destination: Destination, stride: u32) -> u32 {
    stride.saturating_sub(HEADER_LEN + destination.bytes())
}

bitflags! {
    /// Bits of [`SqWqe::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Flags: u8 {
        /// Write a CQE even on success.
        const SIGNALED = 1 << 0;
        /// Mark the peer's receive completion as solicited.
        const SOLICITED = 1 << 1;
        /// Start only when all earlier READs and atomics of this queue have completed.
        const FENCE = 1 << 2;
        /// The data is in the WQE itself.
        const INLINE = 1 << 3;
        /// Computes the checksums of IPv4, TCP and UDP of a raw packet (`IBV_SEND_IP_CSUM`).
        /// SEGMENT always does so.
        const IP_CSUM = 1 << 4;
    }
}

/// The header of a send queue entry.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SqWqe {
    /// The user's work request ID, which is returned in the CQE.
    pub wr_id: U64,
    /// The operation: an [`Opcode`].
    pub opcode: u8,
    /// Bits of [`Flags`].
    pub flags: u8,
    /// Number of [`Sge`]s, or of inline bytes.
    pub count: U16,
    /// Immediate data, in the byte order in which the peer sees it in memory (network order in
    /// verbs). The device does not interpret it.
    pub imm: [u8; 4],
    /// Remote virtual address of WRITE, READ, atomics and FLUSH; first address of REG_MR and
    /// BIND_MW; offset of the data of SEND_CMD with [`CommandFlags::PAGES`]; otherwise ignored.
    pub raddr: U64,
    /// Remote key of WRITE, READ, atomics, FLUSH and SEND_INV; the key that LOCAL_INV, REG_MR and
    /// BIND_MW concern; the number of the range of TRANSFER; the mark of AWAIT.
    pub rkey: Key,
    /// [`crate::stamp`] of the entry's index. Stored last if the queue is in device memory;
    /// otherwise ignored.
    pub stamp: U32,
}

/// The operands of an atomic or FLUSH.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AtomicSeg {
    /// The value to swap in, or to add; [`FlushFlags`] of a FLUSH.
    pub swap_add: U64,
    /// The value to compare with (CMP_SWP), or the number of bytes of a FLUSH.
    pub compare: U64,
}

bitflags! {
    /// The task of a FLUSH, with the bits of its header in packets. It names at least one of the
    /// first two.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FlushFlags: u64 {
        /// Earlier WRITEs must be visible to all (`IBV_FLUSH_GLOBAL`).
        const GLOBAL = 1 << 0;
        /// Earlier WRITEs must be in persistent memory (`IBV_FLUSH_PERSISTENT`). This adapter has
        /// no persistent memory, and refuses such a FLUSH of a peer.
        const PERSISTENT = 1 << 1;
        /// The FLUSH concerns the whole region of the key; address and length are ignored
        /// (`IBV_FLUSH_MR`).
        const REGION = 1 << 4;
    }
}

/// The destination of a datagram.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DatagramSeg {
    /// The path.
    pub av: AddressVector,
    /// The destination QP, 24 bits.
    pub dest_qpn: Qpn,
    /// The destination's queue key. With [`crate::qp::QKEY_OWN`], that of the sending QP is sent.
    pub qkey: U32,
}

/// The SRQ of a request of an XRC initiator.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct XrcSeg {
    /// The SRQ, in the XRC domain of the connected target. Keys of the request belong to its PD.
    pub srqn: Srqn,
    /// Zero.
    pub reserved: [U32; 3],
}

/// A scatter/gather entry of either queue.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sge {
    /// Virtual address in the region of `lkey`.
    pub addr: U64,
    /// Number of bytes.
    pub length: U32,
    /// Local key.
    pub lkey: Key,
}

/// Segmentation of a large TCP segment into frames (`IBV_WR_TSO`). The headers from Ethernet to TCP
/// follow, in `header_len` bytes padded to a multiple of 16, and then the [`Sge`]s of the payload.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SegmentSeg {
    /// Maximum number of bytes of payload in a frame, at least [`MIN_MSS`].
    pub mss: U16,
    /// Number of bytes of the headers, at most [`MAX_SEGMENT_HEADERS`].
    pub header_len: U16,
    /// Zero.
    pub reserved: [u8; 12],
}

/// Minimum number of bytes of a raw packet: an Ethernet header.
pub const MIN_FRAME: u32 = 14;
/// Maximum number of bytes of a raw packet of a SEND, and of each frame of a SEGMENT.
pub const MAX_FRAME: u32 = 9216;
/// Minimum of [`SegmentSeg::mss`].
pub const MIN_MSS: u16 = 48;
/// Maximum number of bytes of the headers of a SEGMENT.
pub const MAX_SEGMENT_HEADERS: u32 = 192;
/// Maximum number of bytes of headers and payload of a SEGMENT.
pub const MAX_SEGMENT: u32 = 1 << 16;

bitflags! {
    /// Bits of [`RegMrSeg::flags`] and [`BindMwSeg::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MemFlags: u8 {
        /// The key is valid for one message of the peer; see docs/adapter.md, section 5.
        const ONE_TOUCH = 1 << 0;
        /// The request names the present key of the region or window, with its instance, and is
        /// refused if that is another one. Without this, the request chooses the instance. For
        /// devices with [`crate::admin::DeviceFeatures::KEY_OPTIONS`].
        const SAME_KEY = 1 << 1;
        /// As [`crate::admin::MrFlags::NO_LOCAL_READ`], for a REG_MR.
        const NO_LOCAL_READ = 1 << 2;
    }
}

/// The region of a REG_MR. Its first address is [`SqWqe::raddr`], which is in the first page. For a
/// zero-based region it only determines the position in this page, and the addresses start at zero.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegMrSeg {
    /// Number of bytes, not zero.
    pub length: U64,
    /// Guest address of `page_count` page addresses of 8 bytes each. They are read when the request
    /// is executed.
    pub table: GuestAddr,
    /// [`crate::qp::Access`].
    pub access: U32,
    /// Number of page addresses in the table: enough for the region, and at most the number of
    /// ALLOC_MR.
    pub page_count: U32,
    /// log2 of the page size: 12 to 30.
    pub page_shift: u8,
    /// [`MemFlags`].
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 6],
}

/// The memory to which a BIND_MW binds a window. The window's first address is [`SqWqe::raddr`], in
/// the address space of the region. Addresses of a zero-based window start at zero.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BindMwSeg {
    /// Number of bytes. Zero unbinds a window of type 1.
    pub length: U64,
    /// The region.
    pub lkey: Key,
    /// [`crate::qp::Access`]: remote rights, and `ZERO_BASED`.
    pub access: U32,
    /// [`MemFlags`].
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 15],
}

bitflags! {
    /// Bits of [`CommandSeg::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CommandFlags: u8 {
        /// The data segments are guest addresses, and their keys are ignored. For QPs of context 0
        /// only.
        const PHYSICAL = 1 << 0;
        /// The key is valid for one message of the peer, as with [`MemFlags::ONE_TOUCH`].
        const ONE_TOUCH = 1 << 1;
        /// The data is in pages of 4 KiB, from the offset [`SqWqe::raddr`] of the first one on. The
        /// only data segment has the guest address of a list of page addresses of 8 bytes each,
        /// which is read when the request is executed, and the number of bytes of the data; its key
        /// is ignored. For QPs of context 0 only. At most as many pages as a REG_MR may have.
        const PAGES = 1 << 2;
    }
}

/// The memory that the peer of a SEND_CMD can access until it responds. `data_count` [`Sge`]s
/// follow: the data, which the peer accesses from address zero on by a key that the device chooses.
/// Behind them is the message: [`SqWqe::count`] segments or inline bytes. While it sends the
/// message, the device stores the key in it, big-endian, at the position of
/// [`crate::admin::CreateQp::tag_form`] or, in the general form, at `tag_offset`. The peer's
/// response with the key at its position ends the region.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CommandSeg {
    /// [`crate::qp::Access`]: remote read, remote write, or both.
    pub access: U32,
    /// General form: the position of the key in the message. Otherwise zero.
    pub tag_offset: U32,
    /// Number of data segments, 1 to [`MAX_SGE`].
    pub data_count: U16,
    /// [`CommandFlags`].
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 5],
}

/// Offset of [`SqWqe::stamp`].
pub const STAMP_OFFSET: u32 = 28;

const _: () = assert!(size_of::<SqWqe>() == HEADER_LEN as usize);
const _: () = assert!(core::mem::offset_of!(SqWqe, stamp) == STAMP_OFFSET as usize);
const _: () = assert!(size_of::<DatagramSeg>() == DATAGRAM_LEN as usize);
const _: () = assert!(size_of::<XrcSeg>() == XRC_LEN as usize);
const _: () = assert!(matches!(stride(Destination::Srq, MAX_SGE, 0), Some(STRIDE_MAX)));
const _: () = assert!(matches!(stride(Destination::Srq, 1, 0), Some(128)));
const _: () = assert!(matches!(stride(Destination::Address, MAX_SGE, 0), Some(STRIDE_MAX)));
const _: () = assert!(size_of::<Sge>() == 16 && size_of::<AtomicSeg>() == 16);
const _: () = assert!(size_of::<RegMrSeg>() == 32 && size_of::<BindMwSeg>() == 32);
const _: () = assert!(size_of::<CommandSeg>() == 16 && size_of::<SegmentSeg>() == 16);
const _: () = assert!(HEADER_LEN + 16 + MAX_SEGMENT_HEADERS + 16 * MAX_SGE <= STRIDE_MAX);
const _: () = assert!(matches!(raw_stride(MAX_SGE, 0, MAX_SEGMENT_HEADERS), Some(STRIDE_MAX)));
const _: () = assert!(matches!(stride(Destination::None, MAX_SGE, MAX_INLINE), Some(STRIDE_MAX)));
const _: () = assert!(matches!(stride(Destination::None, 1, 0), Some(STRIDE_MIN)));
const _: () = assert!(matches!(stride(Destination::None, 3, 0), Some(128)));
