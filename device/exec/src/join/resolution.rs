//! The formats of address resolution: ARP for IPv4 (RFC 826), and neighbour discovery for IPv6 (RFC
//! 4861).

use std::net::Ipv6Addr;

use vrnic_adapter::ethernet::Frame;
use vrnic_cm::parameters::Gid;
use vrnic_packet::MacAddr;
use vrnic_packet::checksum::Sum;

use crate::trap::tree::ipv4_gid;

/// The MAC of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// The address. One of IPv4 has the form of IPv6.
    pub gid: Gid,
    /// The MAC.
    pub mac: [u8; 6],
}

/// The contents of a frame about addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The sender. None if it does not have its address yet.
    pub sender: Option<Neighbor>,
    /// The sender's MAC.
    pub mac: [u8; 6],
    /// The address that the sender asks for, if it asks.
    pub wanted: Option<Gid>,
}

const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// The begin of ARP for IPv4 on Ethernet.
const ARP_HEAD: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
/// Length of the shortest frame.
const FRAME_MIN: usize = 60;
const BROADCAST: [u8; 6] = [0xff; 6];
/// `IPPROTO_ICMPV6`, and the hop limit of neighbour discovery.
const ICMPV6: u8 = 58;
const HOP_LIMIT: u8 = 255;
/// Types of messages of ICMPv6, and of their options.
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const TARGET_MAC: u8 = 2;
/// Flags of an advertisement: an answer, and one that replaces what was known.
const SOLICITED: u8 = 1 << 6;
const OVERRIDE: u8 = 1 << 5;
/// Length of a solicitation without options in bytes.
const SOLICITATION_LEN: usize = 24;

/// Returns the IPv4 address of a GID.
fn ipv4(gid: &Gid) -> Option<[u8; 4]> {
    Ipv6Addr::from(*gid).to_ipv4_mapped().map(|address| address.octets())
}

/// Returns what a frame says about addresses. `None` if it is of something else, or malformed.
#[must_use]
pub fn parse(frame: &[u8]) -> Option<Heard> {
    let (_, rest) = frame.split_at_checked(12)?;
    let (kind, body) = rest.split_first_chunk::<2>()?;
    match *kind {
        ARP => parse_arp(body),
        IPV6 => parse_solicitation(frame.get(6..12)?.try_into().ok()?, body),
        _ => None,
    }
}

fn parse_arp(body: &[u8]) -> Option<Heard> {
    let (head, rest) = body.split_first_chunk::<6>()?;
    let (operation, rest) = rest.split_first_chunk::<2>()?;
    let (mac, rest) = rest.split_first_chunk::<6>()?;
    let (source, rest) = rest.split_first_chunk::<4>()?;
    let (_, rest) = rest.split_first_chunk::<6>()?;
    let (target, _) = rest.split_first_chunk::<4>()?;
    let known = matches!(operation, [0, REQUEST | REPLY]);
    if *head != ARP_HEAD || !known || !is_station(mac) {
        return None;
    }
    let sender = Neighbor { gid: ipv4_gid((*source).into()), mac: *mac };
    let wanted = (operation[1] == REQUEST).then_some(ipv4_gid((*target).into()));
    Some(Heard { sender: Some(sender).filter(|_| *source != [0; 4]), mac: *mac, wanted })
}

/// Returns whether a MAC is that of one station.
fn is_station(mac: &[u8; 6]) -> bool {
    !MacAddr(*mac).is_group() && *mac != [0; 6]
}

/// Reads a neighbour solicitation. The MAC of the sender is that of the frame.
fn parse_solicitation(mac: [u8; 6], packet: &[u8]) -> Option<Heard> {
    let (head, rest) = packet.split_first_chunk::<8>()?;
    let (source, rest) = rest.split_first_chunk::<16>()?;
    let (dest, rest) = rest.split_first_chunk::<16>()?;
    let [version, _, _, _, high, low, protocol, hop_limit] = *head;
    let message = rest.get(..usize::from(u16::from_be_bytes([high, low])))?;
    let (icmp, target) = message.get(..SOLICITATION_LEN)?.split_first_chunk::<8>()?;
    let right = version >> 4 == 6
        && protocol == ICMPV6
        && hop_limit == HOP_LIMIT
        && icmp.starts_with(&[SOLICITATION, 0])
        && checksum(source, dest, message) == 0
        && is_station(&mac);
    if !right {
        return None;
    }
    let sender = Neighbor { gid: *source, mac };
    let wanted = Some(target.try_into().ok()?);
    Some(Heard { sender: Some(sender).filter(|_| *source != [0; 16]), mac, wanted })
}

