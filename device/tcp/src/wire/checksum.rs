//! The Internet checksum (RFC 1071).

/// A sum of 16-bit words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes. An odd number of bytes is only allowed in the last call.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        // The sum of longer words folds to the same result, because 2¹⁶ is 1 modulo 2¹⁶ − 1.
        let (words, rest) = bytes.as_chunks::<4>();
        self.0 += words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum::<u64>();
        let mut last = [0; 4];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        self.0 += u64::from(u32::from_be_bytes(last));
        self
    }

    /// Adds a number.
    #[must_use]
    pub const fn plus(self, number: u16) -> Self {
        Self(self.0 + number as u64)
    }

    /// Returns the checksum. It is zero over bytes that contain a correct checksum.
    #[must_use]
    pub const fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        // CAST: it has been folded to 16 bits.
        !(sum as u16)
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
}
