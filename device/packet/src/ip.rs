//! IPv4 and IPv6 headers (RFC 791, RFC 8200).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::Sum;
use crate::ethernet::EtherType;
use crate::reader::{NoRoom, Reader, Short, Writer};

/// Bytes of an IPv4 header without options.
pub const V4_LEN: usize = 20;
/// Bytes of an IPv6 header without extension headers.
pub const V6_LEN: usize = 40;
/// IPv4: "do not fragment", at offset 0.
const DONT_FRAGMENT: u16 = 0x4000;
/// IPv4: "more fragments", and the offset.
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// The protocol of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(pub u8);

impl Protocol {
    /// ICMP of IPv4.
    pub const ICMP: Self = Self(1);
    /// ICMP of IPv6.
    pub const ICMPV6: Self = Self(58);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
}

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
    /// Returns two addresses, or `None` if their families differ.
    #[must_use]
    pub const fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self::V4 { source, destination }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Self::V6 { source, destination }),
            _ => None,
        }
    }

    /// Returns the addresses of two GIDs. A GID that maps an IPv4 address stands for this address
    /// (RFC 4291, 2.5.5.2; A17.4.5). Returns `None` if the families differ.
    #[must_use]
    pub fn from_gids(source: [u8; 16], destination: [u8; 16]) -> Option<Self> {
        let address = |gid| {
            let address = Ipv6Addr::from(gid);
            address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
        };
        Self::new(address(source), address(destination))
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

    /// Returns the sender's address.
    #[must_use]
    pub const fn source(self) -> IpAddr {
        match self {
            Self::V4 { source, .. } => IpAddr::V4(source),
            Self::V6 { source, .. } => IpAddr::V6(source),
        }
    }

    /// Returns the receiver's address.
    #[must_use]
    pub const fn destination(self) -> IpAddr {
        self.reversed().source()
    }

    /// Returns the type of the frames of packets with these addresses.
    #[must_use]
    pub const fn ether_type(self) -> EtherType {
        match self {
            Self::V4 { .. } => EtherType::IPV4,
            Self::V6 { .. } => EtherType::IPV6,
        }
    }
}

/// The fields of a header that senders choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The addresses of sender and receiver.
    pub addresses: Addresses,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// The time to live (IPv4) or hop limit (IPv6).
    pub hop_limit: u8,
    /// The flow label, 20 bits; only with IPv6.
    pub flow_label: u32,
}

impl Header {
    /// Reads the fields of an IPv4 header, which may have faults.
    #[inline]
    pub(crate) fn v4(bytes: &[u8]) -> Result<Self, Short> {
        let mut from = Reader::new(bytes);
        let [_, traffic_class, _, _, _, _, _, _, hop_limit, _, _, _] = from.take()?;
        let source = Ipv4Addr::from(from.take::<4>()?);
        let destination = Ipv4Addr::from(from.take::<4>()?);
        let addresses = Addresses::V4 { source, destination };
        Ok(Self { addresses, traffic_class, hop_limit, flow_label: 0 })
    }

    /// Reads the fields of an IPv6 header, which may have faults.
    #[inline]
    pub(crate) fn v6(bytes: &[u8]) -> Result<Self, Short> {
        let mut from = Reader::new(bytes);
        let first = from.u32()?;
        let [_, _, _, hop_limit] = from.take()?;
        let source = Ipv6Addr::from(from.take::<16>()?);
        let destination = Ipv6Addr::from(from.take::<16>()?);
        let [traffic_class, ..] = (first << 4).to_be_bytes();
        let addresses = Addresses::V6 { source, destination };
        Ok(Self { addresses, traffic_class, hop_limit, flow_label: first & 0x000f_ffff })
    }

    /// Returns the ECN bits.
    #[must_use]
    pub const fn ecn(&self) -> Ecn {
        match self.traffic_class & 3 {
            0 => Ecn::NotCapable,
            3 => Ecn::Marked,
            _ => Ecn::Capable,
        }
    }