/// Returns the checksum of a message of ICMPv6, which is zero if the message has a right one.
fn checksum(source: &Gid, dest: &Gid, message: &[u8]) -> u16 {
    let len = u16::try_from(message.len()).unwrap_or(u16::MAX);
    let sum = Sum::default().bytes(source).bytes(dest).plus(len).plus(ICMPV6.into());
    sum.bytes(message).finish()
}

/// Returns a frame of these parts, at least as long as the shortest one.
fn frame(parts: &[&[u8]]) -> Frame {
    let mut bytes = parts.concat();
    bytes.resize(bytes.len().max(FRAME_MIN), 0);
    Frame::new(bytes)
}

fn arp(to: &[u8; 6], operation: u8, from: (&[u8; 6], [u8; 4]), dest: (&[u8; 6], [u8; 4])) -> Frame {
    let operation = [0, operation];
    let head: [&[u8]; 4] = [to, from.0, &ARP, &ARP_HEAD];
    frame(&[&head.concat(), &operation, from.0, &from.1, dest.0, &dest.1])
}

/// Returns a question of a station for the MAC of another address, if both are of IPv4.
#[must_use]
pub fn question(own: &Neighbor, wanted: &Gid) -> Option<Frame> {
    let (own_ip, wanted) = (ipv4(&own.gid)?, ipv4(wanted)?);
    Some(arp(&BROADCAST, REQUEST, (&own.mac, own_ip), (&[0; 6], wanted)))
}

/// Returns a question of a station whether somebody has its address, which is not in use yet (RFC
/// 5227). `None` if the address is not of IPv4.
#[must_use]
pub fn probe(own: &Neighbor) -> Option<Frame> {
    Some(arp(&BROADCAST, REQUEST, (&own.mac, [0; 4]), (&[0; 6], ipv4(&own.gid)?)))
}

/// Returns what tells all stations the MAC of an address of IPv4.
#[must_use]
pub fn announcement(own: &Neighbor) -> Option<Frame> {
    let address = ipv4(&own.gid)?;
    Some(arp(&BROADCAST, REQUEST, (&own.mac, address), (&[0; 6], address)))
}

