//! The invariant CRC: covers a packet from its IP header to the padding, without the fields that
//! routers may change (IBTA volume 1, 7.8.1; annex A17.3.3).
//!
//! The ICRC is the CRC-32 of Ethernet over eight bytes 0xff (in place of the header of a native
//! InfiniBand link), the IP header, the UDP header, the transport header and the rest. In the
//! computation, these bits are replaced by ones:
//!
//! | header | fields |
//! | --- | --- |
//! | IPv4 | type of service, time to live, header checksum |
//! | IPv6 | traffic class, flow label, hop limit |
//! | UDP | checksum |
//! | BTH | byte 4: FECN, BECN, reserved |
//!
//! The CRC follows the padding, with its least significant byte first, as in Ethernet (Linux
//! `rxe_icrc.c`). An adapter computes it over its copy of the payload, never over guest memory,
//! which the guest may change between the computation and the copy.

/// Number of bytes of the CRC.
pub const LEN: usize = 4;

/// CRC of the eight bytes 0xff with which each computation begins.
const OF_ONES: u32 = 0x2144_df1c;

/// Length of UDP header and base transport header.
const FIXED: usize = 20;
/// Maximum length of the headers with masked fields: IPv6, UDP, BTH.
const MASKED: usize = 40 + FIXED;

/// Positions of the bytes to mask, after the IP header: the UDP checksum and byte 4 of the BTH.
const BEHIND_IP: [usize; 3] = [6, 7, 12];

/// Returns the CRC of a packet, from the first byte of its IP header to the last byte of its
/// padding. Returns `None` if the packet ends within its headers, or is neither IPv4 without
/// options nor IPv6.
#[must_use]
pub fn compute(packet: &[u8]) -> Option<u32> {
    let (ip_len, masked): (usize, &[usize]) = match packet.first()? {
        0x45 => (20, &[1, 8, 10, 11]),
        byte if byte >> 4 == 6 => (40, &[1, 2, 3, 7]),
        _ => return None,
    };
    let (headers, rest) = packet.split_at_checked(ip_len + FIXED)?;
    let mut copy = [0; MASKED];
    let copy = copy.get_mut(..headers.len())?;
    copy.copy_from_slice(headers);
    for at in masked.iter().copied().chain(BEHIND_IP.map(|at| ip_len + at)) {
        *copy.get_mut(at)? = 0xff;
    }
    if ip_len == 40 {
        // The upper half of the traffic class shares a byte with the version.
        *copy.first_mut()? |= 0x0f;
    }
    let mut hasher = crc32fast::Hasher::new_with_initial(OF_ONES);
    hasher.update(copy);
    hasher.update(rest);
    Some(hasher.finalize())
}

/// Returns whether the last four bytes of a packet are its CRC.
#[must_use]
pub fn is_right(packet: &[u8]) -> bool {
    packet
        .split_last_chunk::<LEN>()
        .is_some_and(|(covered, crc)| compute(covered) == Some(u32::from_le_bytes(*crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_the_crc_of_eight_ones() {
        assert_eq!(crc32fast::hash(&[0xff; 8]), OF_ONES);
    }

    #[test]
    fn what_is_too_short_or_no_ip_has_no_crc() {
        assert_eq!(compute(&[]), None);
        assert_eq!(compute(&[0x45; 39]), None);
        assert_eq!(compute(&[0x60; 59]), None);
        assert_eq!(compute(&[0x46; 80]), None);
        assert!(!is_right(&[0; 3]));
    }
}
