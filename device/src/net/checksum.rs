//! The internet checksum (RFC 1071).

/// Returns the sum of the 16-bit words of `bytes`. An odd last byte is the upper half of a word.
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, last) = bytes.as_chunks::<2>();
    let words = words.iter().map(|word| u64::from(u16::from_be_bytes(*word)));
    words.sum::<u64>() + last.first().map_or(0, |byte| u64::from(*byte) << 8)
}

/// Folds a sum to 16 bits.
#[must_use]
pub const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // CAST: the sum has 16 bits now.
    sum as u16
}

/// Returns the UDP checksum for a sum. Zero would mean "no checksum", and is replaced by 0xffff.
#[must_use]
pub const fn of_udp(sum: u64) -> u16 {
    match !fold(sum) {
        0 => 0xffff,
        checksum => checksum,
    }
}
