// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Private payloads of the uverbs commands: what the provider and the kernel module say to each
//! other beside the core's own fields. Lengths are multiples of 8 bytes.
//!
//! Every mmap offset is a `rdma_user_mmap` key of the context. A QP, CQ or SRQ may get its slot in
//! a further UAR when the context's first is full; the provider maps each UAR once.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Cqn, Pdn, Qpn, RangeNumber, SlotIndex, Srqn, UarIndex};

use core::mem::offset_of;

use crate::qp::AddressVector;

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
    }
}

/// A method of queue pairs (`UVERBS_OBJECT_QP`): a [`RangeReq`], answered by a [`RangeResp`].
pub const METHOD_RANGE: u16 = 1 << 12;
/// Attribute of [`METHOD_RANGE`]: the queue pair.
pub const ATTR_RANGE_QP: u16 = (1 << 12) + 2;
/// Attribute of [`METHOD_RANGE`]: device memory, for [`RangeOp::Arm`].
pub const ATTR_RANGE_DM: u16 = ATTR_RANGE_QP + 1;
/// A method of queue pairs: an [`AttachReq`].
pub const METHOD_ATTACH: u16 = METHOD_RANGE + 1;
/// Attribute of [`METHOD_ATTACH`]: the queue pair.
pub const ATTR_ATTACH_QP: u16 = (1 << 12) + 2;
/// A method of queue pairs: a [`StartReq`].
pub const METHOD_START: u16 = METHOD_RANGE + 4;
/// Attribute of [`METHOD_START`]: the queue pair that has the connection.
pub const ATTR_START_FROM: u16 = (1 << 12) + 2;
/// Attribute of [`METHOD_START`]: the queue pair that gets it.
pub const ATTR_START_TO: u16 = ATTR_START_FROM + 1;
/// A method of queue pairs: a [`ConnectionReq`], answered by a [`ConnectionResp`].
pub const METHOD_CONNECTION: u16 = METHOD_RANGE + 5;
/// Attribute of [`METHOD_CONNECTION`]: the queue pair.
pub const ATTR_CONNECTION_QP: u16 = (1 << 12) + 2;
/// A method of device memory (`UVERBS_OBJECT_DM`), answered by a [`DmResp`].
pub const METHOD_QUERY_DM: u16 = 1 << 12;
/// Attribute of [`METHOD_QUERY_DM`]: the device memory.
pub const ATTR_QUERY_DM: u16 = (1 << 12) + 2;

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
    /// [`Features`].
    pub features: U32,
    /// Zero.
    pub reserved: U32,
}

/// Returns the mmap offset of the device memory with this uverbs handle; `None` if a process has
/// too many objects for that. Keys that the kernel chooses itself are far below.
#[must_use]
pub const fn device_memory_mmap(handle: u32) -> Option<u64> {
    /// Bytes between one and the next.
    const EACH: u64 = crate::uar::DEVICE_MEMORY_MAX;
    if handle < 1 << 16 { Some((1 << 43) + handle as u64 * EACH) } else { None }
}

/// Returns one of the mmap offsets for device memory whose own offset ([`device_memory_mmap`]) is
/// still that of a mapping of memory which was freed and had the same handle. [`DmResp::mmap`]
/// tells which one it got. `None` beyond the last. They are between ranges and other device memory.
#[must_use]
pub const fn spare_memory_mmap(number: u32) -> Option<u64> {
    /// Bytes between one and the next.
    const EACH: u64 = crate::uar::DEVICE_MEMORY_MAX;
    if number < 64 { Some((1 << 42) + (1 + number as u64) * EACH) } else { None }
}

/// Returns the mmap offset of an address range, a page; `None` if there is no such range. It is
/// between what the kernel chooses itself and device memory.
#[must_use]
pub const fn range_mmap(range: crate::RangeNumber) -> Option<u64> {
    use crate::direct::{RANGE_LEN, RANGES};
    let range = range.get();
    if range < RANGES { Some((1 << 42) + range as u64 * RANGE_LEN as u64) } else { None }
}

/// Response to ALLOC_PD.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PdResp {
    /// The PD number.
    pub pdn: Pdn,
    /// Zero.
    pub reserved: U32,
}

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

wire_enum! {
    /// What a program does with an address range.
    pub enum RangeOp: u8 {
        /// Takes a free range for the queue pair, which may then be mapped.
        Get = 0,
        /// Ends its transfer and gives it back.
        Put = 1,
        /// Arms it. The packet memory is device memory of the same context.
        Arm = 2,
        /// Tells its state.
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
    /// Bytes.
    pub length: U32,
    /// Milliseconds until the transfer fails.
    pub time_limit_ms: U32,
}

/// Response of [`METHOD_RANGE`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RangeResp {
    /// The range.
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

/// Request of [`METHOD_ATTACH`]: gives the connection of a socket to a queue pair of a TCP stream.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AttachReq {
    /// The descriptor of a connected TCP socket.
    pub fd: U32,
    /// Zero.
    pub reserved: [u8; 12],
}

