// SPDX-License-Identifier: GPL-2.0 OR MIT
//! TCP connections that the adapter takes over from the guest's kernel, for the iWARP personality.
//! They carry RDMA messages, or the bytes of a [`crate::qp::Type::Toe`] QP.
//!
//! The driver makes a connection with a socket of the kernel. If it is the responder, it also reads
//! the request of the other end. OPEN_CONNECTION then passes the connection to the adapter, which
//! sends the start frames. Each later change raises an event
//! ([`crate::eq::Kind::ConnectionChanged`]), and QUERY_CONNECTION returns the new state.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::GuestAddr;

/// Maximum number of bytes of private data in a start frame (RFC 5044, 7.1.1).
pub const PRIVATE_MAX: usize = 512;
/// Number of bytes of a start frame before its private data.
pub const START_HEADER: usize = 20;
/// Maximum number of bytes of a start frame.
pub const START_MAX: usize = START_HEADER + PRIVATE_MAX;

wire_enum! {
    /// The role of this end: it sends the first start frame, or answers it.
    pub enum Role: u8 {
        /// This end sends the request.
        Initiator = 1,
        /// This end sends the reply.
        Responder = 2,
        /// There are no start frames, and no messages: the connection is for a
        /// [`crate::qp::Type::Toe`] QP. A [`Received`] follows the [`Connection`] in memory.
        Stream = 3,
    }
}

bitflags! {
    /// Options that both ends of a TCP connection have negotiated, and the form of its addresses.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ConnectionFlags: u8 {
        /// The addresses are IPv6 addresses. Otherwise they are IPv4 addresses in the first four
        /// bytes.
        const IPV6 = 1;
        /// The peer permits selective acknowledgements.
        const SACK = 2;
        /// Timestamps (RFC 7323).
        const TIMESTAMPS = 4;
        /// The unit of the local timestamps is a microsecond; otherwise it is a millisecond.
        const MICROSECONDS = 8;
        /// Frames have a VLAN tag.
        const VLAN = 16;
        /// The peer has closed its direction, and [`Connection::receive_next`] is the number after
        /// its end. Only of a connection with the role [`Role::Stream`].
        const PEER_CLOSED = 32;
    }
}

/// The state of an established TCP connection, in which nothing is unacknowledged and no received
/// byte is unread, and the attributes of the stream that begins with the next byte.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Connection {
    /// The role of this end: a [`Role`].
    pub role: u8,
    /// [`ConnectionFlags`].
    pub flags: u8,
    /// The VLAN tag, with its priority.
    pub vlan: U16,
    /// MAC of the local interface.
    pub smac: [u8; 6],
    /// MAC of the next hop on the path to the peer.
    pub dmac: [u8; 6],
    /// Traffic class, or type of service.
    pub traffic_class: u8,
    /// Hop limit, or time to live.
    pub hop_limit: u8,
    /// The local address.
    pub local: [u8; 16],
    /// The peer's address.
    pub remote: [u8; 16],
    /// The TCP port of the guest's end.
    pub local_port: U16,
    /// The peer's port.
    pub remote_port: U16,
    /// The sequence number of the next byte to send.
    pub send_next: U32,
    /// The sequence number of the next byte to receive.
    pub receive_next: U32,
    /// Number of bytes from `send_next` on that the peer allows.
    pub send_window: U32,
    /// The largest window that the peer has allowed.
    pub max_send_window: U32,
    /// Number of bytes from `receive_next` on that were promised to the peer.
    pub receive_window: U32,
    /// The window scale of the peer.
    pub send_scale: u8,
    /// The window scale of this end.
    pub receive_scale: u8,
    /// Number of bytes of TCP payload and options in a segment.
    pub mss: U16,
    /// The value of the next timestamp to send.
    pub timestamp: U32,
    /// The peer's newest timestamp.
    pub recent_timestamp: U32,
    /// Maximum number of READs and atomics of the peer that the adapter serves at a time.
    pub ird: U16,
    /// Maximum number of outstanding READs and atomics of the adapter.
    pub ord: U16,
    /// Bytes of `private`.
    pub private_len: U16,
    /// Bytes of `request`; zero for an initiator.
    pub request_len: U16,
    /// Private data of the local start frame.
    pub private: [u8; PRIVATE_MAX],
    /// The start frame that the responder has received.
    pub request: [u8; START_MAX],
    /// Zero.
    pub reserved: [u8; 6],
}

const _: () = assert!(size_of::<Connection>() == 1144);

/// The word for marks ([`crate::doorbell::Doorbell::mark`]) of a [`crate::qp::Type::Toe`] QP whose
/// changes complete the receive in progress with the bytes that it has. The doorbell is rung after
/// each change. A receive without bytes stays.
pub const RELEASE_WORD: u32 = 0;

/// Maximum number of bytes that the guest's kernel had received before a takeover.
pub const RECEIVED_MAX: u32 = 256 << 10;

/// The bytes that the guest's kernel has received, acknowledged and not delivered to its program.
/// They precede [`Connection::receive_next`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Received {
    /// Their address. It may be zero if there are none.
    pub addr: GuestAddr,
    /// Their number, at most [`RECEIVED_MAX`].
    pub len: U32,
    /// Zero.
    pub reserved: U32,
}

const _: () = assert!(size_of::<Received>() == 16);