    /// Returns the length of the header as [`Self::write`] writes it.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        match self.addresses {
            Addresses::V4 { .. } => V4_LEN,
            Addresses::V6 { .. } => V6_LEN,
        }
    }

    /// Returns the sum over the pseudo-header of a datagram or segment of `len` bytes (RFC 9293,
    /// 3.1; RFC 8200, 8.1).
    #[must_use]
    pub fn pseudo(&self, protocol: Protocol, len: usize) -> Sum {
        // IP packets are shorter than 2¹⁶ bytes.
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        let sum = Sum::default().plus(protocol.0.into()).plus(len);
        match self.addresses {
            Addresses::V4 { source, destination } => {
                sum.bytes(&source.octets()).bytes(&destination.octets())
            }
            Addresses::V6 { source, destination } => {
                sum.bytes(&source.octets()).bytes(&destination.octets())
            }
        }
    }

    /// Returns the checksum over the pseudo-header and a payload of this protocol, which is zero if
    /// the payload contains a right one.
    #[must_use]
    pub fn checksum(&self, protocol: Protocol, payload: &[u8]) -> u16 {
        self.pseudo(protocol, payload.len()).bytes(payload).finish()
    }

    /// Writes the header of a packet that must not be fragmented, with `len` bytes of this protocol
    /// after the header. An IPv4 header gets the identification `id`; IPv6 has no such field.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit, or the packet is too long for IP.
    pub fn write(
        &self,
        protocol: Protocol,
        len: usize,
        id: u16,
        to: &mut Writer<'_>,
    ) -> Result<(), NoRoom> {
        let len = u16::try_from(len).map_err(|_| NoRoom)?;
        match self.addresses {
            Addresses::V4 { source, destination } => {
                let total = len.checked_add(V4_LEN as u16).ok_or(NoRoom)?;
                let ([high, low], [id_high, id_low]) = (total.to_be_bytes(), id.to_be_bytes());
                let [flags, offset] = DONT_FRAGMENT.to_be_bytes();
                let first = [0x45, self.traffic_class, high, low, id_high, id_low, flags, offset];
                let [ttl, protocol] = [self.hop_limit, protocol.0];
                let (source, destination) = (source.octets(), destination.octets());
                let sum = Sum::default().bytes(&first).bytes(&[ttl, protocol]);
                let checksum = sum.bytes(&source).bytes(&destination).finish();
                to.put(&first)?;
                to.put(&[ttl, protocol])?;
                to.u16(checksum)?;
                to.put(&source)?;
                to.put(&destination)
            }
            Addresses::V6 { source, destination } => {
                let flow = self.flow_label & 0x000f_ffff;
                to.u32(6 << 28 | u32::from(self.traffic_class) << 20 | flow)?;
                to.u16(len)?;
                to.put(&[protocol.0, self.hop_limit])?;
                to.put(&source.octets())?;
                to.put(&destination.octets())
            }
        }
    }
}

/// What is wrong with a packet, or unusual. A packet with several faults has the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The version is not that of the Ethernet header.
    Version,
    /// The header is shorter than the shortest header.
    HeaderLength,
    /// The IPv4 header has options.
    Options,
    /// The checksum of the IPv4 header is wrong.
    Checksum,
    /// The packet is a fragment, perhaps the first one.
    Fragment,
    /// The packet is shorter than its header states, or the header states less than its own length.
    Truncated,
}

/// A received packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The IP header of the packet.
    pub header: Header,
    /// The bytes of the header, with the options of IPv4.
    pub header_bytes: &'a [u8],
    /// The protocol of the payload, or the first extension header of IPv6.
    pub protocol: Protocol,
    /// True for a fragment of IPv4 after the first one. Its payload does not begin with a header
    /// of the protocol.
    pub is_later_fragment: bool,
    /// True for a fragment of IPv4, including the first one.
    pub is_fragment: bool,
    /// All bytes after the header, up to the end that the header states.
    pub payload: &'a [u8],
    /// The reason for which a strict receiver drops it.
    pub fault: Option<Fault>,
}

