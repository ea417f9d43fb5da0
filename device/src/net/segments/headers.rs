//! Finds the headers of a UDP datagram in a frame, and reads and writes their fields that differ
//! between joined packets.

use vrnic_roce::wire::frame::{ETHERNET_LEN, UDP_LEN, UDP_PORT};
use vrnic_roce::wire::network::{IPV4_LEN, IPV6_LEN};

use crate::net::checksum::{fold, sum};

/// Protocol number of UDP.
const UDP: u8 = 17;
/// IPv4: "more fragments", and the offset.
const FRAGMENT: u16 = 0x3fff;
/// Length of the longest headers that [`Headers::find`] finds, with a VLAN tag.
pub const HEADERS_MAX: usize = ETHERNET_LEN + 4 + IPV6_LEN + UDP_LEN;
/// Offset of the checksum in a UDP header.
pub const CHECKSUM: usize = 6;

/// The headers of a UDP datagram that is not a fragment, over IPv4 without options or IPv6 without
/// extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Offset of the IP header.
    pub ip: usize,
    /// Offset of the UDP header.
    pub udp: usize,
}

impl Headers {
    /// Finds the headers of a datagram.
    #[must_use]
    pub fn find(frame: &[u8]) -> Option<Self> {
        let kind = |at: usize| frame.get(at..)?.first_chunk::<2>().copied();
        let tagged = matches!(kind(12)?, [0x81, 0] | [0x88, 0xa8]);
        let ip = if tagged { ETHERNET_LEN + 4 } else { ETHERNET_LEN };
        let header = frame.get(ip..)?;
        let (udp, next) = match (kind(ip - 2)?, *header.first()?) {
            ([0x08, 0x00], 0x45) if word(header, 6)? & FRAGMENT == 0 => (ip + IPV4_LEN, 9),
            ([0x86, 0xdd], 0x60..=0x6f) => (ip + IPV6_LEN, 6),
            _ => return None,
        };
        let found = header.get(next) == Some(&UDP) && frame.len() >= udp + UDP_LEN;
        found.then_some(Self { ip, udp })
    }

    /// Returns the offset of the data.
    #[must_use]
    pub const fn data(self) -> usize {
        self.udp + UDP_LEN
    }

    /// Returns whether the IP header is of version 4.
    #[must_use]
    pub const fn is_v4(self) -> bool {
        self.udp - self.ip == IPV4_LEN
    }

    /// Returns whether the datagram goes to the port of RoCE.
    #[must_use]
    pub fn is_roce(self, frame: &[u8]) -> bool {
        word(frame, self.udp + 2) == Some(UDP_PORT)
    }

    /// Returns whether the frame has a VLAN tag.
    #[must_use]
    pub const fn is_tagged(self) -> bool {
        self.ip != ETHERNET_LEN
    }

    /// Returns the identification of IPv4.
    #[must_use]
    pub fn id(self, frame: &[u8]) -> Option<u16> {
        if self.is_v4() { word(frame, self.ip + 4) } else { None }
    }

    /// Returns whether the lengths of IP and UDP are those of a frame of `len` bytes.
    #[must_use]
    pub fn fits(self, frame: &[u8], len: usize) -> bool {
        let (total, from) = if self.is_v4() { (2, self.ip) } else { (4, self.udp) };
        let right = |at, from: usize| word(frame, at).is_some_and(|n| usize::from(n) + from == len);
        right(self.ip + total, from) && right(self.udp + 4, self.udp)
    }

    /// Writes the lengths of IP and UDP for a frame of `len` bytes. Returns none if the length is
    /// too large for the fields.
    pub fn set_len(self, headers: &mut [u8], len: usize) -> Option<()> {
        let (total, from) = if self.is_v4() { (2, self.ip) } else { (4, self.udp) };
        put(headers, self.ip + total, u16::try_from(len.checked_sub(from)?).ok()?)?;
        put(headers, self.udp + 4, u16::try_from(len.checked_sub(self.udp)?).ok()?)
    }

    /// Writes the identification of IPv4 and then the checksum of its header.
    pub fn set_id(self, headers: &mut [u8], id: u16) -> Option<()> {
        put(headers, self.ip + 4, id)?;
        put(headers, self.ip + 10, 0)?;
        let sum = sum(headers.get(self.ip..self.udp)?);
        put(headers, self.ip + 10, !fold(sum))
    }

    /// Writes a checksum of UDP.
    pub fn set_checksum(self, headers: &mut [u8], checksum: u16) -> Option<()> {
        put(headers, self.udp + CHECKSUM, checksum)
    }

    /// Returns the sum of the pseudo header of a datagram in a frame of `len` bytes, with which the
    /// calculation of the checksum starts.
    #[must_use]
    pub fn pseudo(self, headers: &[u8], len: usize) -> Option<u16> {
        let addresses = if self.is_v4() { 12 } else { 8 };
        let sum = sum(headers.get(self.ip + addresses..self.udp)?);
        let length = u64::try_from(len.checked_sub(self.udp)?).ok()?;
        Some(fold(sum + u64::from(UDP) + length))
    }
}

/// Returns a 16-bit number.
fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

/// Writes a 16-bit number.
fn put(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut()? = value.to_be_bytes();
    Some(())
}
