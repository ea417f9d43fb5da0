//! The headers of a frame down to IP, which are parsed and checked once.

use std::ops::Range;

use crate::ethernet::{self, EtherType, Ethernet};
use crate::ip::{Fault, Header, Packet, Protocol, V6_LEN};
use crate::mac::MacAddr;
use crate::reader::Reader;

/// The places of the Ethernet and IP headers of a frame, and the fields by which frames are
/// distinguished. Addresses are read from the frame again, so that the headers of frames that wait
/// are small. The methods need the frame from which the headers were read: with another one, they
/// return wrong bytes, or nothing if it is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Priority and identifier of the VLAN, if the frame is tagged.
    pub vlan: Option<u16>,
    /// True for IPv6, false for IPv4.
    pub is_v6: bool,
    /// The protocol after the IP header, or the first extension header of IPv6.
    pub protocol: Protocol,
    /// True for a fragment of IPv4 after the first one.
    pub is_later_fragment: bool,
    /// True for a fragment of IPv4, including the first one.
    pub is_fragment: bool,
    /// The reason for which a strict receiver drops the packet.
    pub fault: Option<Fault>,
    /// Bytes of the IP header with its options.
    header_len: u8,
    /// Bytes after the IP header.
    payload_len: u16,
}

impl Headers {
    /// Reads the headers of a frame. Returns `None` if it carries no IP packet, or ends before the
    /// IP header does.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(frame);
        let (ethernet, kind) = Ethernet::parse(&mut reader).ok()?;
        let packet = Packet::parse(kind, reader.rest()).ok()??;
        Some(Self {
            vlan: ethernet.vlan,
            is_v6: kind == EtherType::IPV6,
            protocol: packet.protocol,
            is_later_fragment: packet.is_later_fragment,
            is_fragment: packet.is_fragment,
            fault: packet.fault,
            header_len: u8::try_from(packet.header_bytes.len()).ok()?,
            payload_len: u16::try_from(packet.payload.len()).ok()?,
        })
    }

    /// Returns the offset of the IP header.
    const fn network_at(&self) -> usize {
        ethernet::header_len(self.vlan)
    }

    /// Returns the place of the IP header, with the options of IPv4.
    #[must_use]
    pub fn header_range(&self) -> Range<usize> {
        let start = self.network_at();
        start..start + usize::from(self.header_len)
    }

    /// Returns the place of the payload of the IP packet, up to the end that its header states.
    #[must_use]
    pub fn payload_range(&self) -> Range<usize> {
        let start = self.header_range().end;
        start..start + usize::from(self.payload_len)
    }

    /// Returns whether the frame contains the whole IP packet, as its header states the length.
    #[must_use]
    pub fn is_whole(&self, frame: &[u8]) -> bool {
        let (at, before) = if self.is_v6 { (4, V6_LEN) } else { (2, 0) };
        let field = frame.get(self.network_at() + at..).and_then(|rest| rest.first_chunk());
        let stated = field.map(|length| before + usize::from(u16::from_be_bytes(*length)));
        stated == Some(usize::from(self.header_len) + usize::from(self.payload_len))
    }

    /// Returns the three flags of an IPv4 header, which are zero for IPv6.
    #[must_use]
    pub fn fragment_flags(&self, frame: &[u8]) -> Option<u8> {
        if self.is_v6 { Some(0) } else { Some(frame.get(self.network_at() + 6)? >> 5) }
    }

    /// Returns the bytes of the frame after the IP header, with the padding of the frame.
    #[inline]
    #[must_use]
    pub fn behind<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.network_at() + usize::from(self.header_len)..).unwrap_or_default()
    }

    /// Returns the payload of the IP packet, up to the end that its header states.
    #[inline]
    #[must_use]
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        self.behind(frame).get(..self.payload_len.into()).unwrap_or_default()
    }

    /// Returns the Ethernet header of the frame.
    #[inline]
    #[must_use]
    pub fn ethernet(&self, frame: &[u8]) -> Option<Ethernet> {
        let mut reader = Reader::new(frame);
        let destination = MacAddr(reader.take().ok()?);
        let source = MacAddr(reader.take().ok()?);
        Some(Ethernet { destination, source, vlan: self.vlan })
    }

    /// Returns the IP header of the frame.
    #[inline]
    #[must_use]
    pub fn network(&self, frame: &[u8]) -> Option<Header> {
        let bytes = frame.get(self.network_at()..)?;
        if self.is_v6 { Header::v6(bytes).ok() } else { Header::v4(bytes).ok() }
    }

    /// Returns the IP packet of the frame, and all of its bytes from the IP header on.
    #[inline]
    #[must_use]
    pub fn packet<'a>(&self, frame: &'a [u8]) -> Option<(Packet<'a>, &'a [u8])> {
        let len = usize::from(self.header_len) + usize::from(self.payload_len);
        let (whole, _padding) = frame.get(self.network_at()..)?.split_at_checked(len)?;
        let (header_bytes, payload) = whole.split_at_checked(self.header_len.into())?;
        let Self { protocol, is_later_fragment, is_fragment, fault, .. } = *self;
        let header = self.network(frame)?;
        let packet = Packet {
            header,
            header_bytes,
            protocol,
            is_later_fragment,
            is_fragment,
            payload,
            fault,
        };
        Some((packet, whole))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::Writer;
    use crate::ip::Addresses;

    const V4: Addresses =
        Addresses::V4 { source: Ipv4Addr::LOCALHOST, destination: Ipv4Addr::UNSPECIFIED };
    const V6: Addresses =
        Addresses::V6 { source: Ipv6Addr::LOCALHOST, destination: Ipv6Addr::UNSPECIFIED };

    /// Returns a frame with five bytes of UDP, and three bytes of padding.
    fn frame(addresses: Addresses, vlan: Option<u16>) -> (Vec<u8>, Ethernet, Header) {
        let ethernet = Ethernet { destination: MacAddr([2; 6]), source: MacAddr([4; 6]), vlan };
        let network = Header { addresses, traffic_class: 2, hop_limit: 7, flow_label: 0 };
        let mut bytes = vec![0; ethernet.header_len() + network.header_len()];
        let mut to = Writer::new(&mut bytes);
        ethernet.write(addresses.ether_type(), &mut to).expect("room");
        network.write(Protocol::UDP, 5, 1, &mut to).expect("room");
        (bytes.into_iter().chain(*b"hello___").collect(), ethernet, network)
    }

    #[test]
    fn the_packet_is_found_again_in_its_frame() {
        for (addresses, vlan) in [(V4, None), (V4, Some(0xe007)), (V6, None), (V6, Some(7))] {
            let (bytes, ethernet, network) = frame(addresses, vlan);
            let headers = Headers::of(&bytes).expect("IP");
            assert_eq!(headers.ethernet(&bytes), Some(ethernet));
            assert_eq!(headers.network(&bytes), Some(network));
            let (packet, whole) = headers.packet(&bytes).expect("the same frame");
            assert_eq!((packet.header, packet.protocol), (network, Protocol::UDP));
            assert_eq!((packet.payload, packet.fault), (&b"hello"[..], None));
            let at = ethernet.header_len();
            assert_eq!(packet.header_bytes, &bytes[at..at + network.header_len()]);
            assert_eq!(whole, &bytes[at..bytes.len() - 3]);
            for cut in 0..at + network.header_len() {
                assert_eq!(Headers::of(&bytes[..cut]), None, "{cut}");
            }
        }
    }

    #[test]
    fn a_shorter_frame_has_no_packet() {
        let (bytes, ..) = frame(V6, Some(7));
        let headers = Headers::of(&bytes).expect("IP");
        for len in 0..bytes.len() - 3 {
            assert!(headers.packet(&bytes[..len]).is_none(), "{len}");
        }
    }

    #[test]
    fn headers_of_waiting_frames_are_small() {
        assert_eq!(size_of::<Headers>(), 12);
    }

    #[test]
    fn other_frames_have_none() {
        let (mut bytes, ..) = frame(V4, None);
        bytes[13] = 6;
        assert_eq!(Headers::of(&bytes), None, "ARP");
    }
}
