// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Private payloads of the uverbs commands: what the provider and the kernel module say to each
//! other in addition to the core's own fields. Lengths are multiples of 8 bytes.
//!
//! Every mmap offset is a `rdma_user_mmap` key of the context. A QP, CQ or SRQ may get its slot in
//! a further UAR when the context's first is full; the provider maps each UAR once.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `connection` | connections of queue pairs of iWARP and of TCP streams |
//! | `ranges` | address ranges and device memory |

use bitflags::bitflags;
use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Cqn, Pdn, Qpn, SlotIndex, Srqn, UarIndex};

use core::mem::offset_of;

use crate::qp::AddressVector;

mod connection;
mod ranges;

pub use connection::{
    ATTR_ATTACH_QP, ATTR_CONNECTION_QP, ATTR_START_FROM, ATTR_START_TO, AttachReq, ConnectionOp,
    ConnectionReq, ConnectionResp, METHOD_ATTACH, METHOD_CONNECTION, METHOD_START, NO_FD, StartReq,
};
pub use ranges::{
    ATTR_QUERY_DM, ATTR_RANGE_DM, ATTR_RANGE_QP, DmResp, METHOD_QUERY_DM, METHOD_RANGE, RangeOp,
    RangeReq, RangeResp, device_memory_mmap, range_mmap, spare_memory_mmap,
};

/// A private payload. Later versions of it are longer: an older provider sends, and expects, less,
/// a newer one more. What is missing counts as zero, and what is too much must be zero in a
/// request.
pub trait Payload {
    /// Bytes that every version has.
    const REQUIRED: usize;
}

/// Of commands without one.
impl Payload for () {
    const REQUIRED: usize = 0;
}

macro_rules! payloads {
    ($($payload:ty: $required:expr;)*) => {
        $(impl Payload for $payload {
            const REQUIRED: usize = $required;
        })*
    };
}

payloads! {
    ContextResp: offset_of!(ContextResp, features);
    PdResp: size_of::<PdResp>();
    MrReq: 0;
    CqReq: offset_of!(CqReq, flags);
    CqResp: size_of::<CqResp>();
    SrqReq: offset_of!(SrqReq, reserved);
    SrqResp: size_of::<SrqResp>();
    ResizeCqResp: size_of::<ResizeCqResp>();
    AhResp: size_of::<AhResp>();
    QpReq: offset_of!(QpReq, tag_form);
    QpResp: size_of::<QpResp>();
    SpreadReq: size_of::<SpreadReq>();
    RangeReq: size_of::<RangeReq>();
    RangeResp: size_of::<RangeResp>();
    DmResp: offset_of!(DmResp, mmap);
    AttachReq: size_of::<AttachReq>();
    StartReq: size_of::<StartReq>();
    ConnectionReq: size_of::<ConnectionReq>();
    ConnectionResp: size_of::<ConnectionResp>();
}

bitflags! {
    /// Bits of [`ContextResp::features`]: what the kernel module knows beyond the first version.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features: u32 {
        /// [`CQ_ANY_VECTOR`].
        const ANY_VECTOR = 1 << 0;
        /// [`MrReq::flags`].
        const REGION_FLAGS = 1 << 1;
        /// [`QpReq::tag_form`] and [`QpReq::tag_offset`].
        const COMMANDS = 1 << 2;
        /// [`METHOD_RANGE`].
        const RANGES = 1 << 3;
        /// [`METHOD_QUERY_DM`], and QUERY_CONTEXT with a [`ContextResp`].
        const IMPORT = 1 << 4;
        /// The work request AWAIT, of the device.
        const AWAIT = 1 << 5;
        /// The attribute `IB_QP_RATE_LIMIT` of queue pairs.
        const RATE_LIMIT = 1 << 6;
        /// Queue pairs of raw packets and flows, of the device.
        const RAW_PACKET = 1 << 7;
        /// Work queues, and queue pairs that spread frames over them, of the device.
        const SPREADS = 1 << 8;
        /// Queue pairs of TCP streams and [`METHOD_ATTACH`], of an iWARP device.
        const TOE = 1 << 9;
        /// [`CQ_HOLDING`], of the device.
        const HOLDING_CQ = 1 << 10;
        /// [`QpReqFlags::NO_SQ_KEYS`], [`QpReqFlags::WINDOWS_ONLY`], `NO_LOCAL_READ` in
        /// [`MrReq::flags`], and `SAME_KEY` of bindings, of the device.
        const KEY_OPTIONS = 1 << 11;
        /// The work requests ATOMIC_WRITE and FLUSH, of the device.
        const FLUSH = 1 << 12;
        /// [`METHOD_START`], of an iWARP device.
        const START_RDMA = 1 << 13;
        /// [`METHOD_CONNECTION`], of the device, and changes of the numbers of READs of a
        /// connection.
        const CONNECTION = 1 << 14;
        /// [`crate::Key::NULL`], of the device.
        const NULL_KEY = 1 << 17;
        /// [`QpReqFlags::BLOCK_LOOPBACK`], of the device.
        const BLOCK_LOOPBACK = 1 << 18;
        /// [`RangeReq::packet_memory`].
        const RANGE_BLOCKS = 1 << 19;
        /// [`QpReqFlags::ACKNOWLEDGED`], and [`QpReqFlags::QUEUE_LENGTH`] of queue pairs with
        /// messages, of the device.
        const ACKNOWLEDGED = 1 << 20;
        /// The adapter's clock is the system's `CLOCK_MONOTONIC`, plus what the words at
        /// [`crate::regs::CLOCK_LO`] of the kick page contain, modulo 2^64.
        const SYSTEM_CLOCK = 1 << 21;
    }
}

