//! The header of a segment with its options, as plain data.

use arrayvec::ArrayVec;
use bitflags::bitflags;

use crate::seq::SeqNum;

bitflags! {
    /// The control bits of a segment (RFC 9293, 3.1; RFC 3168).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u8 {
        /// The sender has sent its last byte.
        const FIN = 0x01;
        /// The segment synchronizes the sequence numbers.
        const SYN = 0x02;
        /// The sender resets the connection.
        const RST = 0x04;
        /// The receiver should not wait for more bytes.
        const PSH = 0x08;
        /// The acknowledgement number is valid.
        const ACK = 0x10;
        /// There are urgent bytes. The flag is ignored.
        const URG = 0x20;
        /// The sender has received a congestion mark.
        const ECE = 0x40;
        /// The sender has reacted to a congestion mark.
        const CWR = 0x80;
        const _ = !0;
    }
}

/// The option "timestamps" (RFC 7323, 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// The time of the sender's clock.
    pub value: u32,
    /// The newest time that the sender has received.
    pub echo: u32,
}

/// A block of bytes that have arrived out of order (RFC 2018, 3), or twice (RFC 2883).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// The number of the first byte.
    pub start: SeqNum,
    /// The number behind the last byte.
    pub end: SeqNum,
}

/// The options that a connection supports after its handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// Blocks that have arrived: at most four, or three with timestamps.
    pub sack: ArrayVec<SackBlock, 4>,
}

/// The header of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The number of the first byte.
    pub seq: SeqNum,
    /// The number of the next byte that the sender expects.
    pub ack: SeqNum,
    /// The control bits.
    pub flags: Flags,
    /// The window of the sender, in units of its scale.
    pub window: u16,
    /// The options.
    pub options: Options,
}

/// A received segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The header.
    pub header: Header,
    /// The bytes.
    pub payload: &'a [u8],
}
