//! IPv4 headers without options and IPv6 headers without extensions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vrnic_packet::{NoRoom, Reader, Writer};

use crate::discard::Discard;

/// Protocol number of UDP.
const UDP: u8 = 17;
/// IPv4: "do not fragment", at offset 0.
const DONT_FRAGMENT: u16 = 0x4000;
/// IPv4: "more fragments", and the offset.
const FRAGMENT: u16 = 0x3fff;
/// Bytes of an IPv4 header without options.
pub const IPV4_LEN: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_LEN: usize = 40;

/// Congestion notification in the low two bits of the traffic class (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// The sender does not react to marks.
    NotCapable,
    /// The sender reacts to marks, and the packet has none.
    Capable,
    /// A router has marked the packet: congestion experienced.
    Marked,
}

/// Addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// The sender's address.
        source: Ipv4Addr,
        /// The receiver's address.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// The sender's address.
        source: Ipv6Addr,
        /// The receiver's address.
        destination: Ipv6Addr,
    },
}

impl Addresses {
    /// Returns the addresses of two GIDs. A GID that maps an IPv4 address stands for this address
    /// (RFC 4291, 2.5.5.2; A17.4.5). Returns `None` if the families differ.
    #[must_use]
    pub fn from_gids(source: [u8; 16], destination: [u8; 16]) -> Option<Self> {
        let (source, destination) = (Ipv6Addr::from(source), Ipv6Addr::from(destination));
        match (source.to_ipv4_mapped(), destination.to_ipv4_mapped()) {
            (Some(source), Some(destination)) => Some(Self::V4 { source, destination }),
            (None, None) => Some(Self::V6 { source, destination }),
            _ => None,
        }
    }

    /// Returns the addresses for a packet in the opposite direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4 { source, destination } => {
                Self::V4 { source: destination, destination: source }
            }
            Self::V6 { source, destination } => {
                Self::V6 { source: destination, destination: source }
            }
        }
    }

    /// Returns the receiver's address.
    #[must_use]
    pub const fn destination(self) -> IpAddr {
        match self {
            Self::V4 { destination, .. } => IpAddr::V4(destination),
            Self::V6 { destination, .. } => IpAddr::V6(destination),
        }
    }
}

/// An IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The addresses of sender and receiver.
    pub addresses: Addresses,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// The time to live (IPv4) or hop limit (IPv6).
    pub hop_limit: u8,
    /// The flow label, 20 bits; only with IPv6.
    pub flow_label: u32,
}

/// An IP packet that carries UDP, as returned by [`Network::parse`].
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a> {
    /// The header.
    pub network: Network,
    /// Its bytes.
    pub header: &'a [u8],
    /// All bytes behind the header, up to the end that the header states.
    pub payload: &'a [u8],
    /// The reason for which the packet must be dropped if it is RoCE.
    pub fault: Option<Discard>,
}

impl Network {
    /// Returns the ECN bits.
    #[must_use]
    pub const fn ecn(&self) -> Ecn {
        match self.traffic_class & 3 {
            0 => Ecn::NotCapable,
            3 => Ecn::Marked,
            _ => Ecn::Capable,
        }
    }