/// Response to GET_CONTEXT and to QUERY_CONTEXT.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ContextResp {
    /// [`crate::ABI_VERSION`] of the device.
    pub abi_version: U32,
    /// Number of the context's first UAR.
    pub uar: UarIndex,
    /// mmap offset of that UAR, [`crate::uar::UAR_LEN`] bytes.
    pub uar_mmap: U64,
    /// mmap offset of the kick page, [`crate::regs::KICK_LEN`] bytes.
    pub kick_mmap: U64,
    /// Work requests outstanding on a queue, at most.
    pub max_wr: U32,
    /// Scatter/gather entries of a work request, at most.
    pub max_sge: U32,
    /// Bytes of inline data, at most.
    pub max_inline: U32,
    /// Entries of a CQ, at most.
    pub max_cqe: U32,
    /// What the module knows: bits of [`Features`].
    pub features: U32,
    /// Below a supervisor (docs/exec.md), the first of the offsets at which the process maps the
    /// memory of rings from the command file, in pages of 4 KiB; [`NEXT_RING`] has the next one.
    /// The file is then memory that the process shares with the adapter. So is the kick page: the
    /// adapter waits for a change of the first word (`futex(2)`). Zero otherwise.
    pub rings: U32,
}

/// Offset in the kick page of the 64-bit word with the mmap offset of the next ring, below a
/// supervisor. A process takes a range by adding the length of the range, a multiple of 4 KiB.
pub const NEXT_RING: u32 = 64;

/// Response to ALLOC_PD.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PdResp {
    /// The PD number.
    pub pdn: Pdn,
    /// Zero.
    pub reserved: U32,
}

/// Rights of a region that are hints, which may be ignored: `IB_ACCESS_OPTIONAL` without
/// `IB_ACCESS_RELAXED_ORDERING`, and `IB_ACCESS_HUGETLB`, which is one for paging on demand
/// (rdma/ib_verbs.h).
pub const ACCESS_HINTS: u32 = 0x3fe0_0000 | 1 << 7;

/// Request to REG_MR.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MrReq {
    /// [`crate::admin::MrFlags`], of which `ONE_TOUCH` and `NO_LOCAL_READ` are for users.
    pub flags: U32,
    /// Zero.
    pub reserved: U32,
}

/// In [`CqReq::flags`]: whatever completion vector the core's command names, the driver chooses
/// one.
pub const CQ_ANY_VECTOR: u8 = 1 << 0;
/// In [`CqReq::flags`], for CREATE_CQ: [`crate::admin::CqFlags::HOLDING`].
pub const CQ_HOLDING: u8 = 1 << 1;

/// Request to CREATE_CQ and to RESIZE_CQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CqReq {
    /// Page-aligned address of the ring; zeroed for CREATE_CQ, see [`crate::admin::ResizeCq`] for
    /// the other.
    pub buf: U64,
    /// log2 of its entries; the core's `cqe` is not larger.
    pub log_size: u8,
    /// [`CQ_ANY_VECTOR`] and [`CQ_HOLDING`].
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// With [`CQ_HOLDING`], [`crate::admin::CreateCq::few`].
    pub few: U32,
}

/// Response to CREATE_CQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CqResp {
    /// The CQ number.
    pub cqn: Cqn,
    /// The doorbell slot of the CQ.
    pub slot: SlotIndex,
    /// The UAR of that slot.
    pub uar: UarIndex,
    /// The completion vector that it is bound to.
    pub vector: U32,
    /// mmap offset of that UAR.
    pub uar_mmap: U64,
}

