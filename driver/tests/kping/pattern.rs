// SPDX-License-Identifier: GPL-2.0
//! The data of a request: words that tell the request and their place.

use kernel::prelude::*;

use crate::kclient::memory::Memory;

/// Returns word `nth` of the pattern of `sequence`.
fn word(sequence: u64, nth: usize) -> u64 {
    // CAST: an index.
    (sequence << 32 ^ nth as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the indices of the words of some memory.
fn words(memory: &Memory) -> core::ops::Range<usize> {
    0..memory.len() / size_of::<u64>()
}

/// Fills memory with the pattern of `sequence`.
pub(crate) fn fill(memory: &Memory, sequence: u64) -> Result {
    words(memory).try_for_each(|nth| memory.set(nth, word(sequence, nth)))
}

/// Inverts each bit.
pub(crate) fn invert(memory: &Memory) -> Result {
    words(memory).try_for_each(|nth| memory.set(nth, !memory.get(nth)?))
}

/// Counts the words that are not of the pattern of `sequence`, or of its inverse.
pub(crate) fn wrong(memory: &Memory, sequence: u64, inverse: bool) -> Result<u64> {
    let flip = if inverse { u64::MAX } else { 0 };
    let mut count = 0;
    for nth in words(memory) {
        count += u64::from(memory.get(nth)? != word(sequence, nth) ^ flip);
    }
    Ok(count)
}
