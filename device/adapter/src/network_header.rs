//! The network header at the beginning of a datagram's receive: 40 bytes, an IPv6 header or, in the
//! last 20 of them, an IPv4 header (IBTA annex A17.4.5.2). Inside a daemon no packet is sent, but
//! the receiver needs the addresses for its answer.

use vrnic_abi::qp::GRH_LEN;
use vrnic_abi::sq::DatagramSeg;
use vrnic_packet::Writer;
use vrnic_packet::ip::{self, Addresses, Protocol};

/// The header's bytes.
pub type Header = [u8; GRH_LEN as usize];

/// Length of UDP header, base transport header, datagram extended header and invariant CRC.
const TRANSPORT_LEN: usize = 8 + 12 + 8 + 4;

/// A network header and its family.
#[derive(Clone, Copy, Debug)]
pub struct NetworkHeader {
    /// The bytes of the header.
    pub bytes: Header,
    /// True if it is an IPv4 header.
    pub ipv4: bool,
}

/// Returns the header of a datagram with `payload` bytes after the transport headers. If only one
/// of the GIDs maps an IPv4 address, it is an IPv6 header with both GIDs.
#[must_use]
pub fn header(source: &[u8; 16], destination: &DatagramSeg, payload: u16) -> NetworkHeader {
    let av = &destination.av;
    let (source, dgid) = (*source, av.dgid);
    let addresses = Addresses::from_gids(source, dgid)
        .unwrap_or(Addresses::V6 { source: source.into(), destination: dgid.into() });
    let ipv4 = matches!(addresses, Addresses::V4 { .. });
    let flow_label = if ipv4 { 0 } else { av.flow_label.get() };
    let (traffic_class, hop_limit) = (av.traffic_class, av.hop_limit);
    let header = ip::Header { addresses, traffic_class, hop_limit, flow_label };
    let length = TRANSPORT_LEN + usize::from(payload).next_multiple_of(4);
    let mut bytes = [0; GRH_LEN as usize];
    let place = bytes.get_mut(GRH_LEN as usize - header.header_len()..).unwrap_or_default();
    // There is room, because no datagram is longer than the MTU.
    let _written = header.write(Protocol::UDP, length, 0, &mut Writer::new(place));
    NetworkHeader { bytes, ipv4 }
}

#[cfg(test)]
mod tests {
    use vrnic_abi::qp::AddressVector;

    use super::*;

    const A: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1];
    const B: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 2];
    const LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 3, 4, 0xff, 0xfe, 5, 6, 7];

    fn to(dgid: [u8; 16]) -> DatagramSeg {
        let av = AddressVector {
            dgid,
            hop_limit: 64,
            traffic_class: 0xa5,
            flow_label: 0xfff1_2345.into(),
            ..AddressVector::default()
        };
        DatagramSeg { av, ..DatagramSeg::default() }
    }

    #[test]
    fn ipv4_stands_in_the_last_twenty_bytes_with_a_valid_checksum() {
        let NetworkHeader { bytes: header, ipv4 } = header(&A, &to(B), 5);
        assert!(ipv4);
        assert_eq!(header[..20], [0; 20]);
        assert_eq!(header[20..24], [0x45, 0xa5, 0, 20 + 32 + 8]);
        assert_eq!(header[28..30], [64, 17]);
        assert_eq!(header[32..], [10, 9, 0, 1, 10, 9, 0, 2]);
        // RFC 1071: the sum over the whole, checksum included, is all ones.
        let words = header[20..].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum: u32 = words.sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }

    #[test]
    fn ipv6_fills_the_forty_bytes() {
        let NetworkHeader { bytes: header, ipv4 } = header(&LOCAL, &to(LOCAL), 4096);
        assert!(!ipv4);
        assert_eq!(header[..4], [0x6a, 0x51, 0x23, 0x45]);
        assert_eq!(u16::from_be_bytes([header[4], header[5]]), 4096 + 32);
        assert_eq!(header[6..8], [17, 64]);
        assert_eq!(header[8..24], LOCAL);
        assert_eq!(header[24..], LOCAL);
    }

    #[test]
    fn mixed_families_are_ipv6() {
        assert!(!header(&A, &to(LOCAL), 0).ipv4);
        assert!(!header(&LOCAL, &to(B), 0).ipv4);
    }
}
