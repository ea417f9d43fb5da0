//! The parts of the headers of UDP (RFC 768) and TCP (RFC 9293) that are read and written in frames
//! on their way.

use crate::ip::Protocol;

/// Bytes of a UDP header.
pub const UDP_LEN: usize = 8;
/// Offset of the length in a UDP header.
pub const UDP_LENGTH: usize = 4;
/// The UDP port of RoCE v2, in both directions (IBTA annex A17).
pub const ROCE_PORT: u16 = 4791;
/// Bytes of a TCP header without options.
pub const TCP_LEN: usize = 20;
/// Bytes of the longest TCP header.
pub const TCP_MAX: usize = 60;
/// Offset of the number of the first byte in a TCP header.
pub const TCP_NUMBER: usize = 4;
/// Offset of the length of the header in a TCP header: the upper four bits, in words.
pub const TCP_LENGTH: usize = 12;
/// Offset of the flags in a TCP header.
pub const TCP_FLAGS: usize = 13;

/// Returns the length of the shortest header of UDP or TCP, or `None` for other protocols.
#[must_use]
pub const fn header_len(protocol: Protocol) -> Option<usize> {
    match protocol {
        Protocol::UDP => Some(UDP_LEN),
        Protocol::TCP => Some(TCP_LEN),
        _ => None,
    }
}

/// Returns the offset of the checksum in a header of TCP, or in one of UDP.
#[must_use]
pub const fn checksum(protocol: Protocol) -> usize {
    match protocol {
        Protocol::TCP => 16,
        _ => 6,
    }
}

/// Reads a 16-bit number.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

/// Writes a 16-bit number.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut()? = value.to_be_bytes();
    Some(())
}
