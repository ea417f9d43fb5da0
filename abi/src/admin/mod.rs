// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The admin queue: 64-byte commands, 64-byte completions, in rings of equal size.
//!
//! A command is an 8-byte head and 56 bytes of parameters, whose struct depends on the [`Opcode`].
//! Its completion carries 48 bytes of result. Many commands may be outstanding. They start in order
//! and may complete in any order; [`Submission::id`] matches a completion to its command. Larger
//! data is passed by the guest address of a buffer. Completions raise [`crate::pci::VECTOR_ASYNC`].
//!
//! [`command`] lists the commands, each with its parameters and its result. Bytes of the parameters
//! that a command does not use must be zero, or the command is refused. The rest of a result is
//! zero, too.
//!
//! Context 0 belongs to the kernel: it exists from ENABLE on and owns UAR 0. A PD, CQ or QP belongs
//! to the context named at its creation. Using objects of different contexts together gives
//! [`Status::Permission`]. Destroying an object that others use gives [`Status::Busy`].
//!
//! | module | what it holds |
//! | --- | --- |
//! | `query` | capabilities of the device, its GID table and its port |
//! | `memory` | regions and windows |
//! | `queues` | event queues, completion queues and QPs |
//! | `srq` | shared receive queues, and those of XRC |
//! | `faults` | rules for faults, for tests |
//! | `direct` | address ranges of direct transfers |
//! | `stats` | the counters of an adapter |
//! | `inspect` | records of objects, for debugging |
//! | [`fields`] | names and forms of the fields of these records |
//! | [`command`] | the commands as types |

use core::mem::offset_of;
use core::ops::Range;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::iscsi::{EndCommand, SetIscsi};
use crate::{
    ContextId, CountersId, Cqn, Eqn, FlowId, GuestAddr, Key, Pdn, Qpn, RangeNumber, Srqn, UarIndex,
    Xrcdn,
};

mod direct;
mod faults;
pub mod fields;
mod inspect;
mod memory;
mod query;
mod queues;
mod srq;
mod stats;

pub use direct::*;
pub use faults::*;
pub use inspect::*;
pub use memory::*;
pub use query::*;
pub use queues::*;
pub use srq::*;
pub use stats::*;

/// Number of bytes of parameters in a command.
pub const PARAMS_LEN: usize = 56;
/// Number of bytes of result in a completion.
pub const RESULT_LEN: usize = 48;

/// An admin command: its opcode, and the types of its parameters and its result.
pub trait Command {
    /// The command's number.
    const OPCODE: Opcode;
    /// The bytes between the fields of the parameters that must be zero.
    const RESERVED: Range<usize> = 0..0;
    /// The beginning of [`Submission::params`]; the rest is zero.
    type Params: FromBytes + IntoBytes + Immutable + KnownLayout;
    /// The beginning of [`Completion::result`]; the rest is zero.
    type Reply: FromBytes + IntoBytes + Immutable;
}

