//! The addresses of a frame that carries TCP, read only from its headers. Nothing else of it is
//! checked, because a network card may send frames whose checksums are incomplete.

use std::net::SocketAddr;

use vrnic_packet::ethernet::vlan_of;
use vrnic_packet::ip::{Fault, Protocol};
use vrnic_packet::{Headers, Reader};

/// The extension headers of IPv6 (RFC 8200, 4).
const HOP_BY_HOP: Protocol = Protocol(0);
const ROUTING: Protocol = Protocol(43);
const FRAGMENT: Protocol = Protocol(44);
const DESTINATION: Protocol = Protocol(60);
/// Maximum number of extension headers after which a TCP header is looked for.
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
    /// Reads the ports of a frame behind these headers. Returns `None` if it does not carry TCP.
    pub(crate) fn of(frame: &[u8], headers: &Headers) -> Option<Self> {
        if matches!(headers.fault, Some(Fault::Version | Fault::HeaderLength)) {
            return None;
        }
        // The lengths in the header are not used, because a card may send frames without them.
        let mut reader = Reader::new(headers.behind(frame));
        let portless = if headers.is_v6 {
            !finds_tcp(headers.protocol, &mut reader)?
        } else if headers.protocol == Protocol::TCP {
            headers.is_later_fragment
        } else {
            return None;
        };
        let ports = if portless { [0; 2] } else { [reader.u16().ok()?, reader.u16().ok()?] };
        let addresses = headers.network(frame)?.addresses;
        Some(Self {
            vlan: headers.vlan.and_then(vlan_of),
            source: SocketAddr::new(addresses.source(), ports[0]),
            destination: SocketAddr::new(addresses.destination(), ports[1]),
            portless,
        })
    }
}

/// Skips extension headers of IPv6, the first of which is of the kind `next`. Returns whether the
/// TCP header has been found, or `None` if the packet does not carry TCP.
fn finds_tcp(mut next: Protocol, reader: &mut Reader<'_>) -> Option<bool> {
    for _ in 0..MAX_EXTENSIONS {
        match next {
            Protocol::TCP => return Some(true),
            HOP_BY_HOP | ROUTING | DESTINATION => {
                let [behind, units, _, _, _, _, _, _] = reader.take().ok()?;
                // The length is in units of 8 bytes after the first 8.
                reader.slice(usize::from(units) * 8).ok()?;
                next = Protocol(behind);
            }
            FRAGMENT => {
                let [behind, _, high, low, _, _, _, _] = reader.take().ok()?;
                next = Protocol(behind);
                if u16::from_be_bytes([high, low]) & 0xfff8 != 0 {
                    return may_carry_tcp(next).then_some(false);
                }
            }
            _ => return None,
        }
    }
    may_carry_tcp(next).then_some(next == Protocol::TCP)
}

