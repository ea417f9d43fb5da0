//! The Internet checksum (RFC 1071), of IPv4, ICMP, UDP and TCP.

/// A sum of 16-bit words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes. An odd number of bytes is only allowed in the last call.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        Self(self.0 + sum(bytes))
    }

    /// Adds a number.
    #[must_use]
    pub const fn plus(self, number: u16) -> Self {
        Self(self.0 + number as u64)
    }

    /// Returns the checksum. It is zero over bytes that contain a correct checksum.
    #[must_use]
    pub const fn finish(self) -> u16 {
        !fold(self.0)
    }
}

/// Returns the sum of the 16-bit words of `bytes`, folded to 16 bits. An odd last byte is the upper
/// half of a word.
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    // Longer words in the machine's order have the same sum, with its bytes swapped if the order is
    // another one (RFC 1071, 2). So the loop can be vectorized without swapping each word.
    let (words, rest) = bytes.as_chunks::<4>();
    let total: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    u64::from(u16::from_be(fold(total + u64::from(u32::from_ne_bytes(last)))))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().bytes(&bytes).finish(), !0xddf2);
        assert_eq!(Sum::default().bytes(&bytes).plus(!0xddf2).finish(), 0);
        assert_eq!(Sum::default().bytes(&[0x12]).finish(), !0x1200);
    }

    #[test]
    fn a_sum_is_that_of_the_words() {
        let bytes: Vec<u8> = (0..999_u32).map(|at| ((at * at) >> 3) as u8).collect();
        for (start, end) in [(0, 0), (0, 1), (3, 5), (1, 8), (0, 16), (7, 999), (0, 998)] {
            let bytes = &bytes[start..end];
            let words = bytes
                .chunks(2)
                .map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0)));
            assert_eq!(sum(bytes), fold(words.sum()).into(), "{start}..{end}");
        }
    }
}
