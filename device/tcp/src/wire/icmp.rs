//! ICMP notices that a packet was too long for its path (RFC 792, RFC 1191; RFC 4443, RFC 8201).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use vrnic_packet::Reader;
use vrnic_packet::checksum::Sum;

use crate::seq::SeqNum;

const VLAN: [u8; 2] = [0x81, 0x00];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Protocol numbers.
const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Type and code: "fragmentation needed", "packet too big".
const NEEDED: [u8; 2] = [3, 4];
const TOO_BIG: [u8; 2] = [2, 0];
/// Lengths of the headers of IPv4, IPv6 and TCP.
const IPV4_LEN: u16 = 20;
const IPV6_LEN: u16 = 40;
const TCP_LEN: u16 = 20;
/// The minimum MTU that a notice of IPv4 may have, as in Linux (`min_pmtu` in `route.c`). A forged
/// notice cannot make segments shorter than that.
const IPV4_MTU_MIN: u16 = 552;
/// The minimum MTU of IPv6. A notice with a smaller one is not valid (RFC 8201, 4).
const IPV6_MTU_MIN: u32 = 1280;

/// A notice that a segment was too long. It may be forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Priority and identifier of the VLAN in which the notice arrived.
    pub vlan: Option<u16>,
    /// Address and port of the sender of the segment.
    pub source: SocketAddr,
    /// Address and port of its receiver.
    pub destination: SocketAddr,
    /// Its sequence number.
    pub seq: SeqNum,
    /// Maximum number of bytes of payload and options in a segment.
    pub mss: u16,
}

impl TooLong {
    /// Parses a frame. Returns `None` if it is not a valid notice about a TCP segment.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(frame.get(12..)?);
        let mut kind = reader.take().ok()?;
        let mut vlan = None;
        if kind == VLAN {
            vlan = Some(reader.u16().ok()?);
            kind = reader.take().ok()?;
        }
        let ([source, destination], seq, mss) = match kind {
            IPV4 => needed(reader.rest())?,
            IPV6 => too_big(reader.rest())?,
            _ => return None,
        };
        Some(Self { vlan, source, destination, seq, mss })
    }
}

/// The addresses and the number of the segment, and the limit.
type Notice = ([SocketAddr; 2], SeqNum, u16);

fn needed(packet: &[u8]) -> Option<Notice> {
    let (_, ICMP, message) = ipv4(packet)? else { return None };
    let mut reader = Reader::new(message);
    let (kind, [_, _, _, _]) = (reader.take().ok()?, reader.take().ok()?);
    let mtu = reader.u16().ok()?;
    // Routers before RFC 1191 leave the MTU zero.
    if kind != NEEDED || mtu < IPV4_MTU_MIN || Sum::default().bytes(message).finish() != 0 {
        return None;
    }
    let (addresses, TCP, segment) = ipv4(reader.rest())? else { return None };
    let (ports, seq) = ports(segment)?;
    let mss = mtu - IPV4_LEN - TCP_LEN;
    Some((with(addresses.map(IpAddr::V4), ports), seq, mss))
}

fn too_big(packet: &[u8]) -> Option<Notice> {
    let ([source, destination], ICMPV6, message) = ipv6(packet)? else { return None };
    let mut reader = Reader::new(message);
    let (kind, [_, _]) = (reader.take().ok()?, reader.take().ok()?);
    let mtu = reader.u32().ok()?;
    let sum = Sum::default().plus(ICMPV6.into()).plus(u16::try_from(message.len()).ok()?);
    let sum = sum.bytes(&source.octets()).bytes(&destination.octets());
    if kind != TOO_BIG || mtu < IPV6_MTU_MIN || sum.bytes(message).finish() != 0 {
        return None;
    }
    let (addresses, TCP, segment) = ipv6(reader.rest())? else { return None };
    let (ports, seq) = ports(segment)?;
    let mss = u16::try_from(mtu).unwrap_or(u16::MAX) - IPV6_LEN - TCP_LEN;
    Some((with(addresses.map(IpAddr::V6), ports), seq, mss))
}

/// Returns the addresses, the protocol, and the bytes behind the header, which may be cut off.
fn ipv4(packet: &[u8]) -> Option<([Ipv4Addr; 2], u8, &[u8])> {
    let header: &[u8; IPV4_LEN as usize] = packet.first_chunk()?;
    let [first, _, high, low, _, _, more, less, _, protocol, _, _, addresses @ ..] = header;
    let whole = u16::from_be_bytes([*more, *less]) & 0x1fff == 0;
    let len = usize::from(first & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([*high, *low])).min(packet.len());
    if first >> 4 != 4 || len < header.len() || !whole {
        return None;
    }
    let mut addresses = Reader::new(addresses);
    let both = [addresses.take::<4>().ok()?, addresses.take::<4>().ok()?];
    Some((both.map(Ipv4Addr::from), *protocol, packet.get(len..total)?))
}

