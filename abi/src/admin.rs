// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The admin queue: 64-byte commands, 64-byte completions, in rings of equal size.
//!
//! A command is an 8-byte head and 56 bytes of parameters, one struct an [`Opcode`]; its
//! completion carries 48 bytes of result. Many commands may be outstanding; they start in
//! order and may complete in any order, matched by [`Command::id`]. Larger data is passed by
//! the guest address of a buffer. Completions raise [`crate::pci::VECTOR_ASYNC`].
//!
//! | opcode | parameters | result |
//! | --- | --- | --- |
//! | QUERY_DEVICE | [`QueryParams`] → [`DeviceCaps`] | — |
//! | QUERY_STATS | [`QueryParams`] → [`Stats`] | — |
//! | SET_GID | [`SetGid`] | — |
//! | CREATE_EQ / DESTROY_EQ | [`CreateEq`] / [`ObjectId`] | [`EqResult`] / — |
//! | ALLOC_CONTEXT / FREE_CONTEXT | [`NoParams`] / [`ObjectId`] | [`ObjectResult`] / — |
//! | ALLOC_UAR / FREE_UAR | [`ObjectId`] (context) / [`ObjectId`] (UAR) | [`ObjectResult`] / — |
//! | ALLOC_PD / FREE_PD | [`ObjectId`] (context) / [`ObjectId`] | [`ObjectResult`] / — |
//! | REG_MR / DEREG_MR | [`RegMr`] / [`ObjectId`] (key) | [`MrResult`] / — |
//! | CREATE_CQ / DESTROY_CQ | [`CreateCq`] / [`ObjectId`] | [`CqResult`] / — |
//! | CREATE_QP / DESTROY_QP | [`CreateQp`] / [`ObjectId`] | [`QpResult`] / — |
//! | MODIFY_QP / QUERY_QP | [`ModifyQp`] / [`QueryQp`] | — |
//!
//! Context 0 is the kernel's own: it exists from ENABLE on and owns UAR 0. A PD, CQ or QP
//! belongs to the context named at its creation, and objects of different contexts do not mix:
//! [`Status::Permission`]. Destroying an object that others use gives [`Status::Busy`].

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of parameters in a command.
pub const PARAMS_LEN: usize = 56;
/// Bytes of result in a completion.
pub const RESULT_LEN: usize = 48;

/// Admin commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum Opcode {
    QueryDevice = 1,
    QueryStats = 2,
    SetGid = 3,
    CreateEq = 4,
    DestroyEq = 5,
    AllocContext = 6,
    FreeContext = 7,
    AllocUar = 8,
    FreeUar = 9,
    AllocPd = 10,
    FreePd = 11,
    RegMr = 12,
    DeregMr = 13,
    CreateCq = 14,
    DestroyCq = 15,
    CreateQp = 16,
    DestroyQp = 17,
    ModifyQp = 18,
    QueryQp = 19,
}

impl Opcode {
    /// The opcode with this number.
    #[must_use]
    pub const fn from_raw(raw: u16) -> Option<Self> {
        Some(match raw {
            1 => Self::QueryDevice,
            2 => Self::QueryStats,
            3 => Self::SetGid,
            4 => Self::CreateEq,
            5 => Self::DestroyEq,
            6 => Self::AllocContext,
            7 => Self::FreeContext,
            8 => Self::AllocUar,
            9 => Self::FreeUar,
            10 => Self::AllocPd,
            11 => Self::FreePd,
            12 => Self::RegMr,
            13 => Self::DeregMr,
            14 => Self::CreateCq,
            15 => Self::DestroyCq,
            16 => Self::CreateQp,
            17 => Self::DestroyQp,
            18 => Self::ModifyQp,
            19 => Self::QueryQp,
            _ => return None,
        })
    }
}

