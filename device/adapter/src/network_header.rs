//! The network header at the beginning of a datagram's receive: 40 bytes, an IPv6 header or, in the
//! last 20 of them, an IPv4 header (IBTA annex A17.4.5.2). Inside a daemon no packet is sent, but
//! the receiver needs the addresses for its answer.

use vrnic_abi::qp::GRH_LEN;
use vrnic_abi::sq::DatagramSeg;

/// The header's bytes.
pub type Header = [u8; GRH_LEN as usize];

/// Length of an IPv4 header without options.
const IPV4_LEN: usize = 20;
/// Length of UDP header, base transport header, datagram extended header and invariant CRC.
const TRANSPORT_LEN: u16 = 8 + 12 + 8 + 4;
/// Protocol number of UDP.
const UDP: u8 = 17;
/// IPv4: "do not fragment", at offset 0.
const DONT_FRAGMENT: u16 = 0x4000;

/// Returns the IPv4 address that a GID maps (RFC 4291, 2.5.5.2), if it maps one.
#[must_use]
pub fn ipv4(gid: &[u8; 16]) -> Option<[u8; 4]> {
    let (prefix, address) = gid.split_last_chunk::<4>()?;
    (prefix == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]).then_some(*address)
}

/// A network header and its family.
#[derive(Clone, Copy, Debug)]
pub struct NetworkHeader {
    /// Its bytes.
    pub bytes: Header,
    /// True if it is an IPv4 header.
    pub ipv4: bool,
}

/// Returns the header of a datagram with `payload` bytes behind the transport headers.
#[must_use]
pub fn header(source: &[u8; 16], destination: &DatagramSeg, payload: u16) -> NetworkHeader {
    let length = TRANSPORT_LEN.saturating_add(payload.next_multiple_of(4));
    match (ipv4(source), ipv4(&destination.av.dgid)) {
        (Some(source), Some(to)) => {
            NetworkHeader { bytes: ipv4_header(source, to, destination, length), ipv4: true }
        }
        _ => NetworkHeader { bytes: ipv6_header(source, destination, length), ipv4: false },
    }
}

fn ipv4_header(source: [u8; 4], to: [u8; 4], destination: &DatagramSeg, length: u16) -> Header {
    let av = &destination.av;
    let mut ip = [0; IPV4_LEN];
    let total = length.saturating_add(IPV4_LEN as u16).to_be_bytes();
    put(&mut ip, 0, &[0x45, av.traffic_class]);
    put(&mut ip, 2, &total);
    put(&mut ip, 6, &DONT_FRAGMENT.to_be_bytes());
    put(&mut ip, 8, &[av.hop_limit, UDP]);
    put(&mut ip, 12, &source);
    put(&mut ip, 16, &to);
    let check = checksum(&ip).to_be_bytes();
    put(&mut ip, 10, &check);
    let mut header = [0; GRH_LEN as usize];
    put(&mut header, GRH_LEN as usize - IPV4_LEN, &ip);
    header
}

fn ipv6_header(source: &[u8; 16], destination: &DatagramSeg, length: u16) -> Header {
    let av = &destination.av;
    let flow = av.flow_label.get() & 0x000f_ffff;
    let first = 6 << 28 | u32::from(av.traffic_class) << 20 | flow;
    let mut header = [0; GRH_LEN as usize];
    put(&mut header, 0, &first.to_be_bytes());
    put(&mut header, 4, &length.to_be_bytes());
    put(&mut header, 6, &[UDP, av.hop_limit]);
    put(&mut header, 8, source);
    put(&mut header, 24, &av.dgid);
    header
}

/// Copies bytes to an offset. All offsets are constants inside of the header.
fn put(header: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = header.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

/// Returns the Internet checksum (RFC 1071) of a header whose checksum field is zero.
fn checksum(header: &[u8; IPV4_LEN]) -> u16 {
    let words = header.as_chunks::<2>().0.iter();
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    // CAST: two folds of ten words leave 16 bits.
    !(((folded & 0xffff) + (folded >> 16)) as u16)
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