/// Returns the addresses, the protocol, and the bytes behind the header. Extension headers are not
/// parsed.
fn ipv6(packet: &[u8]) -> Option<([Ipv6Addr; 2], u8, &[u8])> {
    let mut reader = Reader::new(packet);
    let [first, _, _, _, high, low, next, _] = reader.take().ok()?;
    let both = [reader.take::<16>().ok()?, reader.take::<16>().ok()?];
    let rest = reader.rest();
    let len = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
    (first >> 4 == 6).then_some((both.map(Ipv6Addr::from), next, rest.get(..len)?))
}

/// Returns the ports and the number of a segment of which at least eight bytes are present.
fn ports(segment: &[u8]) -> Option<([u16; 2], SeqNum)> {
    let mut reader = Reader::new(segment);
    let ports = [reader.u16().ok()?, reader.u16().ok()?];
    Some((ports, SeqNum(reader.u32().ok()?)))
}

fn with(addresses: [IpAddr; 2], ports: [u16; 2]) -> [SocketAddr; 2] {
    let ([source, destination], [from, to]) = (addresses, ports);
    [SocketAddr::new(source, from), SocketAddr::new(destination, to)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A notice about the first bytes of a segment, with a right checksum.
    fn notice(v6: bool, kind: [u8; 2], mtu: u16) -> Vec<u8> {
        let segment = [0x0f, 0xa0, 0x13, 0x88, 1, 2, 3, 4];
        let [high, low] = mtu.to_be_bytes();
        let mut message = [&kind[..], &[0; 4], &[high, low]].concat();
        let header = |protocol: u8, len: usize| {
            let mut header = if v6 { vec![0x60; 1] } else { vec![0x45] };
            header.resize(if v6 { 40 } else { 20 }, 0);
            let at = if v6 { 4 } else { 2 };
            let total = if v6 { len } else { len + 20 };
            header[at..at + 2].copy_from_slice(&u16::try_from(total).expect("short").to_be_bytes());
            header[if v6 { 6 } else { 9 }] = protocol;
            (header[if v6 { 23 } else { 15 }], header[if v6 { 39 } else { 19 }]) = (1, 2);
            header
        };
        message.extend(header(TCP, 1480));
        message.extend(segment);
        let outer = header(if v6 { ICMPV6 } else { ICMP }, message.len());
        let mut sum = Sum::default();
        if v6 {
            let len = u16::try_from(message.len()).expect("short");
            sum = sum.plus(ICMPV6.into()).plus(len).bytes(&outer[8..]);
        }
        let sum = sum.bytes(&message).finish();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        [&[2; 12], &(if v6 { IPV6 } else { IPV4 })[..], &outer, &message].concat()
    }

    #[test]
    fn notices_name_the_segment_and_the_limit() {
        let parsed = TooLong::parse(&notice(false, NEEDED, 1400)).expect("a notice");
        let address = |ip: &str, port| SocketAddr::new(ip.parse().expect("an address"), port);
        assert_eq!(parsed.source, address("0.0.0.1", 4000));
        assert_eq!(parsed.destination, address("0.0.0.2", 5000));
        assert_eq!((parsed.seq, parsed.mss, parsed.vlan), (SeqNum(0x0102_0304), 1360, None));
        let parsed = TooLong::parse(&notice(true, TOO_BIG, 1400)).expect("a notice");
        assert_eq!((parsed.source, parsed.mss), (address("::1", 4000), 1340));
        let mut tagged = notice(false, NEEDED, 1400);
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        assert_eq!(TooLong::parse(&tagged).and_then(|parsed| parsed.vlan), Some(7));
    }

    #[test]
    fn other_frames_are_none() {
        for (v6, kind, mtu) in [
            (false, [3, 3], 1400),
            (false, NEEDED, 0),
            (false, NEEDED, 551),
            (true, [1, 0], 1400),
            (true, TOO_BIG, 1279),
        ] {
            assert_eq!(TooLong::parse(&notice(v6, kind, mtu)), None, "{kind:?} {mtu}");
        }
        for v6 in [false, true] {
            let frame = notice(v6, if v6 { TOO_BIG } else { NEEDED }, 1400);
            for len in 0..frame.len() {
                assert_eq!(TooLong::parse(&frame[..len]), None, "{len}");
            }
            let mut wrong = frame.clone();
            *wrong.last_mut().expect("bytes") ^= 1;
            assert_eq!(TooLong::parse(&wrong), None, "a wrong checksum");
        }
    }
}