/// Request to CREATE_SRQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SrqReq {
    /// Page-aligned address of the ring.
    pub buf: U64,
    /// log2 of its entries.
    pub log_size: u8,
    /// log2 of its stride ([`crate::rq::stride`]).
    pub log_stride: u8,
    /// Zero.
    pub reserved: [u8; 6],
}

/// Response to CREATE_SRQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SrqResp {
    /// The SRQ number.
    pub srqn: Srqn,
    /// The doorbell slot of the SRQ.
    pub slot: SlotIndex,
    /// The UAR of that slot.
    pub uar: UarIndex,
    /// Zero.
    pub reserved: U32,
    /// mmap offset of that UAR.
    pub uar_mmap: U64,
}

/// Response to RESIZE_CQ, whose request is a [`CqReq`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ResizeCqResp {
    /// [`crate::admin::ResizeCqResult::first`].
    pub first: U32,
    /// Zero.
    pub reserved: U32,
}

/// Response to CREATE_AH.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AhResp {
    /// The path, resolved by the kernel, as it goes into the entries of datagrams.
    pub av: AddressVector,
}

bitflags! {
    /// Bits of [`QpReq::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QpReqFlags: u32 {
        /// Put the send queue into device memory (WQEs posted by MMIO stores).
        const SQ_IN_DEVICE = 1 << 0;
        /// [`crate::admin::QpFlags::REACTIVE`].
        const REACTIVE = 1 << 1;
        /// [`crate::admin::QpFlags::PUSH`].
        const PUSH = 1 << 2;
        /// [`crate::admin::QpFlags::NO_SQ_KEYS`].
        const NO_SQ_KEYS = 1 << 3;
        /// [`crate::admin::QpFlags::WINDOWS_ONLY`].
        const WINDOWS_ONLY = 1 << 4;
        /// [`crate::admin::QpFlags::QUEUE_LENGTH`].
        const QUEUE_LENGTH = 1 << 5;
        /// [`crate::admin::QpOptions::BLOCK_LOOPBACK`].
        const BLOCK_LOOPBACK = 1 << 6;
        /// [`crate::admin::QpOptions::ACKNOWLEDGED`].
        const ACKNOWLEDGED = 1 << 7;
    }
}

/// Request to CREATE_QP for a queue pair with an indirection table: how it spreads frames over
/// the work queues of the table. The response is a [`QpResp`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SpreadReq {
    /// [`crate::rss::Fields`].
    pub fields: U64,
    /// The key of the Toeplitz hash.
    pub key: [u8; crate::rss::KEY_LEN],
}

/// Request to CREATE_QP, and to CREATE_WQ, which has no send queue. A log size of
/// [`crate::admin::NO_QUEUE`] says: no such queue.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QpReq {
    /// Page-aligned address of the send queue; zero when it lies in device memory.
    pub sq_buf: U64,
    /// Page-aligned address of the receive queue.
    pub rq_buf: U64,
    /// log2 of the entries of the send queue.
    pub sq_log_size: u8,
    /// log2 of its stride ([`crate::sq::stride`]).
    pub sq_log_stride: u8,
    /// log2 of the entries of the receive queue.
    pub rq_log_size: u8,
    /// log2 of its stride ([`crate::rq::stride`]).
    pub rq_log_stride: u8,
    /// [`QpReqFlags`].
    pub flags: U32,
    /// A [`crate::admin::TagForm`].
    pub tag_form: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// [`crate::admin::CreateQp::tag_offset`].
    pub tag_offset: U32,
}

/// Response to CREATE_QP and to CREATE_WQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QpResp {
    /// The QP number (the core's response has it too).
    pub qpn: Qpn,
    /// The doorbell slot of the QP.
    pub slot: SlotIndex,
    /// The UAR of that slot.
    pub uar: UarIndex,
    /// Bytes to map at [`QpResp::sq_mmap`]; zero when the send queue is in guest memory.
    pub sq_mmap_len: U32,
    /// mmap offset of that UAR.
    pub uar_mmap: U64,
    /// mmap offset of the send queue in device memory.
    pub sq_mmap: U64,
}

const _: () = assert!(size_of::<ContextResp>() == 48);
const _: () = assert!(size_of::<PdResp>() == 8 && size_of::<AhResp>() == 40);
const _: () = assert!(size_of::<CqReq>() == 16 && size_of::<CqResp>() == 24);
const _: () = assert!(size_of::<SrqReq>() == 16 && size_of::<SrqResp>() == 24);
const _: () = assert!(size_of::<ResizeCqResp>() == 8);
const _: () = assert!(size_of::<SpreadReq>() == 48);
const _: () = assert!(size_of::<QpReq>() == 32 && size_of::<QpResp>() == 32);
