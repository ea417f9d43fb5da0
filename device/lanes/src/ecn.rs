//! Marks of congestion in IP headers (RFC 3168).

use vrnic_packet::ethernet::{HEADER_LEN, TAG_LEN};
use vrnic_packet::{EtherType, Ethernet, Reader};

/// The ECN bits of a packet that has been marked.
const MARKED: u8 = 3;

/// The result of marking a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The frame has got its mark.
    Set,
    /// The frame had a mark.
    Kept,
    /// The sender of the frame does not react to marks, or the frame is no IP packet.
    Refused,
}

/// Marks a frame, "congestion experienced", if its sender reacts to marks (ECT). The checksum of an
/// IPv4 header stays right if it was right.
///
/// The ICRC of RoCE packets does not cover the bits.
pub fn mark(frame: &mut [u8]) -> Mark {
    let mut from = Reader::new(frame);
    let Ok((ethernet, kind)) = Ethernet::parse(&mut from) else { return Mark::Refused };
    let at = HEADER_LEN + if ethernet.vlan.is_some() { TAG_LEN } else { 0 };
    match (kind, frame.get_mut(at..)) {
        (EtherType::IPV4, Some(packet)) => mark_v4(packet),
        (EtherType::IPV6, Some([_, second, ..])) => {
            let mark = mark_of(*second >> 4);
            if mark == Mark::Set {
                *second |= MARKED << 4;
            }
            mark
        }
        _ => Mark::Refused,
    }
}

/// Marks an IPv4 packet.
fn mark_v4(packet: &mut [u8]) -> Mark {
    let [_, class, _, _, _, _, _, _, _, _, high, low, ..] = packet else { return Mark::Refused };
    let mark = mark_of(*class);
    if mark != Mark::Set {
        return mark;
    }
    // RFC 1624, equation 3. The changed word grows by the bits that are set now.
    let grown = u16::from(MARKED - (*class & MARKED));
    *class |= MARKED;
    let (sum, carry) = (!u16::from_be_bytes([*high, *low])).overflowing_add(grown);
    [*high, *low] = (!(sum + u16::from(carry))).to_be_bytes();
    mark
}

/// Returns what marking a packet does whose ECN bits are the low two bits of this byte.
const fn mark_of(bits: u8) -> Mark {
    match bits & MARKED {
        0 => Mark::Refused,
        MARKED => Mark::Kept,
        _ => Mark::Set,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use vrnic_packet::ip::{Addresses, Ecn, Header, Protocol};
    use vrnic_packet::{Headers, MacAddr, Writer};

    use super::*;

    fn frame(addresses: Addresses, vlan: Option<u16>, traffic_class: u8) -> Vec<u8> {
        let ethernet = Ethernet { destination: MacAddr([2; 6]), source: MacAddr([4; 6]), vlan };
        let network = Header { addresses, traffic_class, hop_limit: 7, flow_label: 0xabcde };
        let network = if let Addresses::V4 { .. } = addresses {
            Header { flow_label: 0, ..network }
        } else {
            network
        };
        let mut bytes = vec![0; ethernet.header_len() + network.header_len() + 8];
        let mut to = Writer::new(&mut bytes);
        ethernet.write(addresses.ether_type(), &mut to).expect("room");
        network.write(Protocol::UDP, 8, 0xfffe, &mut to).expect("room");
        bytes
    }

    #[test]
    fn only_packets_whose_senders_react_are_marked_and_headers_stay_right() {
        let v4 = |last| Addresses::V4 {
            source: Ipv4Addr::new(10, 0, 0, last),
            destination: Ipv4Addr::new(10, 0, 1, 2),
        };
        let v6 = Addresses::V6 { source: Ipv6Addr::LOCALHOST, destination: Ipv6Addr::LOCALHOST };
        for vlan in [None, Some(0x6007)] {
            for addresses in (0..=255).map(v4).chain([v6]) {
                for class in [0x68, 0x69, 0x6a, 0x6b] {
                    let mut bytes = frame(addresses, vlan, class);
                    let expected = [Mark::Refused, Mark::Set, Mark::Set, Mark::Kept];
                    assert_eq!(mark(&mut bytes), expected[usize::from(class & 3)]);
                    let headers = Headers::of(&bytes).expect("IP");
                    assert_eq!(headers.fault, None, "{addresses:?}, {class}");
                    let header = headers.network(&bytes).expect("IP");
                    let expected = if class & 3 == 0 { Ecn::NotCapable } else { Ecn::Marked };
                    assert_eq!((header.ecn(), header.traffic_class >> 2), (expected, 0x1a));
                    assert_eq!(header.flow_label, if addresses == v6 { 0xabcde } else { 0 });
                }
            }
        }
    }

    #[test]
    fn other_and_short_frames_stay_as_they_are() {
        let v4 = Addresses::V4 { source: Ipv4Addr::LOCALHOST, destination: Ipv4Addr::LOCALHOST };
        let whole = frame(v4, None, 2);
        for len in 0..26 {
            let mut short = whole[..len].to_vec();
            assert_eq!(mark(&mut short), Mark::Refused, "{len}");
            assert!(short == whole[..len], "{len}");
        }
        let mut arp = whole;
        arp[13] = 6;
        assert_eq!(mark(&mut arp), Mark::Refused);
    }
}
