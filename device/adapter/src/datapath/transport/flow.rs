//! The addresses of a frame that carries TCP, read only from its headers. Nothing else of it is
//! checked, because a network card may send frames whose checksums are incomplete.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use vrnic_packet::Reader;

use crate::objects::claims::vlan_of;

const VLAN: [u8; 2] = [0x81, 0x00];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Protocol numbers of TCP, and of the extension headers of IPv6 (RFC 8200, 4).
const TCP: u8 = 6;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
/// Maximum number of extension headers behind which a TCP header is looked for.
const MAX_EXTENSIONS: usize = 8;

/// The addresses of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// The VLAN identifier.
    pub(crate) vlan: Option<u16>,
    /// The sender. The port is zero if `portless` is true.
    pub(crate) source: SocketAddr,
    /// The receiver. The port is zero if `portless` is true.
    pub(crate) destination: SocketAddr,
    /// True for a fragment behind the first one, which has no ports, and for a frame with so many
    /// extension headers that the ports are not looked for. Such a frame may carry TCP.
    pub(crate) portless: bool,
}

impl Flow {
    /// Reads the headers of a frame. Returns `None` if it does not carry TCP.
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(frame.get(12..)?);
        let mut kind = reader.take().ok()?;
        let mut vlan = None;
        if kind == VLAN {
            vlan = vlan_of(reader.u16().ok()?);
            kind = reader.take().ok()?;
        }
        let (addresses, portless) = match kind {
            IPV4 => v4(&mut reader)?,
            IPV6 => v6(&mut reader)?,
            _ => return None,
        };
        let ports = if portless { [0; 2] } else { [reader.u16().ok()?, reader.u16().ok()?] };
        let [source, destination] = addresses;
        let (source, destination) =
            (SocketAddr::new(source, ports[0]), SocketAddr::new(destination, ports[1]));
        Some(Self { vlan, source, destination, portless })
    }
}

/// Parses an IPv4 header with its options. Returns the addresses, and whether this is a fragment
/// without a TCP header.
fn v4(reader: &mut Reader<'_>) -> Option<([IpAddr; 2], bool)> {
    let [first, _, _, _, _, _, high, low, _, protocol, _, _] = reader.take().ok()?;
    let addresses: [[u8; 4]; 2] = [reader.take().ok()?, reader.take().ok()?];
    let options = (usize::from(first & 0x0f) * 4).checked_sub(20)?;
    reader.slice(options).ok()?;
    let fragment = u16::from_be_bytes([high, low]) & 0x1fff != 0;
    let is_tcp = first >> 4 == 4 && protocol == TCP;
    is_tcp.then_some((addresses.map(|address| Ipv4Addr::from(address).into()), fragment))
}

/// Parses an IPv6 header and its extension headers. Returns the addresses, and whether the ports
/// are not known although the packet may carry TCP.
fn v6(reader: &mut Reader<'_>) -> Option<([IpAddr; 2], bool)> {
    let [_, _, _, _, _, _, next, _] = reader.take().ok()?;
    let addresses: [[u8; 16]; 2] = [reader.take().ok()?, reader.take().ok()?];
    let portless = !finds_tcp(next, reader)?;
    Some((addresses.map(|address| Ipv6Addr::from(address).into()), portless))
}

/// Skips extension headers of IPv6, the first of which is of the kind `next`. Returns whether the
/// TCP header has been found, or `None` if the packet does not carry TCP.
fn finds_tcp(mut next: u8, reader: &mut Reader<'_>) -> Option<bool> {
    for _ in 0..MAX_EXTENSIONS {
        match next {
            TCP => return Some(true),
            HOP_BY_HOP | ROUTING | DESTINATION => {
                let [behind, units, _, _, _, _, _, _] = reader.take().ok()?;
                // The length is in units of 8 bytes behind the first 8.
                reader.slice(usize::from(units) * 8).ok()?;
                next = behind;
            }
            FRAGMENT => {
                let [behind, _, high, low, _, _, _, _] = reader.take().ok()?;
                next = behind;
                if u16::from_be_bytes([high, low]) & 0xfff8 != 0 {
                    return may_carry_tcp(next).then_some(false);
                }
            }
            _ => return None,
        }
    }
    may_carry_tcp(next).then_some(next == TCP)
}