/// Returns whether a header of the kind `next` is a TCP header, or one after which there may be
/// one.
const fn may_carry_tcp(next: Protocol) -> bool {
    matches!(next, Protocol::TCP | HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use vrnic_packet::EtherType;

    use super::*;

    const IPV4: [u8; 2] = EtherType::IPV4.0.to_be_bytes();
    const IPV6: [u8; 2] = EtherType::IPV6.0.to_be_bytes();
    const ETHERNET: [u8; 12] = [2; 12];
    const PORTS: [u8; 4] = [0x0f, 0xa0, 0x13, 0x88];

    fn flow_of(frame: &[u8]) -> Option<Flow> {
        Flow::of(frame, &Headers::of(frame)?)
    }

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
            assert_eq!(flow_of(&bytes), Some(flow));
            for len in 0..bytes.len() {
                assert_eq!(flow_of(&bytes[..len]), None, "{len}");
            }
        }
        let bytes = frame(&[&IPV4, &ipv4(5, 0x2001, 6), &PORTS]);
        let (source, destination) = addresses([0, 0]);
        assert_eq!(flow_of(&bytes), Some(Flow { vlan: None, source, destination, portless: true }));
        assert_eq!(flow_of(&frame(&[&IPV4, &ipv4(5, 0, 17), &PORTS])), None, "UDP");
        assert_eq!(flow_of(&frame(&[&[8, 6], &ipv4(5, 0, 6), &PORTS])), None, "ARP");
        let mut short = ipv4(5, 0, 6);
        short[0] = 0x44;
        assert_eq!(flow_of(&frame(&[&IPV4, &short, &PORTS])), None, "a short header");
    }

    #[test]
    fn a_tag_with_a_priority_alone_is_no_vlan() {
        let bytes = frame(&[&[0x81, 0x00, 0xe0, 0x00], &IPV4, &ipv4(5, 0x4000, 6), &PORTS]);
        assert_eq!(flow_of(&bytes).map(|flow| flow.vlan), Some(None));
    }

    /// Returns a frame with the extension headers and ports of a packet from `::1` to `::2`.
    fn ipv6(next: Protocol, extensions: &[&[u8]]) -> Vec<u8> {
        let mut header = [0; 40];
        (header[0], header[6], header[23], header[39]) = (0x60, next.0, 1, 2);
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
        assert_eq!(flow_of(&ipv6(Protocol::TCP, &[])), Some(found));
        for (place, expected) in [(1, found), (8, ipv6_flow([0, 0], true))] {
            let extension = [Protocol::TCP.0, 0, 0, place, 0, 0, 0, 1];
            assert_eq!(flow_of(&ipv6(FRAGMENT, &[&extension])), Some(expected));
        }
    }

    /// Shows: network: ports of TCP are found after each extension header of IPv6
    #[test]
    fn ipv6_is_read_behind_each_extension_header() {
        let found = Some(ipv6_flow([4000, 5000], false));
        for kind in [HOP_BY_HOP, ROUTING, DESTINATION] {
            for units in [0, 1, 255] {
                let mut extension = vec![0; 8 + usize::from(units) * 8];
                (extension[0], extension[1]) = (Protocol::TCP.0, units);
                let whole = ipv6(kind, &[&extension]);
                assert_eq!(flow_of(&whole), found, "{kind:?} {units}");
                for len in 0..whole.len() {
                    assert_eq!(flow_of(&whole[..len]), None, "{kind:?} {units} {len}");
                }
                extension[0] = 17;
                assert_eq!(flow_of(&ipv6(kind, &[&extension])), None, "UDP behind {kind:?}");
            }
        }
        let [hops, destination] =
            [[FRAGMENT.0, 0, 1, 4, 0, 0, 0, 0], [Protocol::TCP.0, 0, 1, 4, 0, 0, 0, 0]];
        let fragment = |place| [DESTINATION.0, 0, 0, place, 0, 0, 0, 1];
        let mixed = |place| ipv6(HOP_BY_HOP, &[&hops, &fragment(place), &destination]);
        assert_eq!(flow_of(&mixed(1)), found);
        assert_eq!(flow_of(&mixed(8)), Some(ipv6_flow([0, 0], true)), "a later fragment");
    }

    #[test]
    fn too_many_extension_headers_hide_the_ports() {
        let chain = |count: usize, last| {
            let mut headers = vec![[DESTINATION.0, 0, 1, 4, 0, 0, 0, 0]; count];
            headers[count - 1][0] = last;
            ipv6(DESTINATION, &headers.iter().map(<[u8; 8]>::as_slice).collect::<Vec<_>>())
        };
        let found = ipv6_flow([4000, 5000], false);
        assert_eq!(flow_of(&chain(MAX_EXTENSIONS, Protocol::TCP.0)), Some(found));
        assert_eq!(flow_of(&chain(MAX_EXTENSIONS, 17)), None, "UDP");
        let hidden = ipv6_flow([0, 0], true);
        assert_eq!(flow_of(&chain(MAX_EXTENSIONS + 1, Protocol::TCP.0)), Some(hidden));
    }
}
