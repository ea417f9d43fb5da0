// SPDX-License-Identifier: GPL-2.0 OR MIT
//! TCP connections that the adapter takes over from the guest's kernel, for the iWARP personality.

use zerocopy::little_endian::{U16, U32};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most bytes of private data in a start frame (RFC 5044, 7.1.1).
pub const PRIVATE_MAX: usize = 512;

wire_enum! {
    /// The end of a connection that sends the first start frame, or answers it.
    pub enum Role: u8 {
        /// It sends the request.
        Initiator = 1,
        /// It sends the reply.
        Responder = 2,
    }
}

bitflags::bitflags! {
    /// What both ends of a TCP connection have agreed on, and the form of its addresses.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ConnectionFlags: u8 {
        /// The addresses are of IPv6; else of IPv4, in the first four bytes.
        const IPV6 = 1;
        /// The peer permits selective acknowledgements.
        const SACK = 2;
        /// Timestamps (RFC 7323).
        const TIMESTAMPS = 4;
        /// The unit of the own timestamps is a microsecond; else a millisecond.
        const MICROSECONDS = 8;
        /// Frames have a VLAN tag.
        const VLAN = 16;
    }
}

/// The state of an established TCP connection, in which nothing is unacknowledged and nothing is
/// unread, and the attributes of the stream that begins with the next byte.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Connection {
    /// A [`Role`].
    pub role: u8,
    /// [`ConnectionFlags`].
    pub flags: u8,
    /// The VLAN tag, with its priority.
    pub vlan: U16,
    /// MAC of the next station on the way to the peer.
    pub dmac: [u8; 6],
    /// Traffic class, or type of service.
    pub traffic_class: u8,
    /// Hop limit, or time to live.
    pub hop_limit: u8,
    /// The own address.
    pub local: [u8; 16],
    /// The peer's address.
    pub remote: [u8; 16],
    /// The own port.
    pub local_port: U16,
    /// The peer's port.
    pub remote_port: U16,
    /// The sequence number of the next byte to send.
    pub send_next: U32,
    /// The sequence number of the next byte to receive.
    pub receive_next: U32,
    /// Bytes that the peer allows from `send_next` on.
    pub send_window: U32,
    /// The largest window that the peer has allowed.
    pub max_send_window: U32,
    /// Bytes that the peer was promised from `receive_next` on.
    pub receive_window: U32,
    /// The scale of the windows that the peer sends.
    pub send_scale: u8,
    /// The scale of the windows that are sent to the peer.
    pub receive_scale: u8,
    /// Bytes of TCP payload and options in a segment.
    pub mss: U16,
    /// The value of the next timestamp to send.
    pub timestamp: U32,
    /// The peer's newest timestamp.
    pub recent_timestamp: U32,
    /// READs and atomics that the adapter serves at a time.
    pub ird: U16,
    /// READs and atomics that the adapter has outstanding.
    pub ord: U16,
    /// Bytes of `private`.
    pub private_len: U16,
    /// Zero.
    pub reserved: [u8; 2],
    /// Private data of the own start frame.
    pub private: [u8; PRIVATE_MAX],
}

const _: () = assert!(size_of::<Connection>() == 600);