/// Statuses of admin commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// No such opcode.
    BadOpcode = 1,
    /// A parameter is out of range, or a reserved byte is set; [`Completion::detail`] is its byte
    /// offset in the parameters (or in the buffer that they point to).
    BadParam = 2,
    /// The object's state does not allow this.
    BadState = 3,
    /// A table of the device is full.
    NoResource = 4,
    /// No such object.
    NotFound = 5,
    /// The object is in use by another one.
    Busy = 6,
    /// A guest address given cannot be reached.
    BadAddress = 7,
    /// An object of another context.
    Permission = 8,
    /// The device does not offer this.
    Unsupported = 9,
    /// A fault inside the device.
    Internal = 10,
}

impl Status {
    /// The status with this number.
    #[must_use]
    pub const fn from_raw(raw: u16) -> Option<Self> {
        Some(match raw {
            0 => Self::Ok,
            1 => Self::BadOpcode,
            2 => Self::BadParam,
            3 => Self::BadState,
            4 => Self::NoResource,
            5 => Self::NotFound,
            6 => Self::Busy,
            7 => Self::BadAddress,
            8 => Self::Permission,
            9 => Self::Unsupported,
            10 => Self::Internal,
            _ => return None,
        })
    }
}

/// An admin command.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct Command {
    /// An [`Opcode`].
    pub opcode: U16,
    /// Zero.
    pub flags: U16,
    /// Chosen by the driver, unique among its outstanding commands.
    pub id: U32,
    /// The parameter struct of the opcode.
    pub params: [u8; PARAMS_LEN],
}

/// An admin completion.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct Completion {
    /// From the command.
    pub id: U32,
    /// From the command.
    pub opcode: U16,
    /// A [`Status`].
    pub status: U16,
    /// The result struct of the opcode; zero unless the status is [`Status::Ok`].
    pub result: [u8; RESULT_LEN],
    /// With [`Status::BadParam`]: where.
    pub detail: U32,
    /// [`crate::stamp`] of the entry's index; stored last.
    pub stamp: U32,
}

/// A typed parameter struct: its opcode and its result.
pub trait Request: zerocopy::IntoBytes + zerocopy::FromBytes + zerocopy::Immutable {
    /// What the completion carries.
    type Result: zerocopy::FromBytes;
}

/// A ring or region of guest memory: pages of `1 << page_shift` bytes.
///
/// | `levels` | `table` is the guest address of |
/// | --- | --- |
/// | 0 | the memory itself, contiguous, aligned to the page size |
/// | 1 | a contiguous array of page addresses (8 bytes each) |
/// | 2 | a contiguous array of addresses of 4 KiB chunks, each holding 512 page addresses (the last chunk fewer) |
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Pages {
    /// See above.
    pub table: U64,
    /// log2 of the page size: 12 to 30.
    pub page_shift: u8,
    /// 0, 1 or 2.
    pub levels: u8,
    /// Zero.
    pub reserved: [u8; 6],
}

impl Pages {
    /// A description of pages; see the fields.
    #[must_use]
    pub const fn new(table: u64, page_shift: u8, levels: u8) -> Self {
        Self { table: U64::new(table), page_shift, levels, reserved: [0; 6] }
    }
}

/// Parameters of a command that has none.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NoParams {
    /// Zero.
    pub reserved: [U64; 7],
}

/// Parameters that are the number of an object.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ObjectId {
    /// The object.
    pub id: U32,
    /// Zero.
    pub reserved: [U32; 13],
}

impl ObjectId {
    /// Parameters that name object `id`.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self { id: U32::new(id), reserved: [U32::ZERO; 13] }
    }
}

/// Result that is the number of a new object.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ObjectResult {
    /// The object.
    pub id: U32,
    /// Zero.
    pub reserved: [U32; 11],
}

impl ObjectResult {
    /// A result that names object `id`.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self { id: U32::new(id), reserved: [U32::ZERO; 11] }
    }
}