    /// Returns the length of the header.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        match self.addresses {
            Addresses::V4 { .. } => IPV4_LEN,
            Addresses::V6 { .. } => IPV6_LEN,
        }
    }

    /// Parses an IPv4 packet. Returns `None` if it does not carry UDP, or not the beginning of a
    /// UDP datagram. Such packets are not RoCE.
    pub fn parse_v4(packet: &[u8]) -> Option<Parsed<'_>> {
        let mut from = Reader::new(packet);
        let [version_len, traffic_class] = from.take().ok()?;
        let total = usize::from(from.u16().ok()?);
        let _id = from.u16().ok()?;
        let fragment = from.u16().ok()? & FRAGMENT;
        let [hop_limit, protocol] = from.take().ok()?;
        let _checksum = from.u16().ok()?;
        let source = Ipv4Addr::from(from.take::<4>().ok()?);
        let destination = Ipv4Addr::from(from.take::<4>().ok()?);
        let header_len = usize::from(version_len & 0x0f) * 4;
        if version_len >> 4 != 4 || protocol != UDP || fragment & 0x1fff != 0 {
            return None;
        }
        let (header, _) = packet.split_at_checked(header_len)?;
        let fault = if header_len != IPV4_LEN || checksum(0, header) != 0 {
            Some(Discard::IpHeader)
        } else if fragment != 0 {
            Some(Discard::Fragment)
        } else if total > packet.len() || total < header_len {
            Some(Discard::Truncated)
        } else {
            None
        };
        let payload = packet.get(header_len..total.min(packet.len())).unwrap_or_default();
        let addresses = Addresses::V4 { source, destination };
        let network = Self { addresses, traffic_class, hop_limit, flow_label: 0 };
        Some(Parsed { network, header, payload, fault })
    }

    /// Parses an IPv6 packet. Returns `None` if UDP does not directly follow the header. Such
    /// packets are not RoCE.
    pub fn parse_v6(packet: &[u8]) -> Option<Parsed<'_>> {
        let mut from = Reader::new(packet);
        let first = from.u32().ok()?;
        let length = usize::from(from.u16().ok()?);
        let [next, hop_limit] = from.take().ok()?;
        let source = Ipv6Addr::from(from.take::<16>().ok()?);
        let destination = Ipv6Addr::from(from.take::<16>().ok()?);
        if first >> 28 != 6 || next != UDP {
            return None;
        }
        let (header, rest) = packet.split_at_checked(IPV6_LEN)?;
        let fault = (length > rest.len()).then_some(Discard::Truncated);
        let payload = rest.get(..length).unwrap_or(rest);
        let [traffic_class, ..] = (first << 4).to_be_bytes();
        let network = Self {
            addresses: Addresses::V6 { source, destination },
            traffic_class,
            hop_limit,
            flow_label: first & 0x000f_ffff,
        };
        Some(Parsed { network, header, payload, fault })
    }

    /// Writes the header of a packet with `length` bytes behind it. An IPv4 header gets the
    /// identification `id`; IPv6 has no such field.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit, or the packet is too long for IP.
    pub fn write(&self, length: usize, id: u16, to: &mut Writer<'_>) -> Result<(), NoRoom> {
        let length = u16::try_from(length).map_err(|_| NoRoom)?;
        match self.addresses {
            Addresses::V4 { source, destination } => {
                let total = length.checked_add(IPV4_LEN as u16).ok_or(NoRoom)?;
                let mut header = [0; IPV4_LEN];
                let addresses = [source, destination];
                self.write_v4(total, id, addresses, &mut Writer::new(&mut header))?;
                let [high, low] = checksum(0, &header).to_be_bytes();
                (header[10], header[11]) = (high, low);
                to.put(&header)
            }
            Addresses::V6 { source, destination } => {
                let flow = self.flow_label & 0x000f_ffff;
                to.u32(6 << 28 | u32::from(self.traffic_class) << 20 | flow)?;
                to.u16(length)?;
                to.put(&[UDP, self.hop_limit])?;
                to.put(&source.octets())?;
                to.put(&destination.octets())
            }
        }
    }

    /// Writes an IPv4 header whose checksum is zero.
    fn write_v4(
        &self,
        total: u16,
        id: u16,
        [source, destination]: [Ipv4Addr; 2],
        to: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        to.put(&[0x45, self.traffic_class])?;
        to.u16(total)?;
        to.u16(id)?;
        to.u16(DONT_FRAGMENT)?;
        to.put(&[self.hop_limit, UDP, 0, 0])?;
        to.put(&source.octets())?;
        to.put(&destination.octets())
    }

    /// Returns whether the UDP checksum of a datagram (header and data) is correct. Zero means that
    /// there is none.
    #[must_use]
    pub fn udp_checksum_is_right(&self, datagram: &[u8]) -> bool {
        if datagram.get(6..8).is_none_or(|field| field == [0, 0]) {
            return true;
        }
        let mut pseudo = [0; 36];
        let mut to = Writer::new(&mut pseudo);
        let addresses = match self.addresses {
            Addresses::V4 { source, destination } => {
                to.put(&source.octets()).and_then(|()| to.put(&destination.octets()))
            }
            Addresses::V6 { source, destination } => {
                to.put(&source.octets()).and_then(|()| to.put(&destination.octets()))
            }
        };
        // A UDP datagram has at most 65535 bytes.
        let length = u16::try_from(datagram.len()).unwrap_or(u16::MAX);
        let rest = addresses.and_then(|()| to.u16(u16::from(UDP))).and_then(|()| to.u16(length));
        rest.is_ok() && checksum(sum(0, &pseudo), datagram) == 0
    }
}

/// Adds the 16-bit words of `bytes` to a sum. An odd last byte is the upper half of a word.
fn sum(start: u32, bytes: &[u8]) -> u32 {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let last = odd.first().map_or(0, |byte| u32::from(*byte) << 8);
    let words = pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair)));
    words.fold(start.wrapping_add(last), u32::wrapping_add)
}

/// Returns the Internet checksum (RFC 1071) of `bytes`, added to the sum `start`. It is zero over
/// bytes that contain a correct checksum.
fn checksum(start: u32, bytes: &[u8]) -> u16 {
    let sum = sum(start, bytes);
    let folded = (sum & 0xffff) + (sum >> 16);
    // CAST: two folds leave 16 bits.
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: Addresses = Addresses::V4 {
        source: Ipv4Addr::new(10, 9, 0, 1),
        destination: Ipv4Addr::new(10, 9, 0, 2),
    };

    #[test]
    fn gids_stand_for_addresses_of_one_family() {
        let mapped = |last| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, last];
        let local = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 3, 4, 0xff, 0xfe, 5, 6, 7];
        assert_eq!(Addresses::from_gids(mapped(1), mapped(2)), Some(V4));
        assert_eq!(Addresses::from_gids(local, mapped(2)), None);
        assert!(matches!(Addresses::from_gids(local, local), Some(Addresses::V6 { .. })));
        assert_eq!(V4.reversed().reversed(), V4);
        assert_eq!(V4.reversed().destination(), IpAddr::from([10, 9, 0, 1]));
    }

    #[test]
    fn the_low_bits_of_the_traffic_class_tell_of_congestion() {
        let network =
            |traffic_class| Network { addresses: V4, traffic_class, hop_limit: 64, flow_label: 0 };
        assert_eq!(network(0xc0).ecn(), Ecn::NotCapable);
        assert_eq!(network(0x02).ecn(), Ecn::Capable);
        assert_eq!(network(0x01).ecn(), Ecn::Capable);
        assert_eq!(network(0xff).ecn(), Ecn::Marked);
    }
}
