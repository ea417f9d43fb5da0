//! Deterministic pseudo-random bytes: both sides can compute each byte of a buffer from a seed and
//! a position, so they only have to exchange the seed.

/// Number of bytes of one step of the generator.
const WORD: u64 = 8;

/// Returns the word number `index` of the stream `seed` (the output function of SplitMix64, which
/// can compute any position without the earlier ones).
fn word(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Fills `out` with the bytes of stream `seed` from byte `position` on.
pub fn generate(seed: u64, position: u64, out: &mut [u8]) {
    let skip = (position % WORD) as usize;
    let mut index = position / WORD;
    let (head, body) = out.split_at_mut(out.len().min((WORD as usize - skip) % WORD as usize));
    if !head.is_empty() {
        let bytes = word(seed, index).to_le_bytes();
        head.copy_from_slice(&bytes[skip..skip + head.len()]);
        index += 1;
    }
    for chunk in body.chunks_mut(WORD as usize) {
        chunk.copy_from_slice(&word(seed, index).to_le_bytes()[..chunk.len()]);
        index += 1;
    }
}

/// A small generator for choices (offsets, garbage), not for the contents of buffers.
#[derive(Clone, Copy, Debug)]
pub struct Rng {
    seed: u64,
    step: u64,
}

impl Rng {
    /// Creates a generator. Equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Self { seed, step: 0 }
    }

    /// Returns the next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.step += 1;
        word(self.seed, self.step)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.word().checked_rem(bound).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::generate;

    /// Any window of the stream equals the same bytes of a longer one.
    #[test]
    fn windows_agree() {
        let mut whole = [0u8; 200];
        generate(7, 0, &mut whole);
        for start in 0..40 {
            for len in 0..100 {
                let mut part = vec![0u8; len];
                generate(7, start as u64, &mut part);
                assert_eq!(part, &whole[start..start + len], "start {start} length {len}");
            }
        }
    }

    /// Different seeds give different bytes.
    #[test]
    fn seeds_differ() {
        let (mut a, mut b) = ([0u8; 64], [0u8; 64]);
        generate(1, 0, &mut a);
        generate(2, 0, &mut b);
        assert_ne!(a, b);
    }
}