/// Parameters of QUERY_DEVICE and QUERY_STATS.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QueryParams {
    /// Guest address of the buffer to fill, 8-byte aligned.
    pub addr: U64,
    /// Its length; the device fills no more, and a shorter struct than the driver's is zero
    /// at its end.
    pub len: U32,
    /// Zero.
    pub reserved: [U32; 11],
}

impl QueryParams {
    /// Parameters for a buffer of `len` bytes at guest address `addr`.
    #[must_use]
    pub const fn new(addr: u64, len: u32) -> Self {
        Self { addr: U64::new(addr), len: U32::new(len), reserved: [U32::ZERO; 11] }
    }
}

/// What the device can do. Counts are the true limits for one function.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceCaps {
    /// Version of the daemon: major, minor, patch in 16 bits each, from bit 32 down.
    pub fw_version: U64,
    /// Longest region in bytes.
    pub max_mr_size: U64,
    /// Page sizes of regions, a bit each (bit 12 = 4 KiB).
    pub page_sizes: U64,
    /// User contexts.
    pub max_contexts: U32,
    /// PDs.
    pub max_pd: U32,
    /// CQs.
    pub max_cq: U32,
    /// Entries of a CQ.
    pub max_cqe: U32,
    /// QPs.
    pub max_qp: U32,
    /// Work requests outstanding on a queue.
    pub max_wr: U32,
    /// Scatter/gather entries of a work request.
    pub max_sge: U32,
    /// Bytes of inline data.
    pub max_inline: U32,
    /// Regions.
    pub max_mr: U32,
    /// Completion event queues.
    pub max_eq: U32,
    /// Entries of the GID table.
    pub max_gid: U32,
    /// READs and atomics outstanding on a QP, either way.
    pub max_rd_atomic: U32,
    /// Longest message in bytes.
    pub max_message: U32,
    /// Port speed in Mbit/s, as reported to users.
    pub port_mbps: U32,
    /// Zero.
    pub reserved: [U32; 14],
}

/// Parameters of SET_GID.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SetGid {
    /// Index in the table.
    pub index: U16,
    /// VLAN id, or 0xffff for none.
    pub vlan: U16,
    /// One to set the entry, zero to clear it.
    pub valid: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// The GID.
    pub gid: [u8; 16],
    /// Source MAC.
    pub smac: [u8; 6],
    /// Zero.
    pub reserved2: [u8; 26],
}

impl SetGid {
    /// Sets entry `index`.
    #[must_use]
    pub fn set(index: u16, gid: [u8; 16], smac: [u8; 6], vlan: u16) -> Self {
        Self { index: index.into(), vlan: vlan.into(), valid: 1, gid, smac, ..Self::default() }
    }

    /// Clears entry `index`.
    #[must_use]
    pub fn clear(index: u16) -> Self {
        Self { index: index.into(), ..Self::default() }
    }
}

/// Parameters of CREATE_EQ: a completion event queue.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateEq {
    /// Memory of the ring.
    pub pages: Pages,
    /// MSI-X vector, 1 and up.
    pub vector: U16,
    /// log2 of the entries, 4 to [`crate::eq::LOG_SIZE_MAX`].
    pub log_size: u8,
    /// Zero.
    pub reserved: [u8; 5],
    /// Zero.
    pub reserved2: [U64; 4],
}

impl CreateEq {
    /// Parameters; see the fields.
    #[must_use]
    pub const fn new(pages: Pages, vector: u16, log_size: u8) -> Self {
        Self {
            pages,
            vector: U16::new(vector),
            log_size,
            reserved: [0; 5],
            reserved2: [U64::ZERO; 4],
        }
    }
}

/// Result of CREATE_EQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EqResult {
    /// The EQ.
    pub eqn: U32,
    /// Its slot in UAR 0.
    pub slot: U32,
    /// Zero.
    pub reserved: [U32; 10],
}

impl EqResult {
    /// A result; see the fields.
    #[must_use]
    pub const fn new(eqn: u32, slot: u32) -> Self {
        Self { eqn: U32::new(eqn), slot: U32::new(slot), reserved: [U32::ZERO; 10] }
    }
}

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

