//! CRC-32C of FPDUs (RFC 5044, section 4.4; RFC 3385): polynomial 0x1EDC6F41, reflected, initial
//! value all ones, complemented at the end.
//!
//! The CRC covers an FPDU from its length field to its padding, including the markers inside of it
//! or directly in front of it. The four octets of the CRC follow, the least significant one first.

/// Number of octets of the CRC.
pub const LEN: usize = 4;

/// Returns the octets of the CRC of `covered`.
#[must_use]
pub fn octets(covered: &[u8]) -> [u8; LEN] {
    crc_fast::crc32_iscsi(covered).to_le_bytes()
}

/// Returns whether the last four octets of an FPDU are its CRC.
#[must_use]
pub fn is_right(fpdu: &[u8]) -> bool {
    fpdu.split_last_chunk::<LEN>().is_some_and(|(covered, crc)| octets(covered) == *crc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_is_that_of_the_catalogue() {
        assert_eq!(octets(b"123456789"), 0xe306_9283_u32.to_le_bytes());
        assert!(!is_right(&[0; 3]));
    }

    #[test]
    fn one_bit_changes_it() {
        let mut fpdu = [7; 1500];
        let end = fpdu.len() - LEN;
        let crc = octets(&fpdu[..end]);
        fpdu[end..].copy_from_slice(&crc);
        assert!(is_right(&fpdu));
        fpdu[700] ^= 4;
        assert!(!is_right(&fpdu));
    }
}