/// Returns whether a header of the kind `next` is a TCP header, or one behind which there may be
/// one.
const fn may_carry_tcp(next: u8) -> bool {
    matches!(next, TCP | HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETHERNET: [u8; 12] = [2; 12];
    const PORTS: [u8; 4] = [0x0f, 0xa0, 0x13, 0x88];

    fn ipv4(words: usize, flags: u16, protocol: u8) -> Vec<u8> {
        let mut header = vec![0; words * 4];
        header[0] = 0x40 | u8::try_from(words).expect("a short header");
        header[6..8].copy_from_slice(&flags.to_be_bytes());
        header[9] = protocol;
        header[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        header
    }

    fn frame(parts: &[&[u8]]) -> Vec<u8> {
        [&ETHERNET[..]].iter().chain(parts).flat_map(|part| part.iter().copied()).collect()
    }

    fn addresses(ports: [u16; 2]) -> (SocketAddr, SocketAddr) {
        (([10, 0, 0, 1], ports[0]).into(), ([10, 0, 0, 2], ports[1]).into())
    }

    #[test]
    fn segments_have_ports_and_later_fragments_have_none() {
        let tagged = [0x81, 0x00, 0xe0, 0x07, 0x08, 0x00];
        for (words, flags, vlan) in [(5, 0x4000, None), (7, 0, Some(7)), (5, 0x2000, None)] {
            let ethertype = if vlan.is_some() { &tagged[..] } else { &tagged[4..] };
            let bytes = frame(&[ethertype, &ipv4(words, flags, 6), &PORTS]);
            let (source, destination) = addresses([4000, 5000]);
            let flow = Flow { vlan, source, destination, portless: false };
            assert_eq!(Flow::of(&bytes), Some(flow));
            for len in 0..bytes.len() {
                assert_eq!(Flow::of(&bytes[..len]), None, "{len}");
            }
        }
        let bytes = frame(&[&IPV4, &ipv4(5, 0x2001, 6), &PORTS]);
        let (source, destination) = addresses([0, 0]);
        assert_eq!(
            Flow::of(&bytes),
            Some(Flow { vlan: None, source, destination, portless: true })
        );
        assert_eq!(Flow::of(&frame(&[&IPV4, &ipv4(5, 0, 17), &PORTS])), None, "UDP");
        assert_eq!(Flow::of(&frame(&[&[8, 6], &ipv4(5, 0, 6), &PORTS])), None, "ARP");
        let mut short = ipv4(5, 0, 6);
        short[0] = 0x44;
        assert_eq!(Flow::of(&frame(&[&IPV4, &short, &PORTS])), None, "a short header");
    }

    #[test]
    fn a_tag_with_a_priority_alone_is_no_vlan() {
        let bytes = frame(&[&[0x81, 0x00, 0xe0, 0x00], &IPV4, &ipv4(5, 0x4000, 6), &PORTS]);
        assert_eq!(Flow::of(&bytes).map(|flow| flow.vlan), Some(None));
    }

    /// Returns a frame with the extension headers and ports of a packet from `::1` to `::2`.
    fn ipv6(next: u8, extensions: &[&[u8]]) -> Vec<u8> {
        let mut header = [0; 40];
        (header[0], header[6], header[23], header[39]) = (0x60, next, 1, 2);
        frame(&[&IPV6, &header, &extensions.concat(), &PORTS])
    }

    fn ipv6_flow(ports: [u16; 2], portless: bool) -> Flow {
        let address = |last, port| SocketAddr::new(Ipv6Addr::from_bits(last).into(), port);
        let (source, destination) = (address(1, ports[0]), address(2, ports[1]));
        Flow { vlan: None, source, destination, portless }
    }

    #[test]
    fn ipv6_is_read_behind_a_fragment_header() {
        let found = ipv6_flow([4000, 5000], false);
        assert_eq!(Flow::of(&ipv6(TCP, &[])), Some(found));
        for (place, expected) in [(1, found), (8, ipv6_flow([0, 0], true))] {
            let extension = [TCP, 0, 0, place, 0, 0, 0, 1];
            assert_eq!(Flow::of(&ipv6(FRAGMENT, &[&extension])), Some(expected));
        }
    }

    #[test]
    fn ipv6_is_read_behind_each_extension_header() {
        let found = Some(ipv6_flow([4000, 5000], false));
        for kind in [HOP_BY_HOP, ROUTING, DESTINATION] {
            for units in [0, 1, 255] {
                let mut extension = vec![0; 8 + usize::from(units) * 8];
                (extension[0], extension[1]) = (TCP, units);
                let whole = ipv6(kind, &[&extension]);
                assert_eq!(Flow::of(&whole), found, "{kind} {units}");
                for len in 0..whole.len() {
                    assert_eq!(Flow::of(&whole[..len]), None, "{kind} {units} {len}");
                }
                extension[0] = 17;
                assert_eq!(Flow::of(&ipv6(kind, &[&extension])), None, "UDP behind {kind}");
            }
        }
        let [hops, destination] = [[FRAGMENT, 0, 1, 4, 0, 0, 0, 0], [TCP, 0, 1, 4, 0, 0, 0, 0]];
        let fragment = |place| [DESTINATION, 0, 0, place, 0, 0, 0, 1];
        let mixed = |place| ipv6(HOP_BY_HOP, &[&hops, &fragment(place), &destination]);
        assert_eq!(Flow::of(&mixed(1)), found);
        assert_eq!(Flow::of(&mixed(8)), Some(ipv6_flow([0, 0], true)), "a later fragment");
    }

    #[test]
    fn too_many_extension_headers_hide_the_ports() {
        let chain = |count: usize, last| {
            let mut headers = vec![[DESTINATION, 0, 1, 4, 0, 0, 0, 0]; count];
            headers[count - 1][0] = last;
            ipv6(DESTINATION, &headers.iter().map(<[u8; 8]>::as_slice).collect::<Vec<_>>())
        };
        let found = ipv6_flow([4000, 5000], false);
        assert_eq!(Flow::of(&chain(MAX_EXTENSIONS, TCP)), Some(found));
        assert_eq!(Flow::of(&chain(MAX_EXTENSIONS, 17)), None, "UDP");
        let hidden = ipv6_flow([0, 0], true);
        assert_eq!(Flow::of(&chain(MAX_EXTENSIONS + 1, TCP)), Some(hidden));
    }
}
