//! Sizes of FPDUs (RFC 5044, sections 4.1 and 4.5).
//!
//! ```text
//! length of the ULPDU (2) │ ULPDU │ padding (0 to 3) │ CRC (4)
//! ```

use crate::crc;

/// Octets of the length field.
pub const LENGTH: usize = 2;
/// Maximum length of a sent ULPDU (RFC 5044, section 4.5). A received one may have 65,535 octets.
pub const MULPDU_MAX: u32 = 64_768;
/// The limit of ULPDUs never becomes less than this, however short segments are (RFC 5044, section
/// 4.5).
pub const MULPDU_MIN: u32 = 128;
/// The longest FPDU without markers.
pub const MAX: usize = size(u16::MAX as usize);

/// Returns the number of octets of an FPDU without markers.
#[must_use]
pub const fn size(ulpdu: usize) -> usize {
    (LENGTH + ulpdu).next_multiple_of(4) + crc::LEN
}

/// Returns the longest ULPDU whose FPDU fits into a segment of `emss` octets of payload (RFC 5044,
/// section 4.5).
#[must_use]
pub fn mulpdu(emss: u32, markers: bool) -> u32 {
    let markers = if markers { 4 * emss.div_ceil(512) } else { 0 };
    emss.saturating_sub(6 + markers + emss % 4).clamp(MULPDU_MIN, MULPDU_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_the_segment() {
        assert_eq!(mulpdu(1448, false), 1442);
        assert_eq!(mulpdu(1460, false), 1454);
        assert_eq!(mulpdu(8948, false), 8942);
        assert_eq!(mulpdu(65_483, false), 64_768);
        assert_eq!(mulpdu(1460, true), 1442);
        assert_eq!(mulpdu(64, true), 128);
    }

    #[test]
    fn an_fpdu_is_a_multiple_of_four() {
        assert_eq!((size(42), size(18), size(14)), (48, 24, 20));
        assert_eq!((size(15), size(16), size(17)), (24, 24, 24));
        assert_eq!(MAX, 65_544);
    }
}
