//! The Toeplitz hash, by which network cards spread frames over receive queues (receive side
//! scaling).

/// Number of bytes of a key. It is enough for two IPv6 addresses and two ports.
pub const KEY_LEN: usize = 40;

/// A hash that grows by the bytes of its input. Further bytes than [`KEY_LEN`] have no effect,
/// because the key ends there.
#[derive(Clone, Debug)]
pub struct Toeplitz<'k> {
    /// The part of the key that is not in the window.
    rest: &'k [u8],
    /// The bits of the key that belong to the next bit of input: the upper half, and the bits that
    /// follow them.
    window: u64,
    hash: u32,
}

impl<'k> Toeplitz<'k> {
    /// Begins a hash, which is zero without input.
    #[must_use]
    pub fn new(key: &'k [u8; KEY_LEN]) -> Self {
        let (window, rest) = key
            .split_first_chunk()
            .map_or((0, &key[..]), |(first, rest)| (u64::from_be_bytes(*first), rest));
        Self { rest, window, hash: 0 }
    }

    /// Adds bytes to the input.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            for bit in (0..8).rev() {
                // CAST: the upper half of a word has 32 bits.
                let key = (self.window >> 32) as u32;
                self.hash ^= key & 0u32.wrapping_sub(u32::from(byte >> bit & 1));
                self.window <<= 1;
            }
            // A byte of the window has become free.
            if let Some((next, rest)) = self.rest.split_first() {
                self.window |= u64::from(*next);
                self.rest = rest;
            }
        }
    }

    /// Returns the hash of the input.
    #[must_use]
    pub const fn hash(&self) -> u32 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    /// The key with which Microsoft has published hashes ("Verifying the RSS Hash Calculation").
    const KEY: [u8; KEY_LEN] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn hash(parts: &[&[u8]]) -> u32 {
        let mut toeplitz = Toeplitz::new(&KEY);
        parts.iter().for_each(|part| toeplitz.add(part));
        toeplitz.hash()
    }

    /// Destination, source, their ports, the hash with ports, and the hash of only the addresses.
    ///
    /// Shows: raw: the published hashes of receive side scaling
    #[test]
    fn the_published_hashes_of_ipv4() {
        for (destination, source, with_ports, alone) in [
            ("161.142.100.80:1766", "66.9.149.187:2794", 0x51cc_c178, 0x323e_8fc2),
            ("65.69.140.83:4739", "199.92.111.2:14230", 0xc626_b0ea, 0xd718_262a),
            ("12.22.207.184:38024", "24.19.198.95:12898", 0x5c2b_394a, 0xd2d0_a5de),
            ("209.142.163.6:2217", "38.27.205.30:48228", 0xafc7_327f, 0x8298_9176),
            ("202.188.127.2:1303", "153.39.163.191:44251", 0x10e8_28a2, 0x5d18_09c5),
        ] {
            let parse = |text: &str| {
                let (address, port) = text.rsplit_once(':').expect("a port");
                let address: Ipv4Addr = address.parse().expect("an address");
                (address.octets(), port.parse::<u16>().expect("a port").to_be_bytes())
            };
            let ((source, from), (destination, to)) = (parse(source), parse(destination));
            assert_eq!(hash(&[&source, &destination]), alone);
            assert_eq!(hash(&[&source, &destination, &from, &to]), with_ports);
        }
    }

    #[test]
    fn the_published_hashes_of_ipv6() {
        for (destination, source, ports, with_ports, alone) in [
            ("3ffe:2501:200:3::1", "3ffe:2501:200:1fff::7", [2794, 1766], 0x4020_7d3d, 0x2cc1_8cd5),
            ("ff02::1", "3ffe:501:8::260:97ff:fe40:efab", [14230, 4739], 0xdde5_1bbf, 0x0f0c_461c),
            (
                "fe80::200:f8ff:fe21:67cf",
                "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                [44251, 38024],
                0x02d1_feef,
                0x4b61_e985,
            ),
        ] {
            let octets = |text: &str| text.parse::<Ipv6Addr>().expect("an address").octets();
            let (source, destination) = (octets(source), octets(destination));
            let [from, to] = ports.map(u16::to_be_bytes);
            assert_eq!(hash(&[&source, &destination]), alone);
            assert_eq!(hash(&[&source, &destination, &from, &to]), with_ports);
        }
    }

    #[test]
    fn input_beyond_the_key_has_no_effect() {
        let long = [0xff; KEY_LEN];
        assert_eq!(hash(&[&long]), hash(&[&long, &[0xff; 100]]));
        assert_eq!(hash(&[]), 0);
    }
}