/// Returns the answer of a station to what asks for its address.
#[must_use]
pub fn answer(own: &Neighbor, heard: &Heard) -> Option<Frame> {
    if let Some(own_ip) = ipv4(&own.gid) {
        let peer = heard.sender.and_then(|sender| ipv4(&sender.gid)).unwrap_or_default();
        return Some(arp(&heard.mac, REPLY, (&own.mac, own_ip), (&heard.mac, peer)));
    }
    // A station without an address receives what is sent to all nodes.
    let all = ([0x33, 0x33, 0, 0, 0, 1], Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets());
    let (to, dest) = heard.sender.map_or(all, |sender| (sender.mac, sender.gid));
    let solicited = if heard.sender.is_some() { SOLICITED } else { 0 };
    let message = |sum: [u8; 2]| {
        let head = [ADVERTISEMENT, 0, sum[0], sum[1], solicited | OVERRIDE, 0, 0, 0];
        [&head[..], &own.gid, &[TARGET_MAC, 1], &own.mac].concat()
    };
    let sum = checksum(&own.gid, &dest, &message([0; 2]));
    let message = message(sum.to_be_bytes());
    let len = u16::try_from(message.len()).ok()?.to_be_bytes();
    let head = [0x60, 0, 0, 0, len[0], len[1], ICMPV6, HOP_LIMIT];
    Some(frame(&[&to, &own.mac, &IPV6, &head, &own.gid, &dest, &message]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: Neighbor = Neighbor { gid: mapped_gid([127, 0, 0, 1]), mac: [2, 0, 0, 0, 0, 1] };
    const PEER: Neighbor = Neighbor { gid: mapped_gid([127, 0, 0, 2]), mac: [2, 0, 0, 0, 0, 2] };

    const fn mapped_gid([a, b, c, d]: [u8; 4]) -> Gid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
    }

    #[test]
    fn a_question_gets_an_answer() {
        let question = question(&OWN, &PEER.gid).expect("IPv4");
        assert_eq!(question.bytes().len(), 60);
        assert_eq!(question.bytes()[..8], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0]);
        let heard = parse(question.bytes()).expect("a question");
        assert_eq!((heard.sender, heard.wanted), (Some(OWN), Some(PEER.gid)));
        let answer = answer(&PEER, &heard).expect("an answer");
        assert_eq!(answer.bytes()[..6], OWN.mac);
        let heard = parse(answer.bytes()).expect("an answer");
        assert_eq!((heard.sender, heard.wanted), (Some(PEER), None));
    }

    #[test]
    fn a_probe_has_no_sender_and_gets_an_answer() {
        let heard = parse(probe(&OWN).expect("IPv4").bytes()).expect("a question");
        assert_eq!((heard.sender, heard.mac, heard.wanted), (None, OWN.mac, Some(OWN.gid)));
        let other = Neighbor { mac: PEER.mac, ..OWN };
        let answer = answer(&other, &heard).expect("an answer");
        assert_eq!(parse(answer.bytes()).expect("an answer").sender, Some(other));
    }

    /// Returns a solicitation, as Linux sends it.
    fn solicitation(source: Gid, dest: Gid, target: Gid) -> Vec<u8> {
        let message = |sum: [u8; 2]| {
            let head = [SOLICITATION, 0, sum[0], sum[1], 0, 0, 0, 0];
            [&head[..], &target, &[1, 1], &PEER.mac].concat()
        };
        let message = message(checksum(&source, &dest, &message([0; 2])).to_be_bytes());
        let head = [0x60, 0, 0, 0, 0, message.len() as u8, ICMPV6, HOP_LIMIT];
        let to = [0x33, 0x33, 0xff, 0, 0, 1];
        [&to[..], &PEER.mac, &IPV6, &head, &source, &dest, &message].concat()
    }

    #[test]
    fn a_solicitation_gets_an_advertisement() {
        let address = |last| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last).octets();
        let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1).octets();
        let own = Neighbor { gid: address(1), mac: OWN.mac };
        let peer = Neighbor { gid: address(2), mac: PEER.mac };
        let bytes = solicitation(peer.gid, group, own.gid);
        let heard = parse(&bytes).expect("a question");
        assert_eq!((heard.sender, heard.wanted), (Some(peer), Some(own.gid)));
        let answer = answer(&own, &heard).expect("an answer");
        let packet = &answer.bytes()[14..];
        assert_eq!((answer.bytes()[..6].to_vec(), packet[40]), (peer.mac.to_vec(), ADVERTISEMENT));
        assert_eq!(checksum(&own.gid, &peer.gid, &packet[40..72]), 0);
        assert_eq!(packet[64..72], [TARGET_MAC, 1, 2, 0, 0, 0, 0, 1]);
        for byte in [20, 21, 54, 60] {
            let mut other = bytes.clone();
            other[byte] ^= 1;
            assert!(parse(&other).is_none(), "byte {byte}");
        }
    }

    proptest! {
        #![proptest_config(vrnic_cases::config(1000))]

        /// Shows: hostile: frames of any content that are about addresses
        #[test]
        fn any_frame_is_read_within_bounds(
            head in any::<[u8; 12]>(), arp in any::<bool>(), body in any::<Vec<u8>>(),
        ) {
            let kind = if arp { [&ARP[..], &ARP_HEAD, &[0, REQUEST]].concat() } else { IPV6.to_vec() };
            let bytes = [&head[..], &kind, &body].concat();
            if let Some(heard) = parse(&bytes) {
                prop_assert!(is_station(&heard.mac));
            }
        }
    }
}