impl<'a> Packet<'a> {
    /// Parses the payload of a frame. Returns `None` if it is not an IP packet.
    ///
    /// # Errors
    /// [`Short`] if the bytes end before the header does.
    pub fn parse(kind: EtherType, bytes: &'a [u8]) -> Result<Option<Self>, Short> {
        match kind {
            EtherType::IPV4 => Self::v4(bytes).map(Some),
            EtherType::IPV6 => Self::v6(bytes).map(Some),
            _ => Ok(None),
        }
    }

    /// Parses an IPv4 packet.
    ///
    /// # Errors
    /// [`Short`] if the bytes end before the header does.
    pub fn v4(bytes: &'a [u8]) -> Result<Self, Short> {
        let header = Header::v4(bytes)?;
        let mut from = Reader::new(bytes);
        let [version_len, _] = from.take()?;
        let total = usize::from(from.u16()?);
        let (_id, fragment) = (from.u16()?, from.u16()?);
        let [_hop_limit, protocol] = from.take()?;
        let len = usize::from(version_len & 0x0f) * 4;
        let (header_bytes, _) = bytes.split_at_checked(len).ok_or(Short)?;
        let fault = if version_len >> 4 != 4 {
            Some(Fault::Version)
        } else if len < V4_LEN {
            Some(Fault::HeaderLength)
        } else if len > V4_LEN {
            Some(Fault::Options)
        } else if Sum::default().bytes(header_bytes).finish() != 0 {
            Some(Fault::Checksum)
        } else if fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0 {
            Some(Fault::Fragment)
        } else if total > bytes.len() || total < len {
            Some(Fault::Truncated)
        } else {
            None
        };
        Ok(Self {
            header,
            header_bytes,
            protocol: Protocol(protocol),
            is_later_fragment: fragment & FRAGMENT_OFFSET != 0,
            is_fragment: fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0,
            payload: bytes.get(len..total.min(bytes.len())).unwrap_or_default(),
            fault,
        })
    }

    /// Parses an IPv6 packet. Extension headers are a part of its payload.
    ///
    /// # Errors
    /// [`Short`] if the bytes end before the header does.
    pub fn v6(bytes: &'a [u8]) -> Result<Self, Short> {
        let header = Header::v6(bytes)?;
        let mut from = Reader::new(bytes);
        let [version, _, _, _] = from.take()?;
        let len = usize::from(from.u16()?);
        let [next] = from.take()?;
        let (header_bytes, rest) = bytes.split_at_checked(V6_LEN).ok_or(Short)?;
        let fault = if version >> 4 != 6 {
            Some(Fault::Version)
        } else {
            (len > rest.len()).then_some(Fault::Truncated)
        };
        Ok(Self {
            header,
            header_bytes,
            protocol: Protocol(next),
            is_later_fragment: false,
            is_fragment: false,
            payload: rest.get(..len).unwrap_or(rest),
            fault,
        })
    }