/// Request of [`METHOD_START`]: begins to move the connection of a queue pair of a TCP stream to a
/// queue pair with RDMA messages.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StartReq {
    /// READs and atomics of the peer that are served at a time, at most.
    pub ird: U32,
    /// READs and atomics that are outstanding at a time, at most.
    pub ord: U32,
    /// [`crate::connection::StartFlags`].
    pub flags: U32,
    /// Number of bytes that the process has received and that belong to messages, at most
    /// [`crate::connection::RECEIVED_MAX`].
    pub received_len: U32,
    /// Their address.
    pub received: U64,
}

wire_enum! {
    /// An operation of a program on the connection of an iWARP queue pair.
    pub enum ConnectionOp: u8 {
        /// Asks for its state.
        Query = 0,
        /// Names the eventfd that is signaled at each change of the state; [`NO_FD`] for none.
        Watch = 1,
        /// [`crate::connection::Closing::Graceful`], with a time limit.
        Close = 2,
        /// [`crate::connection::Closing::Abortive`].
        Abort = 3,
        /// [`crate::connection::Closing::Release`], as soon as that is possible.
        Release = 4,
        /// [`crate::connection::Closing::Idle`]; the queue pair is in the state INIT then.
        Idle = 5,
        /// [`crate::connection::Closing::IdleNow`]; likewise.
        IdleNow = 6,
    }
}

/// The [`ConnectionReq::fd`] for no eventfd.
pub const NO_FD: u32 = u32::MAX;

/// Request of [`METHOD_CONNECTION`]. Fields that an operation does not need are zero.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConnectionReq {
    /// A [`ConnectionOp`].
    pub op: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// The descriptor of an eventfd.
    pub fd: U32,
    /// Milliseconds until a connection that is being closed is reset. Zero: the driver's limit.
    pub time_limit_ms: U32,
    /// Zero.
    pub reserved2: U32,
}

/// Response of [`METHOD_CONNECTION`]: the state for [`ConnectionOp::Query`], and the progress of
/// the other operations.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConnectionResp {
    /// A [`crate::connection::RdmaState`].
    pub state: u8,
    /// A [`crate::connection::Stage`].
    pub stage: u8,
    /// A [`crate::connection::Ending`].
    pub ending: u8,
    /// A [`crate::connection::Closed`].
    pub closed: u8,
    /// [`crate::connection::ConnectionEvents`].
    pub events: U16,
    /// Zero.
    pub reserved: U16,
    /// READs and atomics of the peer that are served at a time, at most.
    pub ird: U16,
    /// READs and atomics that are outstanding at a time, at most.
    pub ord: U16,
    /// Zero.
    pub reserved2: U32,
}

/// Response of [`METHOD_QUERY_DM`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmResp {
    /// Bytes.
    pub length: U64,
    /// mmap offset. Zero if the kernel module is older: then it is that of [`device_memory_mmap`].
    pub mmap: U64,
}

/// The offsets of ranges and those of device memory do not overlap.
const _: () = {
    use crate::direct::{RANGE_LEN, RANGES};
    use crate::uar::DEVICE_MEMORY_MAX;
    assert!(RANGES as u64 * RANGE_LEN as u64 <= DEVICE_MEMORY_MAX);
    assert!(matches!(spare_memory_mmap(63), Some(last) if last + DEVICE_MEMORY_MAX <= 1 << 43));
};
const _: () = assert!(size_of::<DmResp>() == 16 && size_of::<AttachReq>() == 16);
const _: () = assert!(size_of::<StartReq>() == 24);
const _: () = assert!(size_of::<ConnectionReq>() == 16 && size_of::<ConnectionResp>() == 16);
const _: () = assert!(size_of::<RangeReq>() == 24 && size_of::<RangeResp>() == 16);
const _: () = assert!(size_of::<ContextResp>() == 48);
const _: () = assert!(size_of::<PdResp>() == 8 && size_of::<AhResp>() == 40);
const _: () = assert!(size_of::<CqReq>() == 16 && size_of::<CqResp>() == 24);
const _: () = assert!(size_of::<SrqReq>() == 16 && size_of::<SrqResp>() == 24);
const _: () = assert!(size_of::<ResizeCqResp>() == 8);
const _: () = assert!(size_of::<SpreadReq>() == 48);
const _: () = assert!(size_of::<QpReq>() == 32 && size_of::<QpResp>() == 32);