/// Parameters of CREATE_CQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateCq {
    /// Memory of the ring, zeroed by its owner.
    pub pages: Pages,
    /// The UAR in which the CQ gets its slot, and by it the context.
    pub uar: U32,
    /// The completion event queue for its events.
    pub eqn: U32,
    /// log2 of the entries, 0 to [`crate::cq::LOG_CQES_MAX`].
    pub log_size: u8,
    /// Zero.
    pub reserved: [u8; 31],
}

impl CreateCq {
    /// Parameters; see the fields.
    #[must_use]
    pub const fn new(uar: u32, eqn: u32, log_size: u8, pages: Pages) -> Self {
        Self { pages, uar: U32::new(uar), eqn: U32::new(eqn), log_size, reserved: [0; 31] }
    }
}

/// Result of CREATE_CQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CqResult {
    /// The CQ.
    pub cqn: U32,
    /// Its slot in the UAR.
    pub slot: U32,
    /// Zero.
    pub reserved: [U32; 10],
}

impl CqResult {
    /// A result; see the fields.
    #[must_use]
    pub const fn new(cqn: u32, slot: u32) -> Self {
        Self { cqn: U32::new(cqn), slot: U32::new(slot), reserved: [U32::ZERO; 10] }
    }
}

bitflags! {
    /// Bits of [`CreateQp::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QpFlags: u8 {
        /// The send queue lies in device memory: `sq` is zero, the device allocates it.
        const SQ_IN_DEVICE = 1 << 0;
        /// Every send work request is signaled.
        const SIGNAL_ALL = 1 << 1;
    }
}

/// Parameters of CREATE_QP. Both rings start zeroed at page offset 0; a ring of log size 0xff
/// does not exist.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateQp {
    /// Page table of the send queue, as [`Pages::table`].
    pub sq_table: U64,
    /// Page table of the receive queue.
    pub rq_table: U64,
    /// Page size and levels of both, as in [`Pages`].
    pub sq_page_shift: u8,
    /// See [`Pages::levels`].
    pub sq_levels: u8,
    /// See [`Pages::page_shift`].
    pub rq_page_shift: u8,
    /// See [`Pages::levels`].
    pub rq_levels: u8,
    /// log2 of the entries of the send queue, or [`NO_QUEUE`].
    pub sq_log_size: u8,
    /// log2 of the stride of the send queue: 6 to 9.
    pub sq_log_stride: u8,
    /// log2 of the entries of the receive queue, or [`NO_QUEUE`].
    pub rq_log_size: u8,
    /// log2 of the stride of the receive queue: 5 to 9.
    pub rq_log_stride: u8,
    /// The PD.
    pub pdn: U32,
    /// CQ of the send queue.
    pub send_cqn: U32,
    /// CQ of the receive queue.
    pub recv_cqn: U32,
    /// The UAR in which the QP gets its slot.
    pub uar: U32,
    /// A [`crate::qp::Type`].
    pub qp_type: u8,
    /// [`QpFlags`].
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 14],
}

/// A log size that says: there is no such queue.
pub const NO_QUEUE: u8 = 0xff;

/// Result of CREATE_QP.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QpResult {
    /// The QP.
    pub qpn: U32,
    /// Its slot in the UAR.
    pub slot: U32,
    /// With [`QpFlags::SQ_IN_DEVICE`]: offset of the send queue in BAR2, a multiple of
    /// [`crate::uar::SQ_MEMORY_UNIT`]; else zero.
    pub sq_offset: U64,
    /// Zero.
    pub reserved: [U64; 4],
}

impl QpResult {
    /// A result; see the fields.
    #[must_use]
    pub const fn new(qpn: u32, slot: u32, sq_offset: u64) -> Self {
        Self {
            qpn: U32::new(qpn),
            slot: U32::new(slot),
            sq_offset: U64::new(sq_offset),
            reserved: [U64::ZERO; 4],
        }
    }
}

