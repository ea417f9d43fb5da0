//! CRC-32C of FPDUs (RFC 5044, section 4.4; RFC 3385): polynomial 0x1EDC6F41, reflected, all ones
//! at the beginning, complemented at the end.
//!
//! It covers an FPDU from its length field to its padding, with the markers inside or directly in
//! front. It stands behind them as four octets, least significant first.

/// Octets of the CRC.
pub const LEN: usize = 4;

/// Computes the octets that stand behind `covered`.
#[must_use]
pub fn octets(covered: &[u8]) -> [u8; LEN] {
    crc_fast::crc32_iscsi(covered).to_le_bytes()
}

/// Checks an FPDU whose last four octets are its CRC.
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
