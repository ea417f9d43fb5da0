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
//! | REG_MR / REREG_MR / DEREG_MR | [`RegMr`] / [`ReregMr`] / [`ObjectId`] (key) | [`MrResult`] / [`MrResult`] / — |
//! | ALLOC_MR | [`AllocMr`] | [`MrResult`] |
//! | ALLOC_MW / DEALLOC_MW | [`AllocMw`] / [`ObjectId`] (key) | [`MrResult`] / — |
//! | CREATE_CQ / DESTROY_CQ | [`CreateCq`] / [`ObjectId`] | [`CqResult`] / — |
//! | MODIFY_CQ | [`ModifyCq`] | — |
//! | CREATE_SRQ / DESTROY_SRQ | [`CreateSrq`] / [`ObjectId`] | [`SrqResult`] / — |
//! | MODIFY_SRQ / QUERY_SRQ | [`ModifySrq`] / [`QuerySrq`] | — / [`SrqStatus`] |
//! | ALLOC_XRCD / FREE_XRCD | [`NoParams`] / [`ObjectId`] | [`ObjectResult`] / — |
//! | RESIZE_CQ | [`ResizeCq`] | [`ResizeCqResult`] |
//! | CREATE_QP / DESTROY_QP | [`CreateQp`] / [`ObjectId`] | [`QpResult`] / — |
//! | MODIFY_QP / QUERY_QP | [`ModifyQp`] / [`QueryQp`] | — |
//! | SET_PORT | [`SetPort`] | — |
//! | INSPECT | [`Inspect`] → records | [`InspectResult`] |
//! | ATTACH_MCAST / DETACH_MCAST | [`Mcast`] | — |
//!
//! Context 0 is the kernel's own: it exists from ENABLE on and owns UAR 0. A PD, CQ or QP
//! belongs to the context named at its creation, and objects of different contexts do not mix:
//! [`Status::Permission`]. Destroying an object that others use gives [`Status::Busy`].

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod inspect;
mod memory;
mod query;
mod queues;
mod srq;
mod stats;

pub use inspect::*;
pub use memory::*;
pub use query::*;
pub use queues::*;
pub use srq::*;
pub use stats::*;

/// Bytes of parameters in a command.
pub const PARAMS_LEN: usize = 56;
/// Bytes of result in a completion.
pub const RESULT_LEN: usize = 48;

wire_enum! {
    /// Admin commands.
    #[allow(missing_docs)]
    pub enum Opcode: u16 {
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
        ReregMr = 20,
        AllocMr = 21,
        AllocMw = 22,
        DeallocMw = 23,
        ModifyCq = 24,
        CreateSrq = 25,
        DestroySrq = 26,
        ModifySrq = 27,
        QuerySrq = 28,
        AllocXrcd = 29,
        FreeXrcd = 30,
        ResizeCq = 31,
        AttachMcast = 33,
        DetachMcast = 34,
        SetPort = 35,
        Inspect = 36,
    }
}

wire_enum! {
    /// Statuses of admin commands.
    pub enum Status: u16 {
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
    ReregMr => MrResult,
    AllocMr => MrResult,
    AllocMw => MrResult,
    CreateCq => CqResult,
    ModifyCq => ObjectResult,
    CreateSrq => SrqResult,
    ModifySrq => ObjectResult,
    QuerySrq => SrqStatus,
    ResizeCq => ResizeCqResult,
    CreateQp => QpResult,
    ModifyQp => ObjectResult,
    QueryQp => ObjectResult,
    Mcast => ObjectResult,
    SetPort => ObjectResult,
    Inspect => InspectResult,
}

const _: () = assert!(size_of::<Command>() == 64 && size_of::<Completion>() == 64);
const _: () = assert!(core::mem::offset_of!(Completion, stamp) == 60);
const _: () = assert!(size_of::<Pages>() == 16);
const _: () = assert!(size_of::<DeviceCaps>() == 136);
