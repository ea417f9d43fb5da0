//! The order in which the blocks of a message become visible, if a rule for faults changes
//! it. No standard promises more than that all bytes are there when the message has completed.

/// The bytes of a block.
pub(crate) const BLOCK_LEN: u64 = 64;
/// The number of blocks that are moved at a time.
pub(crate) const MAX_BLOCKS: u64 = 4;

/// The order of a message's blocks: a permutation that its seed chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disorder {
    step: u64,
    start: u64,
    blocks: u64,
    length: u64,
}

impl Disorder {
    /// Returns the order of a message of this length.
    pub(crate) fn new(length: u64, seed: u64) -> Self {
        let blocks = length.div_ceil(BLOCK_LEN).max(1);
        let (start, mut step) = (seed % blocks, (seed >> 32) % blocks);
        // A number without a common divisor visits all blocks.
        while step == 0 || divisor(step, blocks) != 1 {
            step += 1;
        }
        Self { step, start, blocks, length }
    }

    /// Returns the bytes of the block that comes at this place of the order, if there is one.
    pub(crate) fn at(&self, place: u64) -> Option<[u64; 2]> {
        (place < self.blocks && self.length > 0).then(|| self.block(place))
    }

    /// Returns the bytes of the block that comes at this place of the order: from and to.
    pub(crate) fn block(&self, place: u64) -> [u64; 2] {
        let number = u128::from(place) * u128::from(self.step) + u128::from(self.start);
        // CAST: below the number of blocks.
        let number = (number % u128::from(self.blocks)) as u64;
        [number * BLOCK_LEN, ((number + 1) * BLOCK_LEN).min(self.length)]
    }
}

/// Returns the greatest common divisor.
const fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: faults: in a random order of the blocks of a message, each byte comes once
    #[test]
    fn each_byte_comes_once_whatever_the_seed() {
        for length in [1, 63, 64, 65, 640, 4000, 64 * 97] {
            for seed in 0..200_u64 {
                let order = Disorder::new(length, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let mut blocks: Vec<_> =
                    (0..length.div_ceil(BLOCK_LEN)).map(|place| order.block(place)).collect();
                blocks.sort_unstable();
                let ends = blocks.iter().flatten().copied();
                let expected = (0..length.div_ceil(BLOCK_LEN))
                    .flat_map(|n| [n * BLOCK_LEN, ((n + 1) * BLOCK_LEN).min(length)]);
                assert!(ends.eq(expected), "{length} {seed}");
            }
        }
    }
}
