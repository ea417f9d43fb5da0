//! ICMP notices that a packet was too long for its path (RFC 792, RFC 1191; RFC 4443, RFC 8201).

use std::net::SocketAddr;

use vrnic_packet::checksum::Sum;
use vrnic_packet::ip::{Fault, Packet, Protocol, V4_LEN, V6_LEN};
use vrnic_packet::{EtherType, Headers, Reader};

use super::frame::TCP_LEN;
use crate::seq::SeqNum;

/// Type and code: "fragmentation needed", "packet too big".
const NEEDED: [u8; 2] = [3, 4];
const TOO_BIG: [u8; 2] = [2, 0];
/// Lengths of the headers of a segment without options.
const V4_HEADERS: u16 = (V4_LEN + TCP_LEN) as u16;
const V6_HEADERS: u16 = (V6_LEN + TCP_LEN) as u16;
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
    /// The sequence number of the segment.
    pub seq: SeqNum,
    /// Maximum number of bytes of payload and options in a segment.
    pub mss: u16,
}

impl TooLong {
    /// Parses a frame after these headers. Returns `None` if it is not a valid notice about a TCP
    /// segment.
    #[must_use]
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Self> {
        let (packet, _) = headers.packet(frame)?;
        if !begins(&packet) {
            return None;
        }
        let ([source, destination], seq, mss) = match packet.protocol {
            Protocol::ICMP => needed(&packet)?,
            Protocol::ICMPV6 => too_big(&packet)?,
            _ => return None,
        };
        Some(Self { vlan: headers.vlan, source, destination, seq, mss })
    }
}

/// The addresses and the number of the segment, and the limit.
type Notice = ([SocketAddr; 2], SeqNum, u16);

fn needed(packet: &Packet<'_>) -> Option<Notice> {
    let mut reader = Reader::new(packet.payload);
    let (kind, [_, _, _, _]) = (reader.take().ok()?, reader.take().ok()?);
    let mtu = reader.u16().ok()?;
    let is_right = Sum::default().bytes(packet.payload).finish() == 0;
    // Routers before RFC 1191 leave the MTU zero.
    if packet.header.addresses.ether_type() != EtherType::IPV4
        || kind != NEEDED
        || mtu < IPV4_MTU_MIN
        || !is_right
    {
        return None;
    }
    segment(EtherType::IPV4, reader.rest(), mtu - V4_HEADERS)
}

fn too_big(packet: &Packet<'_>) -> Option<Notice> {
    let mut reader = Reader::new(packet.payload);
    let (kind, [_, _]) = (reader.take().ok()?, reader.take().ok()?);
    let mtu = reader.u32().ok()?;
    if packet.header.addresses.ether_type() != EtherType::IPV6
        || kind != TOO_BIG
        || mtu < IPV6_MTU_MIN
        || packet.checksum() != 0
    {
        return None;
    }
    let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
    segment(EtherType::IPV6, reader.rest(), mtu - V6_HEADERS)
}

/// Parses the packet that was too long, of which at least the first eight bytes of its segment are
/// present.
fn segment(kind: EtherType, bytes: &[u8], mss: u16) -> Option<Notice> {
    let packet = Packet::parse(kind, bytes).ok()??;
    if packet.protocol != Protocol::TCP || !begins(&packet) {
        return None;
    }
    let addresses = packet.header.addresses;
    let mut reader = Reader::new(packet.payload);
    let source = SocketAddr::new(addresses.source(), reader.u16().ok()?);
    let destination = SocketAddr::new(addresses.destination(), reader.u16().ok()?);
    Some(([source, destination], SeqNum(reader.u32().ok()?), mss))
}

/// Returns whether the payload of an IP packet, which may have options and may be cut off, begins
/// with the header of its protocol.
const fn begins(packet: &Packet<'_>) -> bool {
    !matches!(packet.fault, Some(Fault::Version | Fault::HeaderLength)) && !packet.is_later_fragment
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A notice about the first bytes of a segment, with a right checksum.
    fn notice(v6: bool, kind: [u8; 2], mtu: u16) -> Vec<u8> {
        let segment = [0x0f, 0xa0, 0x13, 0x88, 1, 2, 3, 4];
        let [high, low] = mtu.to_be_bytes();
        let mut message = [&kind[..], &[0; 4], &[high, low]].concat();
        let header = |protocol: Protocol, len: usize| {
            let mut header = if v6 { vec![0x60; 1] } else { vec![0x45] };
            header.resize(if v6 { 40 } else { 20 }, 0);
            let at = if v6 { 4 } else { 2 };
            let total = if v6 { len } else { len + 20 };
            header[at..at + 2].copy_from_slice(&u16::try_from(total).expect("short").to_be_bytes());
            header[if v6 { 6 } else { 9 }] = protocol.0;
            (header[if v6 { 23 } else { 15 }], header[if v6 { 39 } else { 19 }]) = (1, 2);
            header
        };
        message.extend(header(Protocol::TCP, 1480));
        message.extend(segment);
        let outer = header(if v6 { Protocol::ICMPV6 } else { Protocol::ICMP }, message.len());
        let mut sum = Sum::default();
        if v6 {
            let len = u16::try_from(message.len()).expect("short");
            sum = sum.plus(Protocol::ICMPV6.0.into()).plus(len).bytes(&outer[8..]);
        }
        let sum = sum.bytes(&message).finish();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let kind = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        [&[2; 12], &kind.0.to_be_bytes()[..], &outer, &message].concat()
    }

    fn parse(frame: &[u8]) -> Option<TooLong> {
        TooLong::of(frame, &Headers::of(frame)?)
    }

    #[test]
    fn notices_name_the_segment_and_the_limit() {
        let parsed = parse(&notice(false, NEEDED, 1400)).expect("a notice");
        let address = |ip: &str, port| SocketAddr::new(ip.parse().expect("an address"), port);
        assert_eq!(parsed.source, address("0.0.0.1", 4000));
        assert_eq!(parsed.destination, address("0.0.0.2", 5000));
        assert_eq!((parsed.seq, parsed.mss, parsed.vlan), (SeqNum(0x0102_0304), 1360, None));
        let parsed = parse(&notice(true, TOO_BIG, 1400)).expect("a notice");
        assert_eq!((parsed.source, parsed.mss), (address("::1", 4000), 1340));
        let mut tagged = notice(false, NEEDED, 1400);
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        assert_eq!(parse(&tagged).and_then(|parsed| parsed.vlan), Some(7));
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
            assert_eq!(parse(&notice(v6, kind, mtu)), None, "{kind:?} {mtu}");
        }
        for v6 in [false, true] {
            let frame = notice(v6, if v6 { TOO_BIG } else { NEEDED }, 1400);
            for len in 0..frame.len() {
                assert_eq!(parse(&frame[..len]), None, "{len}");
            }
            let mut wrong = frame.clone();
            *wrong.last_mut().expect("bytes") ^= 1;
            assert_eq!(parse(&wrong), None, "a wrong checksum");
        }
    }
}
