//! Finds the headers of a UDP datagram or TCP segment in a frame, and reads and writes their fields
//! that differ between joined frames.

use std::ops::Range;

use crate::checksum::{fold, of_udp, sum};
use crate::ethernet::{self, EtherType, TAG_LEN};
use crate::ip::{Fault, Packet, Protocol, V4_LEN, V6_LEN};
use crate::transport::{self, ROCE_PORT, TCP_FLAGS, TCP_LENGTH, TCP_MAX, TCP_NUMBER, put, word};

/// Length of the longest headers that [`SegmentHeaders::find`] finds, with a VLAN tag.
pub const HEADERS_MAX: usize = ethernet::HEADER_LEN + TAG_LEN + V6_LEN + TCP_MAX;
/// The shortest data of a TCP segment to which others are joined (Linux, `TCP_MIN_MSS`, without the
/// longest options).
pub const SHORTEST: usize = 48;
/// Flags of TCP that only the last of several joined segments has: FIN and PSH.
pub const LAST: u8 = 0x01 | 0x08;
/// The flag that only the first one has: CWR.
pub const FIRST: u8 = 0x80;
/// Flags with which a segment is not joined here: SYN, RST, URG, ECE and CWR.
pub const ALONE: u8 = 0x02 | 0x04 | 0x20 | 0x40 | FIRST;

/// The headers of a datagram or segment that is not a fragment, over IPv4 without options or IPv6
/// without extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeaders {
    /// UDP or TCP.
    pub protocol: Protocol,
    /// Offset of the IP header.
    pub ip: usize,
    /// Offset of the header of UDP or TCP.
    pub transport: usize,
    /// Offset of the data.
    pub data: usize,
}

impl SegmentHeaders {
    /// Finds the headers of a frame.
    #[must_use]
    pub fn find(frame: &[u8]) -> Option<Self> {
        let kind = |at: usize| Some(EtherType(word(frame, at)?));
        let at = ethernet::HEADER_LEN - 2;
        let tagged = matches!(kind(at)?, EtherType::VLAN | EtherType::SERVICE_VLAN);
        let ip = ethernet::HEADER_LEN + if tagged { TAG_LEN } else { 0 };
        let packet = Packet::parse(kind(ip - 2)?, frame.get(ip..)?).ok()??;
        let other = matches!(packet.fault, Some(Fault::Version | Fault::HeaderLength));
        if other || packet.fault == Some(Fault::Options) || packet.is_fragment {
            return None;
        }
        let (protocol, transport) = (packet.protocol, ip + packet.header_bytes.len());
        let least = transport::header_len(protocol)?;
        let len = match protocol {
            Protocol::TCP => usize::from(frame.get(transport + TCP_LENGTH)? >> 4) * 4,
            _ => least,
        };
        let data = transport + len;
        let found = len >= least && frame.len() >= data;
        found.then_some(Self { protocol, ip, transport, data })
    }

    /// Returns whether the IP header is of version 4.
    #[must_use]
    pub const fn is_v4(self) -> bool {
        self.transport - self.ip == V4_LEN
    }

    /// Returns whether this is a datagram of UDP, and not a segment of TCP.
    #[must_use]
    pub fn is_udp(self) -> bool {
        self.protocol == Protocol::UDP
    }

    /// Returns the offset of the checksum in the header of UDP or TCP.
    #[must_use]
    pub const fn checksum(self) -> usize {
        transport::checksum(self.protocol)
    }

    /// Returns whether the datagram goes to the port of RoCE.
    #[must_use]
    pub fn is_roce(self, frame: &[u8]) -> bool {
        self.is_udp() && word(frame, self.transport + 2) == Some(ROCE_PORT)
    }

    /// Returns whether the frame has a VLAN tag.
    #[must_use]
    pub const fn is_tagged(self) -> bool {
        self.ip != ethernet::HEADER_LEN
    }

    /// Returns the identification of IPv4.
    #[must_use]
    pub fn id(self, frame: &[u8]) -> Option<u16> {
        if self.is_v4() { word(frame, self.ip + 4) } else { None }
    }

    /// Returns whether the lengths of IP and UDP are those of a frame of `len` bytes.
    #[must_use]
    pub fn fits(self, frame: &[u8], len: usize) -> bool {
        let (total, from) = self.total();
        let right = |at, from: usize| word(frame, at).is_some_and(|n| usize::from(n) + from == len);
        let udp = self.is_udp();
        right(total, from) && (!udp || right(self.transport + 4, self.transport))
    }

    /// Returns the place of the length of IP, and the offset from which it counts.
    const fn total(self) -> (usize, usize) {
        if self.is_v4() { (self.ip + 2, self.ip) } else { (self.ip + 4, self.transport) }
    }