/// Declares the commands: opcode, parameters and result. `where` names a field of the parameters
/// that must be zero.
macro_rules! commands {
    ($(
        $(#[$about:meta])*
        $name:ident = $number:literal: $params:ty => $reply:ty $(, where $reserved:ident)?;
    )+) => {
        wire_enum! {
            /// Numbers of the admin commands.
            pub enum Opcode: u16 {
                $($(#[$about])* $name = $number,)+
            }
        }

        /// The admin commands as types.
        pub mod command {
            $($(#[$about])* #[derive(Clone, Copy, Debug)] pub struct $name;)+
        }

        $(
            const _: () = assert!(size_of::<$params>() <= PARAMS_LEN);
            const _: () = assert!(size_of::<$reply>() <= RESULT_LEN);

            impl Command for command::$name {
                const OPCODE: Opcode = Opcode::$name;
                $(const RESERVED: Range<usize> = {
                    let start = offset_of!($params, $reserved);
                    start..start + field_len(|params: &$params| &params.$reserved)
                };)?
                type Params = $params;
                type Reply = $reply;
            }
        )+
    };
}

/// Returns the number of bytes of a field.
const fn field_len<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

commands! {
    /// Fills a buffer with [`DeviceCaps`].
    QueryDevice = 1: QueryParams => ();
    /// Fills a buffer with [`Stats`].
    QueryStats = 2: QueryParams => ();
    /// Sets or clears an entry of the GID table.
    SetGid = 3: SetGid => (), where reserved;
    /// Creates a completion event queue.
    CreateEq = 4: CreateEq => EqResult;
    /// Destroys an event queue.
    DestroyEq = 5: Eqn => ();
    /// Creates a context.
    AllocContext = 6: () => ContextId;
    /// Frees a context.
    FreeContext = 7: ContextId => ();
    /// Allocates a UAR for a context.
    AllocUar = 8: ContextId => UarIndex;
    /// Frees a UAR.
    FreeUar = 9: UarIndex => ();
    /// Allocates a PD for a context.
    AllocPd = 10: ContextId => Pdn;
    /// Frees a PD.
    FreePd = 11: Pdn => ();
    /// Registers a region.
    RegMr = 12: RegMr => Key;
    /// Removes a region. For a region of ALLOC_MR, it uses only the index of the key.
    DeregMr = 13: Key => ();
    /// Creates a CQ.
    CreateCq = 14: CreateCq => CqResult, where reserved;
    /// Destroys a CQ.
    DestroyCq = 15: Cqn => ();
    /// Creates a QP.
    CreateQp = 16: CreateQp => QpResult;
    /// Destroys a QP.
    DestroyQp = 17: Qpn => ();
    /// Sets attributes of a QP.
    ModifyQp = 18: ModifyQp => ();
    /// Fills a buffer with [`crate::qp::Attr`].
    QueryQp = 19: QueryQp => ();
    /// Changes a region.
    ReregMr = 20: ReregMr => Key;
    /// Creates an invalid region, which REG_MR work requests make valid.
    AllocMr = 21: AllocMr => Key;
    /// Creates a window that is not bound.
    AllocMw = 22: AllocMw => Key;
    /// Removes a window. It uses only the index of the key.
    DeallocMw = 23: Key => ();
    /// Sets the interrupt moderation of a CQ.
    ModifyCq = 24: ModifyCq => ();
    /// Creates an SRQ.
    CreateSrq = 25: CreateSrq => SrqResult;
    /// Destroys an SRQ.
    DestroySrq = 26: Srqn => ();
    /// Arms the limit event of an SRQ.
    ModifySrq = 27: ModifySrq => ();
    /// Returns the state of an SRQ.
    QuerySrq = 28: Srqn => SrqStatus;
    /// Creates an XRC domain.
    AllocXrcd = 29: () => Xrcdn;
    /// Frees an XRC domain.
    FreeXrcd = 30: Xrcdn => ();
    /// Continues a CQ in another ring.
    ResizeCq = 31: ResizeCq => ResizeCqResult;
    /// Makes a QP a member of a multicast group.
    AttachMcast = 33: Mcast => ();
    /// Removes a QP from a multicast group.
    DetachMcast = 34: Mcast => ();
    /// Sets the MTU of the port, and opens or closes it.
    SetPort = 35: SetPort => ();
    /// Fills a buffer with records of objects.
    Inspect = 36: Inspect => InspectResult;
    /// Takes a TCP connection over. From then on the messages of an RC QP travel in it.
    OpenConnection = 37: OpenConnection => (), where reserved;
    /// Fills a buffer with [`crate::connection::ConnectionStatus`].
    QueryConnection = 38: QueryConnection => ();
    /// Programs an address range for a transfer.
    ArmRange = 39: ArmRange => (), where reserved;
    /// Ends the transfer of an address range. Its TRANSFER, if there is one, is refused.
    EndRange = 40: RangeNumber => ();
    /// Returns the registers of an address range.
    QueryRange = 41: RangeNumber => RangeRegisters;
    /// Changes the MACs of the frames of a TCP connection.
    MoveConnection = 42: MoveConnection => ();
    /// Adds a flow rule for a QP of raw packets.
    CreateFlow = 43: CreateFlow => FlowId, where reserved;
    /// Removes a flow rule.
    DestroyFlow = 44: FlowId => ();
    /// Begins to move a TCP connection from a TOE QP to an RC QP, whose messages travel in it from
    /// then on.
    StartRdma = 48: StartRdma => ();
    /// Closes a TCP connection, or cleans up after it.
    CloseConnection = 49: CloseConnection => CloseResult, where reserved;
    /// Sets the place of the address ranges in BAR4, and the adapter's packet memory.
    SetWindow = 50: SetWindow => (), where reserved;
    /// Returns what SET_WINDOW has set, and how many blocks are in use.
    QueryWindow = 51: () => WindowRegisters;
    /// Ends all access by the key of a region, and by windows that are bound to it. The key stays
    /// in use until DEREG_MR. For devices with [`DeviceFeatures::REVOKES`].
    RevokeMr = 52: Key => ();
    /// Lets the stream of a TOE QP consist of iSCSI PDUs.
    SetIscsi = 53: SetIscsi => (), where reserved;
    /// Ends a command without a response: its key is not valid, and its data is not accessed any
    /// more.
    EndCommand = 54: EndCommand => ();
    /// Adds a rule for faults of the function, or removes rules.
    EditFaults = 57: EditFaults => FaultEdited, where reserved;
    /// Fills a buffer with lines about the rules that EDIT_FAULTS has added.
    ListFaults = 58: ListFaults => FaultLines;
    /// Makes pages of a region present, and returns a request for pages.
    MapPages = 59: MapPages => PageRequest;
    /// Makes pages of a region absent.
    UnmapPages = 60: UnmapPages => (), where reserved;
    /// Continues an SRQ in another ring.
    ResizeSrq = 61: ResizeSrq => ();
    /// Creates a set of counters.
    CreateCounters = 62: () => CountersId;
    /// Destroys a set of counters.
    DestroyCounters = 63: CountersId => ();
    /// Makes a set of counters count the work of a QP.
    BindCounters = 64: BindCounters => ();
    /// Fills a buffer with the [`Stats`] of a set of counters.
    QueryCounters = 65: QueryCounters => ();
    /// Switches an optional counter on or off.
    SwitchCounter = 66: SwitchCounter => ();
    /// Fills a buffer with [`OptionalStats`]. Counters that are off are zero.
    QueryOptional = 67: QueryParams => ();
}

wire_enum! {
    /// Statuses of admin commands.
    pub enum Status: u16 {
        /// The command has succeeded.
        Ok = 0,
        /// The opcode does not exist.
        BadOpcode = 1,
        /// A parameter is out of range, or a reserved byte is not zero. [`Completion::detail`] is
        /// its byte offset in the parameters, or in the buffer that they refer to.
        BadParam = 2,
        /// The object's state does not allow this.
        BadState = 3,
        /// A table of the device is full.
        NoResource = 4,
        /// The object does not exist.
        NotFound = 5,
        /// The object is in use by another one.
        Busy = 6,
        /// A guest address cannot be accessed.
        BadAddress = 7,
        /// The object belongs to another context.
        Permission = 8,
        /// The device does not offer this.
        Unsupported = 9,
        /// An internal error of the device.
        Internal = 10,
    }
}

impl Status {
    /// Returns the number of the error that a driver returns for the status (errno.h).
    #[must_use]
    pub const fn errno(self) -> u8 {
        match self {
            Self::NoResource => 12,
            Self::NotFound => 2,
            Self::Busy => 16,
            Self::BadAddress => 14,
            Self::Permission => 1,
            Self::Unsupported | Self::BadOpcode => 95,
            Self::BadParam | Self::BadState => 22,
            Self::Ok | Self::Internal => 5,
        }
    }
}

/// An entry of the submission ring.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct Submission {
    /// The number of the command: an [`Opcode`].
    pub opcode: U16,
    /// Zero.
    pub flags: U16,
    /// Chosen by the driver, unique among its outstanding commands.
    pub id: U32,
    /// The command's [`Command::Params`].
    pub params: [u8; PARAMS_LEN],
}

/// An entry of the completion ring.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct Completion {
    /// The `id` of the command.
    pub id: U32,
    /// The opcode of the command.
    pub opcode: U16,
    /// The result of the command: a [`Status`].
    pub status: U16,
    /// The command's [`Command::Reply`]; zero unless the status is [`Status::Ok`].
    pub result: [u8; RESULT_LEN],
    /// With [`Status::BadParam`], the offset of the parameter.
    pub detail: U32,
    /// [`crate::stamp`] of the entry's index; stored last.
    pub stamp: U32,
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
    /// The guest address, as in the table above.
    pub table: GuestAddr,
    /// log2 of the page size: 12 to 30.
    pub page_shift: u8,
    /// 0, 1 or 2.
    pub levels: u8,
    /// Zero.
    pub reserved: [u8; 6],
}

impl Pages {
    /// Returns a description of pages with these values.
    #[must_use]
    pub fn new(table: impl Into<GuestAddr>, page_shift: u8, levels: u8) -> Self {
        Self { table: table.into(), page_shift, levels, reserved: [0; 6] }
    }
}

const _: () = assert!(size_of::<Submission>() == 64 && size_of::<Completion>() == 64);
const _: () = assert!(offset_of!(Completion, stamp) == 60);
const _: () = assert!(size_of::<Pages>() == 16);
const _: () = assert!(size_of::<DeviceCaps>() == 136);
