//! The copy loop for pages of a message.
//!
//! The C library copies a page by `rep movsb`. The processor starts no instruction after it before
//! it has ended, so the look-ups for the next page wait for its last byte. A loop of vector
//! instructions lets them start while its last stores are still in progress. This makes messages in
//! scattered pages a seventh faster (docs/benchmarks/profile.md). Long blocks gain nothing from it.

use std::ptr;

/// Length of the shortest copy for which the loop is used. The C library has its own loop for
/// shorter copies.
const LOOP_MIN: usize = 1 << 10;
/// Length of the longest copy for which the loop is used.
const LOOP_MAX: usize = 16 << 10;

/// Copies `len` bytes in any order. The ranges may overlap.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if (LOOP_MIN..=LOOP_MAX).contains(&len)
        && from.addr().abs_diff(to.addr()) >= len
        && std::arch::is_x86_feature_detected!("avx")
    {
        // SAFETY: the processor has AVX; the caller vouches for `len` bytes at both ends, which do
        // not overlap.
        return unsafe { vectors(from, to, len) };
    }
    // SAFETY: the caller vouches for `len` bytes at both ends.
    unsafe { ptr::copy(from, to, len) };
}

/// Copies by vectors of 32 bytes, four at a time. Each of the four has a variable of its own and no
/// iterator runs over them: an iterator is a function that is compiled without AVX, and in builds
/// that do not inline it the copy is ten times as slow.
///
/// # Safety
/// The processor must have AVX, `from` must be readable and `to` writable for `len` bytes, and
/// these must not overlap.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn vectors(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};

    const VECTOR: usize = size_of::<__m256i>();
    const STEP: usize = 4 * VECTOR;
    let mut at = 0;
    while len - at >= STEP {
        // SAFETY: `at + STEP <= len`, so the four vectors lie in both ranges; loads and stores need
        // no alignment.
        unsafe {
            let (from, to) = (from.add(at).cast::<__m256i>(), to.add(at).cast::<__m256i>());
            let first = _mm256_loadu_si256(from);
            let second = _mm256_loadu_si256(from.add(1));
            let third = _mm256_loadu_si256(from.add(2));
            let fourth = _mm256_loadu_si256(from.add(3));
            _mm256_storeu_si256(to, first);
            _mm256_storeu_si256(to.add(1), second);
            _mm256_storeu_si256(to.add(2), third);
            _mm256_storeu_si256(to.add(3), fourth);
        }
        at += STEP;
    }
    // SAFETY: `at <= len`.
    unsafe { ptr::copy_nonoverlapping(from.add(at), to.add(at), len - at) };
}