/// Parameters of MODIFY_QP.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ModifyQp {
    /// Guest address of a [`crate::qp::Attr`], 8-byte aligned.
    pub attr_addr: U64,
    /// The QP.
    pub qpn: U32,
    /// [`crate::qp::AttrMask`].
    pub mask: U32,
    /// Zero.
    pub reserved: [U64; 5],
}

impl ModifyQp {
    /// Parameters; see the fields.
    #[must_use]
    pub const fn new(qpn: u32, mask: u32, attr_addr: u64) -> Self {
        Self {
            attr_addr: U64::new(attr_addr),
            qpn: U32::new(qpn),
            mask: U32::new(mask),
            reserved: [U64::ZERO; 5],
        }
    }
}

/// Parameters of QUERY_QP.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QueryQp {
    /// Guest address of the [`crate::qp::Attr`] to fill, 8-byte aligned.
    pub attr_addr: U64,
    /// The QP.
    pub qpn: U32,
    /// Zero.
    pub reserved: [U32; 11],
}

impl QueryQp {
    /// Parameters; see the fields.
    #[must_use]
    pub const fn new(qpn: u32, attr_addr: u64) -> Self {
        Self { attr_addr: U64::new(attr_addr), qpn: U32::new(qpn), reserved: [U32::ZERO; 11] }
    }
}

/// Counters of a function since its last reset. The kernel shows them as `hw_counters`, by the
/// field names.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Stats {
    pub send_wqes: U64,
    pub recv_wqes: U64,
    pub read_wqes: U64,
    pub write_wqes: U64,
    pub atomic_wqes: U64,
    pub bytes_sent: U64,
    pub bytes_received: U64,
    pub cqes: U64,
    pub completion_events: U64,
    pub interrupts: U64,
    pub rnr_nak_sent: U64,
    pub rnr_nak_received: U64,
    pub remote_access_errors: U64,
    pub remote_invalid_requests: U64,
    pub local_errors: U64,
    pub flushed_wqes: U64,
    pub retry_exceeded: U64,
    pub bad_doorbells: U64,
    pub cq_overflows: U64,
    pub kicks: U64,
    pub admin_commands: U64,
    pub admin_errors: U64,
}

/// Names of the fields of [`Stats`], in order.
pub const STAT_NAMES: [&str; size_of::<Stats>() / 8] = [
    "send_wqes",
    "recv_wqes",
    "read_wqes",
    "write_wqes",
    "atomic_wqes",
    "bytes_sent",
    "bytes_received",
    "cqes",
    "completion_events",
    "interrupts",
    "rnr_nak_sent",
    "rnr_nak_received",
    "remote_access_errors",
    "remote_invalid_requests",
    "local_errors",
    "flushed_wqes",
    "retry_exceeded",
    "bad_doorbells",
    "cq_overflows",
    "kicks",
    "admin_commands",
    "admin_errors",
];

macro_rules! requests {
    ($($params:ty => $result:ty,)*) => {
        $(
            const _: () = assert!(size_of::<$params>() == PARAMS_LEN);
            const _: () = assert!(size_of::<$result>() == RESULT_LEN);
            impl Request for $params {
                type Result = $result;
            }
        )*
    };
}

requests! {
    NoParams => ObjectResult,
    ObjectId => ObjectResult,
    QueryParams => ObjectResult,
    SetGid => ObjectResult,
    CreateEq => EqResult,
    RegMr => MrResult,
    CreateCq => CqResult,
    CreateQp => QpResult,
    ModifyQp => ObjectResult,
    QueryQp => ObjectResult,
}

const _: () = assert!(size_of::<Command>() == 64 && size_of::<Completion>() == 64);
const _: () = assert!(core::mem::offset_of!(Completion, stamp) == 60);
const _: () = assert!(size_of::<Pages>() == 16);
const _: () = assert!(size_of::<DeviceCaps>() == 136);
const _: () = assert!(size_of::<Stats>() == 176);
