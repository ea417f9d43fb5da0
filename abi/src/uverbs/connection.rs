// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Connections of queue pairs of iWARP and of TCP streams: their methods.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A method of queue pairs: an [`AttachReq`].
pub const METHOD_ATTACH: u16 = (1 << 12) + 1;
/// Attribute of [`METHOD_ATTACH`]: the queue pair.
pub const ATTR_ATTACH_QP: u16 = (1 << 12) + 2;
/// A method of queue pairs: a [`StartReq`].
pub const METHOD_START: u16 = (1 << 12) + 4;
/// Attribute of [`METHOD_START`]: the queue pair that has the connection.
pub const ATTR_START_FROM: u16 = (1 << 12) + 2;
/// Attribute of [`METHOD_START`]: the queue pair that gets it.
pub const ATTR_START_TO: u16 = ATTR_START_FROM + 1;
/// A method of queue pairs: a [`ConnectionReq`], answered by a [`ConnectionResp`].
pub const METHOD_CONNECTION: u16 = (1 << 12) + 5;
/// Attribute of [`METHOD_CONNECTION`]: the queue pair.
pub const ATTR_CONNECTION_QP: u16 = (1 << 12) + 2;

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
    /// The address of these bytes in the process.
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

const _: () = assert!(size_of::<AttachReq>() == 16 && size_of::<StartReq>() == 24);
const _: () = assert!(size_of::<ConnectionReq>() == 16 && size_of::<ConnectionResp>() == 16);
