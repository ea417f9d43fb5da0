//! Socket addresses, as programs pass them (`struct sockaddr_in` and `struct sockaddr_in6`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use rustix::io::Errno;

use super::wire::{IN6_LEN, STORAGE_LEN};

/// `AF_INET`, `AF_INET6` and `AF_IB`.
const INET: u16 = 2;
const INET6: u16 = 10;
const IB: u16 = 27;
/// Length of a `struct sockaddr_in` in bytes.
const IN_LEN: usize = 16;

/// Returns the family of an address: zero if there is none.
fn family(bytes: &[u8]) -> u16 {
    bytes.first_chunk().map_or(0, |family| u16::from_ne_bytes(*family))
}

/// Returns the address in a field for IPv6, or a larger one.
///
/// # Errors
/// `ENODEV` for addresses of InfiniBand, because no adapter is one; `EINVAL` for other families.
pub fn decode(bytes: &[u8]) -> Result<SocketAddr, Errno> {
    let field: &[u8; IN6_LEN] = bytes.first_chunk().ok_or(Errno::INVAL)?;
    let [_, _, high, low, a, b, c, d, rest @ ..] = field;
    let port = u16::from_be_bytes([*high, *low]);
    match family(bytes) {
        INET => Ok(SocketAddrV4::new(Ipv4Addr::new(*a, *b, *c, *d), port).into()),
        INET6 => {
            let flow = u32::from_be_bytes([*a, *b, *c, *d]);
            let (address, scope) = rest.split_first_chunk::<16>().ok_or(Errno::INVAL)?;
            let scope = scope.try_into().map(u32::from_ne_bytes).map_err(|_| Errno::INVAL)?;
            Ok(SocketAddrV6::new(Ipv6Addr::from(*address), port, flow, scope).into())
        }
        IB => Err(Errno::NODEV),
        _ => Err(Errno::INVAL),
    }
}

/// Returns the address in a field that may be empty.
///
/// # Errors
/// The errors of [`decode`].
pub fn decode_optional(bytes: &[u8]) -> Result<Option<SocketAddr>, Errno> {
    if family(bytes) == 0 { Ok(None) } else { decode(bytes).map(Some) }
}

/// Returns the address in a field, of which the program says that it has this length.
///
/// # Errors
/// The errors of [`decode`], and `EINVAL` for another length.
pub fn decode_sized(bytes: &[u8], size: u16) -> Result<SocketAddr, Errno> {
    let address = decode(bytes)?;
    if usize::from(size) == len(&address) { Ok(address) } else { Err(Errno::INVAL) }
}

/// Returns the length of an address in bytes.
#[must_use]
pub fn len(address: &SocketAddr) -> usize {
    if address.is_ipv4() { IN_LEN } else { IN6_LEN }
}

/// Returns the bytes of an address, in a field for IPv6. No address is zeroes.
#[must_use]
pub fn encode(address: Option<&SocketAddr>) -> [u8; IN6_LEN] {
    let mut bytes = [0; IN6_LEN];
    let Some(address) = address else { return bytes };
    let port = address.port().to_be_bytes();
    let parts: Vec<u8> = match address {
        SocketAddr::V4(v4) => [&INET.to_ne_bytes()[..], &port, &v4.ip().octets()].concat(),
        SocketAddr::V6(v6) => [
            &INET6.to_ne_bytes()[..],
            &port,
            &v6.flowinfo().to_be_bytes(),
            &v6.ip().octets(),
            &v6.scope_id().to_ne_bytes(),
        ]
        .concat(),
    };
    bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
    bytes
}

/// Returns the bytes of an address, in a field for any family.
#[must_use]
pub fn encode_storage(address: Option<&SocketAddr>) -> [u8; STORAGE_LEN] {
    let mut bytes = [0; STORAGE_LEN];
    bytes.iter_mut().zip(encode(address)).for_each(|(to, from)| *to = from);
    bytes
}

/// Returns the GID of an address: IPv4 addresses are mapped.
#[must_use]
pub fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_were_written() {
        for text in ["127.0.0.1:7471", "[fe80::1%3]:1", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().expect("an address");
            let bytes = encode_storage(Some(&address));
            assert_eq!(decode(&bytes), Ok(address));
            let size = u16::try_from(len(&address)).expect("a length");
            assert_eq!(decode_sized(&bytes, size), Ok(address));
            assert_eq!(decode_sized(&bytes, size + 1), Err(Errno::INVAL));
        }
        assert_eq!(
            encode(Some(&([127, 0, 0, 1], 0x1234).into()))[..8],
            [2, 0, 0x12, 0x34, 127, 0, 0, 1]
        );
    }

    #[test]
    fn other_families_are_refused() {
        assert_eq!(decode(&[0; IN6_LEN]), Err(Errno::INVAL));
        assert_eq!(decode_optional(&[0; IN6_LEN]), Ok(None));
        let mut infiniband = [0; STORAGE_LEN];
        infiniband[0] = 27;
        assert_eq!(decode(&infiniband), Err(Errno::NODEV));
        assert_eq!(decode(&[2, 0]), Err(Errno::INVAL));
    }
}