    /// Returns the checksum over the pseudo-header and the payload, which is zero if the payload
    /// contains a right one.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        self.header.checksum(self.protocol, self.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: Addresses = Addresses::V4 {
        source: Ipv4Addr::new(10, 9, 0, 1),
        destination: Ipv4Addr::new(10, 9, 0, 2),
    };
    const V6: Addresses =
        Addresses::V6 { source: Ipv6Addr::LOCALHOST, destination: Ipv6Addr::UNSPECIFIED };

    fn header(addresses: Addresses) -> Header {
        let flow_label = if addresses == V4 { 0 } else { 0x000a_bcde };
        Header { addresses, traffic_class: 0xb9, hop_limit: 7, flow_label }
    }

    fn packet(addresses: Addresses) -> Vec<u8> {
        let header = header(addresses);
        let mut bytes = vec![0; header.header_len() + 5];
        header.write(Protocol::UDP, 5, 0x1234, &mut Writer::new(&mut bytes)).expect("room");
        bytes[header.header_len()..].copy_from_slice(b"hello");
        bytes
    }

    #[test]
    fn packets_are_read_as_they_are_written() {
        for addresses in [V4, V6] {
            let mut bytes = packet(addresses);
            let len = header(addresses).header_len();
            // Padding of Ethernet.
            bytes.extend([9; 3]);
            let kind = addresses.ether_type();
            let parsed = Packet::parse(kind, &bytes).expect("long enough").expect("IP");
            assert_eq!((parsed.header, parsed.protocol), (header(addresses), Protocol::UDP));
            assert_eq!((parsed.payload, parsed.header_bytes), (&b"hello"[..], &bytes[..len]));
            assert_eq!((parsed.fault, parsed.is_later_fragment), (None, false));
            for cut in 0..len {
                assert!(Packet::parse(kind, &bytes[..cut]).is_err(), "{cut}");
            }
            let cut = Packet::parse(kind, &bytes[..len + 4]).expect("long enough").expect("IP");
            assert_eq!((cut.fault, cut.payload), (Some(Fault::Truncated), &b"hell"[..]));
        }
        assert!(Packet::parse(EtherType(0x0806), &packet(V4)).expect("long enough").is_none());
    }

    #[test]
    fn the_first_fault_is_reported() {
        let fault = |at: usize, value: u8| {
            let mut bytes = packet(V4);
            bytes.extend([0; 40]);
            bytes[at] = value;
            if at != 8 && bytes[0] == 0x45 {
                let sum = Sum::default().bytes(&bytes[..10]).bytes(&bytes[12..20]).finish();
                bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            let parsed = Packet::v4(&bytes).expect("long enough");
            (parsed.fault, parsed.is_later_fragment)
        };
        assert_eq!(fault(0, 0x55), (Some(Fault::Version), false));
        assert_eq!(fault(0, 0x44), (Some(Fault::HeaderLength), false));
        assert_eq!(fault(0, 0x46), (Some(Fault::Options), false));
        assert_eq!(fault(8, 1), (Some(Fault::Checksum), false));
        assert_eq!(fault(6, 0x20), (Some(Fault::Fragment), false));
        assert_eq!(fault(7, 1), (Some(Fault::Fragment), true));
        assert_eq!(fault(3, 19), (Some(Fault::Truncated), false));
        assert_eq!(fault(3, 25), (None, false));
        let mut other = packet(V6);
        other[0] = 0x45;
        assert_eq!(Packet::v6(&other).expect("long enough").fault, Some(Fault::Version));
    }

    #[test]
    fn gids_stand_for_addresses_of_one_family() {
        let mapped = |last| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, last];
        let local = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 3, 4, 0xff, 0xfe, 5, 6, 7];
        assert_eq!(Addresses::from_gids(mapped(1), mapped(2)), Some(V4));
        assert_eq!(Addresses::from_gids(local, mapped(2)), None);
        assert!(matches!(Addresses::from_gids(local, local), Some(Addresses::V6 { .. })));
        assert_eq!(V4.reversed().reversed(), V4);
        assert_eq!(V4.destination(), IpAddr::from([10, 9, 0, 2]));
    }

    #[test]
    fn the_low_bits_of_the_traffic_class_tell_of_congestion() {
        let ecn = |traffic_class| Header { traffic_class, ..header(V4) }.ecn();
        let expected = [Ecn::NotCapable, Ecn::Capable, Ecn::Capable, Ecn::Marked];
        assert_eq!([ecn(0xc0), ecn(0x02), ecn(0x01), ecn(0xff)], expected);
    }
}
