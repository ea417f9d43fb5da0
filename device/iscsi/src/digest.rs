//! CRC-32C digests and padding (RFC 7143, 11.3 and 13.1). The octets of a digest follow the bytes
//! that it covers, the least significant one first.

use crc_fast::CrcAlgorithm;

/// Number of bytes of a digest.
pub const DIGEST_LEN: usize = 4;

/// The digest of bytes that come in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Digest(crc_fast::Digest);

impl Default for Digest {
    fn default() -> Self {
        Self(crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Digest {
    /// Returns the octets of the digest of `covered`.
    #[must_use]
    pub fn of(covered: &[u8]) -> [u8; DIGEST_LEN] {
        crc_fast::crc32_iscsi(covered).to_le_bytes()
    }

    /// Returns the digest of this number of zeros.
    #[must_use]
    pub fn of_zeros(count: u32) -> Self {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut digest = Self::default();
        let mut left = count as usize;
        while left > 0 {
            let some = left.min(ZEROS.len());
            digest.add(ZEROS.get(..some).unwrap_or_default());
            left -= some;
        }
        digest
    }

    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the octets of the digest of all bytes.
    #[must_use]
    pub fn octets(&self) -> [u8; DIGEST_LEN] {
        // CAST: a CRC has 32 bits.
        (self.0.finalize() as u32).to_le_bytes()
    }
}

/// Returns the number of bytes that pad a data segment of this length.
#[must_use]
pub const fn padding(length: u32) -> usize {
    (length.wrapping_neg() & 3) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7143, A.4.
    #[test]
    fn the_examples_of_the_standard() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        for (bytes, octets) in [
            (vec![0; 32], [0xaa, 0x36, 0x91, 0x8a]),
            (vec![0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (ascending, [0x4e, 0x79, 0xdd, 0x46]),
            (descending, [0x5c, 0xdb, 0x3f, 0x11]),
        ] {
            assert_eq!(Digest::of(&bytes), octets);
            let mut pieces = Digest::default();
            bytes.chunks(5).for_each(|piece| pieces.add(piece));
            assert_eq!(pieces.octets(), octets);
        }
    }

    #[test]
    fn data_is_padded_to_words() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(padding), [0, 3, 2, 1, 0, 3]);
    }
}