bitflags! {
    /// Properties of the RDMA messages that begin on a connection ([`crate::admin::StartRdma`]).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct StartFlags: u32 {
        /// Messages have CRCs in both directions.
        const CRC = 1;
        /// The peer sends the first message. This end sends none before it has arrived.
        const PEER_FIRST = 2;
        /// Messages to the peer have markers (RFC 5044, 4.3).
        const SEND_MARKERS = 4;
        /// Messages of the peer have markers.
        const RECEIVE_MARKERS = 8;
    }
}

wire_enum! {
    /// The stage of a connection. It never decreases.
    pub enum Stage: u8 {
        /// The start frames are being exchanged.
        Opening = 1,
        /// Messages are exchanged. An initiator has the peer's reply, and its private data.
        Open = 2,
        /// The peer has closed its direction, and the adapter closes the other one.
        Closing = 3,
        /// No more messages are exchanged. The QP is in the error state.
        Closed = 4,
        /// TCP has ended, too. No more frames of the connection are expected.
        Gone = 5,
    }
}

wire_enum! {
    /// The reason for the end of a connection.
    pub enum Ending: u8 {
        /// The connection has not ended.
        None = 0,
        /// The peer's reply rejected it. There may be private data.
        Rejected = 1,
        /// A start frame is malformed, or the negotiation has failed.
        Refused = 2,
        /// The peer has not answered in time.
        TimedOut = 3,
        /// The peer has reset it.
        Reset = 4,
        /// Both ends have closed it, with no work request left.
        Graceful = 5,
        /// The peer has closed it while messages were outstanding, or an error ended it.
        Abortive = 6,
        /// A Terminate was sent.
        TerminateSent = 7,
        /// A Terminate was received.
        TerminateReceived = 8,
        /// The driver has ended it.
        Local = 9,
        /// An error occurred while it was being closed: a work request, a message or a Terminate
        /// came, or TCP failed.
        BadClose = 10,
    }
}

wire_enum! {
    /// The state of the messages of a connection: the QP's state in the RDMA verbs over TCP.
    pub enum RdmaState: u8 {
        /// There are none, or both ends have closed, with no work request left.
        Idle = 0,
        /// Messages are exchanged.
        Rts = 1,
        /// This end has closed its direction, with no work request left.
        Closing = 2,
        /// A Terminate was sent or received, and TCP is being closed.
        Terminate = 3,
        /// The messages have ended with an error.
        Error = 4,
    }
}

bitflags! {
    /// Events of a connection. Each of them raises
    /// [`crate::eq::Kind::ConnectionChanged`] when it happens for the first time, in any state.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ConnectionEvents: u16 {
        /// The peer has closed its direction (FIN).
        const GRACEFUL_DISCONNECT = 1;
        /// TCP has ended abortively: a reset by either end, or no answer.
        const ABORTIVE_DISCONNECT = 2;
        /// TCP is closed on both sides, without an error.
        const CLOSED = 4;
        /// An error occurred while it was being closed without one.
        const BAD_CLOSE = 8;
        /// A Terminate was sent.
        const TERMINATE_SENT = 16;
        /// A Terminate was received.
        const TERMINATE_RECEIVED = 32;
    }
}

wire_enum! {
    /// The tasks of CLOSE_CONNECTION.
    pub enum Closing: u8 {
        /// Closes the local direction (FIN). Refused with [`crate::admin::Status::Busy`] if any
        /// work request is outstanding.
        Graceful = 1,
        /// Resets the connection.
        Abortive = 2,
        /// Takes the connection, which is closed on both sides or has ended, off the adapter, so
        /// that its addresses are free.
        Release = 3,
        /// Makes a QP in the error state idle (RESET) if all of its work requests are flushed.
        Idle = 4,
        /// As [`Idle`](Self::Idle), but fails at once if work requests are not yet flushed.
        IdleNow = 5,
    }
}

wire_enum! {
    /// The result of CLOSE_CONNECTION.
    pub enum Closed: u8 {
        /// The task is done, or, for [`Closing::Graceful`] and [`Closing::Abortive`], has begun.
        Done = 0,
        /// The task is not possible yet. The caller asks again.
        Pending = 1,
        /// The task has taken too long. The caller destroys the QP.
        Aborted = 2,
    }
}

/// The state of a connection, which QUERY_CONNECTION returns.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConnectionStatus {
    /// The stage of the connection: a [`Stage`].
    pub stage: u8,
    /// The reason for the end: an [`Ending`].
    pub ending: u8,
    /// One if it has been in [`Stage::Open`].
    pub was_open: u8,
    /// An [`RdmaState`].
    pub state: u8,
    /// The negotiated maximum number of READs and atomics of the peer that the adapter serves at a
    /// time.
    pub ird: U16,
    /// The negotiated maximum number of outstanding READs and atomics of the adapter.
    pub ord: U16,
    /// Bytes of `private`.
    pub private_len: U16,
    /// [`ConnectionEvents`].
    pub events: U16,
    /// Zero.
    pub reserved: [u8; 4],
    /// Private data of the peer's start frame.
    pub private: [u8; PRIVATE_MAX],
}

impl Default for ConnectionStatus {
    fn default() -> Self {
        zerocopy::FromZeros::new_zeroed()
    }
}

const _: () = assert!(size_of::<ConnectionStatus>() == 528);
