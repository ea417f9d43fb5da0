//! The header with IP addresses at the begin of the private data of requests, and the service IDs
//! of ports (the standard's annex on service IDs for IP).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 36;
/// Version of the header.
const VERSION: u8 = 0;

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The port of the sender.
    pub port: u16,
    /// The address of the sender.
    pub source: IpAddr,
    /// The address of the receiver, of the same family.
    pub dest: IpAddr,
}

impl Addresses {
    /// Returns the bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let version = if self.source.is_ipv4() { 4u8 } else { 6 };
        let [high, low] = self.port.to_be_bytes();
        let parts = [octets(self.source), octets(self.dest)].concat();
        let mut bytes = [0; HEADER_LEN];
        let all = [VERSION, version << 4, high, low].into_iter().chain(parts);
        bytes.iter_mut().zip(all).for_each(|(to, from)| *to = from);
        bytes
    }

    /// Returns the header at the begin of private data. `None` if there is none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, _) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let [version, family, high, low, addresses @ ..] = header;
        let (source, rest) = addresses.split_first_chunk::<16>()?;
        let (dest, _) = rest.split_first_chunk::<16>()?;
        if *version != VERSION {
            return None;
        }
        let address = match family >> 4 {
            4 => |bytes: &[u8; 16]| {
                let [.., a, b, c, d] = *bytes;
                IpAddr::from(Ipv4Addr::new(a, b, c, d))
            },
            6 => |bytes: &[u8; 16]| IpAddr::from(Ipv6Addr::from(*bytes)),
            _ => return None,
        };
        let port = u16::from_be_bytes([*high, *low]);
        Some(Self { port, source: address(source), dest: address(dest) })
    }
}

/// Returns an address in 16 bytes. IPv4 has the last four.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)).to_be_bytes(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Returns the service ID of a port in a port space.
#[must_use]
pub fn service(space: u16, port: u16) -> u64 {
    u64::from(space) << 16 | u64::from(port)
}

/// Returns the port space and the port of a service ID. `None` if it is not one of a port.
#[must_use]
pub fn port(service: u64) -> Option<(u16, u16)> {
    // CAST: each takes 16 bits.
    (service >> 32 == 0).then_some(((service >> 16) as u16, service as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_were_written() {
        let v4 = |last| IpAddr::from([127, 0, 0, last]);
        let four = Addresses { port: 0x1234, source: v4(1), dest: v4(2) };
        let bytes = four.encode();
        assert_eq!(bytes[..4], [0, 0x40, 0x12, 0x34]);
        assert_eq!(bytes[16..20], [127, 0, 0, 1]);
        assert_eq!(Addresses::decode(&bytes), Some(four));
        let v6 = |last| IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, last]);
        let six = Addresses { port: 1, source: v6(1), dest: v6(2) };
        assert_eq!(Addresses::decode(&[six.encode().to_vec(), vec![9; 56]].concat()), Some(six));
    }

    #[test]
    fn other_private_data_has_no_addresses() {
        assert_eq!(Addresses::decode(&[0; HEADER_LEN]), None);
        assert_eq!(Addresses::decode(&[0x40; HEADER_LEN]), None);
        assert_eq!(Addresses::decode(&[0, 0x40]), None);
    }

    #[test]
    fn ports_have_service_ids() {
        assert_eq!(service(0x106, 7174), 0x106_1c06);
        assert_eq!((port(0x106_1c06), port(1 << 32)), (Some((0x106, 7174)), None));
    }
}
