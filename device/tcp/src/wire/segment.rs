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
    /// The number after the last byte.
    pub end: SeqNum,
}

/// The options that a connection supports after its handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The option of timestamps (RFC 7323).
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
    /// The options after the header.
    pub options: Options,
}

/// A received segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The TCP header.
    pub header: Header,
    /// The bytes.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Returns the segments of at most `len` bytes that were joined to this one.
    pub fn cut(&self, len: usize) -> impl Iterator<Item = Self> + use<'a> {
        let Self { header, payload } = self.clone();
        let pieces = payload.chunks(len.max(1));
        let last = pieces.len().saturating_sub(1);
        (0u32..).zip(pieces).map(move |(number, payload)| {
            let mut header = header.clone();
            // CAST: a segment is shorter than 2¹⁶ bytes.
            header.seq = header.seq.plus(number * len as u32);
            // As the kernel does: only the last one has these flags.
            if number as usize != last {
                header.flags -= Flags::FIN | Flags::PSH;
            }
            Segment { header, payload }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_segment_is_cut_into_those_that_were_joined() {
        let flags = Flags::ACK | Flags::PSH | Flags::FIN;
        let header = Header { seq: SeqNum(u32::MAX - 3), flags, ..Header::default() };
        let bytes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        let whole = Segment { header, payload: &bytes };
        let pieces: Vec<_> = whole
            .cut(4)
            .map(|piece| (piece.header.seq.0, piece.header.flags, piece.payload))
            .collect();
        let first = u32::MAX - 3;
        assert_eq!(
            pieces,
            [
                (first, Flags::ACK, &bytes[..4]),
                (0, Flags::ACK, &bytes[4..8]),
                (4, flags, &bytes[8..])
            ]
        );
        assert!(whole.cut(10).eq([whole.clone()]));
        assert_eq!(whole.cut(0).count(), 10);
    }
}
