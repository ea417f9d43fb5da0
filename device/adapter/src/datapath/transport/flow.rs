//! The addresses of a frame that carries TCP, read only from its headers. Nothing else of it is
//! checked, because a network card may send frames whose checksums are incomplete.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::objects::claims::vlan_of;

const VLAN: [u8; 2] = [0x81, 0x00];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Protocol numbers of TCP, and of the fragment header of IPv6.
const TCP: u8 = 6;
const FRAGMENT: u8 = 44;

/// The addresses of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// The VLAN identifier.
    pub(crate) vlan: Option<u16>,
    /// The sender. The port is zero in all fragments of a segment except the first one.
    pub(crate) source: SocketAddr,
    /// The receiver. The port is zero in all fragments of a segment except the first one.
    pub(crate) destination: SocketAddr,
    /// True for a fragment that has no ports.
    pub(crate) fragment: bool,
}

impl Flow {
    /// Reads the headers of a frame. Returns `None` if it does not carry TCP.
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let mut rest = frame.get(12..)?;
        let mut kind = take(&mut rest)?;
        let mut vlan = None;
        if kind == VLAN {
            vlan = vlan_of(u16::from_be_bytes(take(&mut rest)?));
            kind = take(&mut rest)?;
        }
        let (addresses, fragment) = match kind {
            IPV4 => v4(&mut rest)?,
            IPV6 => v6(&mut rest)?,
            _ => return None,
        };
        let mut ports = [0; 2];
        if !fragment {
            for port in &mut ports {
                *port = u16::from_be_bytes(take(&mut rest)?);
            }
        }
        let [source, destination] = addresses;
        let (source, destination) =
            (SocketAddr::new(source, ports[0]), SocketAddr::new(destination, ports[1]));
        Some(Self { vlan, source, destination, fragment })
    }
}

/// Takes the first `N` bytes.
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

/// Parses an IPv4 header with its options. Returns the addresses, and whether this is a fragment
/// without a TCP header.
fn v4(rest: &mut &[u8]) -> Option<([IpAddr; 2], bool)> {
    let [first, _, _, _, _, _, high, low, _, protocol, _, _] = take(rest)?;
    let addresses: [[u8; 4]; 2] = [take(rest)?, take(rest)?];
    let options = (usize::from(first & 0x0f) * 4).checked_sub(20)?;
    *rest = rest.get(options..)?;
    let fragment = u16::from_be_bytes([high, low]) & 0x1fff != 0;
    let is_tcp = first >> 4 == 4 && protocol == TCP;
    is_tcp.then_some((addresses.map(|address| Ipv4Addr::from(address).into()), fragment))
}

/// Parses an IPv6 header. Returns the addresses, and whether this is a fragment without a TCP
/// header. Extension headers other than the fragment header are not parsed.
fn v6(rest: &mut &[u8]) -> Option<([IpAddr; 2], bool)> {
    let [_, _, _, _, _, _, mut next, _] = take(rest)?;
    let addresses: [[u8; 16]; 2] = [take(rest)?, take(rest)?];
    let mut fragment = false;
    if next == FRAGMENT {
        let [behind, _, high, low, _, _, _, _] = take(rest)?;
        fragment = u16::from_be_bytes([high, low]) & 0xfff8 != 0;
        next = behind;
    }
    (next == TCP).then_some((addresses.map(|address| Ipv6Addr::from(address).into()), fragment))
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
            let flow = Flow { vlan, source, destination, fragment: false };
            assert_eq!(Flow::of(&bytes), Some(flow));
            for len in 0..bytes.len() {
                assert_eq!(Flow::of(&bytes[..len]), None, "{len}");
            }
        }
        let bytes = frame(&[&IPV4, &ipv4(5, 0x2001, 6), &PORTS]);
        let (source, destination) = addresses([0, 0]);
        assert_eq!(
            Flow::of(&bytes),
            Some(Flow { vlan: None, source, destination, fragment: true })
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

    #[test]
    fn ipv6_is_read_behind_a_fragment_header() {
        let mut header = [0; 40];
        header[0] = 0x60;
        (header[23], header[39]) = (1, 2);
        let flow = |ports: [u16; 2], fragment| {
            let address = |last, port| SocketAddr::new(Ipv6Addr::from_bits(last).into(), port);
            let (source, destination) = (address(1, ports[0]), address(2, ports[1]));
            Flow { vlan: None, source, destination, fragment }
        };
        header[6] = TCP;
        let whole = Flow::of(&frame(&[&IPV6, &header, &PORTS]));
        assert_eq!(whole, Some(flow([4000, 5000], false)));
        header[6] = FRAGMENT;
        for (place, expected) in [(1, flow([4000, 5000], false)), (8, flow([0, 0], true))] {
            let extension = [TCP, 0, 0, place, 0, 0, 0, 1];
            assert_eq!(Flow::of(&frame(&[&IPV6, &header, &extension, &PORTS])), Some(expected));
        }
    }
}