    /// Writes the lengths of IP and UDP for a frame of `len` bytes. Returns none if the length is
    /// too large for the fields.
    pub fn set_len(self, headers: &mut [u8], len: usize) -> Option<()> {
        let (total, from) = self.total();
        put(headers, total, u16::try_from(len.checked_sub(from)?).ok()?)?;
        match self.protocol {
            Protocol::UDP => {
                let length = u16::try_from(len.checked_sub(self.transport)?).ok()?;
                put(headers, self.transport + 4, length)
            }
            _ => Some(()),
        }
    }

    /// Writes the identification of IPv4 and then the checksum of its header.
    pub fn set_id(self, headers: &mut [u8], id: u16) -> Option<()> {
        put(headers, self.ip + 4, id)?;
        let checksum = self.ip_checksum(headers)?;
        put(headers, self.ip + 10, checksum)
    }

    /// Computes the checksum of the header of IPv4, whatever checksum the header has.
    fn ip_checksum(self, headers: &[u8]) -> Option<u16> {
        let before = headers.get(self.ip..self.ip + 10)?;
        let after = headers.get(self.ip + 12..self.transport)?;
        Some(!fold(sum(before) + sum(after)))
    }

    /// Returns whether the checksum of the IP header is the one that [`Self::set_id`] writes. IPv6
    /// has none.
    #[must_use]
    pub fn is_ip_right(self, headers: &[u8]) -> bool {
        let has = word(headers, self.ip + 10);
        !self.is_v4() || has.is_some() && has == self.ip_checksum(headers)
    }

    /// Returns the number of the first byte of a TCP segment.
    #[must_use]
    pub fn number(self, headers: &[u8]) -> Option<u32> {
        let bytes = headers.get(self.transport + TCP_NUMBER..)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes))
    }

    /// Writes the number of the first byte of a TCP segment.
    pub fn set_number(self, headers: &mut [u8], number: u32) -> Option<()> {
        let field = headers.get_mut(self.transport + TCP_NUMBER..)?.first_chunk_mut()?;
        *field = number.to_be_bytes();
        Some(())
    }

    /// Returns the flags of a TCP segment.
    #[must_use]
    pub fn flags(self, headers: &[u8]) -> Option<u8> {
        headers.get(self.transport + TCP_FLAGS).copied()
    }

    /// Writes the flags of a TCP segment.
    pub fn set_flags(self, headers: &mut [u8], flags: u8) -> Option<()> {
        *headers.get_mut(self.transport + TCP_FLAGS)? = flags;
        Some(())
    }

    /// Writes a checksum of UDP or TCP.
    pub fn set_checksum(self, headers: &mut [u8], checksum: u16) -> Option<()> {
        put(headers, self.transport + self.checksum(), checksum)
    }

    /// Computes the checksum of UDP or TCP of a whole frame, and writes it.
    pub fn complete(self, frame: &mut [u8]) -> Option<()> {
        self.set_checksum(frame, 0)?;
        let sum = self.sum(frame)?;
        let checksum = if self.is_udp() { of_udp(sum) } else { !fold(sum) };
        self.set_checksum(frame, checksum)
    }

    /// Returns whether the checksum of UDP or TCP of a whole frame is right.
    #[must_use]
    pub fn is_right(self, frame: &[u8]) -> bool {
        self.sum(frame).is_some_and(|sum| fold(sum) == 0xffff)
    }

    fn sum(self, frame: &[u8]) -> Option<u64> {
        let pseudo = self.pseudo(frame, frame.len())?;
        Some(u64::from(pseudo) + sum(frame.get(self.transport..)?))
    }

    /// Returns the sum of the pseudo header of a frame of `len` bytes, with which the calculation
    /// of the checksum starts.
    #[must_use]
    pub fn pseudo(self, headers: &[u8], len: usize) -> Option<u16> {
        let addresses = if self.is_v4() { 12 } else { 8 };
        let sum = sum(headers.get(self.ip + addresses..self.transport)?);
        let length = u64::try_from(len.checked_sub(self.transport)?).ok()?;
        Some(fold(sum + u64::from(self.protocol.0) + length))
    }

    /// Returns the places of all fields that are equal in joined frames: all except the lengths,
    /// the identification, the checksums, and the number and flags of TCP.
    #[must_use]
    pub const fn constant(self) -> [Range<usize>; 6] {
        let Self { protocol, ip, transport, data } = self;
        let (first, middle, ports) = if self.is_v4() {
            (0..ip + 2, ip + 6..ip + 10, ip + 12..transport + 4)
        } else {
            (0..ip + 4, ip + 6..transport, transport..transport + 4)
        };
        let [acknowledged, window, options] = match protocol {
            Protocol::TCP => {
                let flags = transport + TCP_FLAGS;
                [transport + 8..flags, flags + 1..transport + 16, transport + 18..data]
            }
            _ => [data..data, data..data, data..data],
        };
        [first, middle, ports, acknowledged, window, options]
    }
}
