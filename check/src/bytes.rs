//! The bytes of buffers of the program, read without trust in the addresses.
//!
//! A program may have unmapped a buffer, or its memory may be that of another device. So the kernel
//! reads it: an address that cannot be read is an error of the call, and not of the process.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::quality::FixedState;

/// Bytes of a segment up to which all are compared.
const WHOLE: usize = 4096;
/// Bytes at the begin and at the end of a longer one that are compared.
const EDGE: usize = 1024;
/// Number of pieces between them that are compared.
const PIECES: usize = 32;
/// Bytes of such a piece.
const PIECE: usize = 64;

/// True if the kernel does not let the process read its memory in this way.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// What was found at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Print {
    /// A hash of the bytes.
    Bytes(u64),
    /// Some of the memory cannot be read.
    Unmapped,
    /// The kernel lets no process read memory in this way.
    Refused,
}

/// A part of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) address: usize,
    pub(crate) length: usize,
}

/// Returns a hash of ranges: of samples of large ones, or of all bytes.
pub(crate) fn fingerprint(ranges: impl IntoIterator<Item = Range>, whole: bool) -> Print {
    if IS_REFUSED.load(Ordering::Relaxed) {
        return Print::Refused;
    }
    let mut hasher = FixedState::default().build_hasher();
    for range in ranges {
        let read = if whole || range.length <= WHOLE {
            let mut rest = range;
            let mut all = Ok(());
            while rest.length > 0 && all.is_ok() {
                let part = Range { length: rest.length.min(WHOLE), ..rest };
                all = add(&mut hasher, &[vector(part)]);
                rest.address = rest.address.wrapping_add(part.length);
                rest.length -= part.length;
            }
            all
        } else {
            add(&mut hasher, &samples(range))
        };
        match read {
            Ok(()) => {}
            Err(print) => return print,
        }
    }
    Print::Bytes(hasher.finish())
}

fn vector(range: Range) -> libc::iovec {
    libc::iovec { iov_base: range.address as *mut libc::c_void, iov_len: range.length }
}

/// Returns the parts of a long range that are compared.
fn samples(range: Range) -> [libc::iovec; PIECES + 2] {
    let middle = range.length - 2 * EDGE;
    let mut parts = [vector(Range { length: EDGE, ..range }); PIECES + 2];
    let (edges, pieces) = parts.split_at_mut(2);
    if let [_, last] = edges {
        *last = vector(Range { address: range.address + range.length - EDGE, length: EDGE });
    }
    let step = (middle - PIECE) / PIECES;
    for (number, piece) in pieces.iter_mut().enumerate() {
        let address = range.address + EDGE + number * step;
        *piece = vector(Range { address, length: PIECE });
    }
    parts
}

/// Adds the bytes of parts, at most [`WHOLE`] together, to a hash.
fn add(hasher: &mut impl Hasher, parts: &[libc::iovec]) -> Result<(), Print> {
    let mut bytes = [0_u8; WHOLE];
    let wanted: usize = parts.iter().map(|part| part.iov_len).sum();
    let Some(place) = bytes.get_mut(..wanted) else { return Err(Print::Refused) };
    let into = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: wanted };
    // The first thread, which has the number of the process, may have ended.
    // SAFETY: the kernel writes at most `wanted` bytes to `place`, and checks all other addresses.
    let read = unsafe {
        libc::process_vm_readv(
            libc::gettid(),
            &raw const into,
            1,
            parts.as_ptr(),
            parts.len() as libc::c_ulong,
            0,
        )
    };
    if usize::try_from(read) == Ok(wanted) {
        hasher.write(place);
        return Ok(());
    }
    if read < 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT) {
        IS_REFUSED.store(true, Ordering::Relaxed);
        return Err(Print::Refused);
    }
    Err(Print::Unmapped)
}

/// Returns whether the kernel has refused to read memory.
pub(crate) fn is_refused() -> bool {
    IS_REFUSED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(bytes: &[u8], whole: bool) -> Print {
        fingerprint([Range { address: bytes.as_ptr() as usize, length: bytes.len() }], whole)
    }

    #[test]
    fn each_byte_counts_in_short_buffers_and_at_the_edges() {
        for length in [1, 64, WHOLE, WHOLE + 1, 100_000] {
            let mut bytes = vec![7_u8; length];
            let before = print(&bytes, false);
            assert_eq!(before, print(&bytes, false));
            for place in [0, length / 3 / 4096 * 4096, length - 1] {
                if length > WHOLE && (EDGE..length - EDGE).contains(&place) {
                    continue;
                }
                bytes[place] ^= 1;
                assert_ne!(before, print(&bytes, false), "byte {place} of {length}");
                bytes[place] ^= 1;
            }
        }
    }

    #[test]
    fn all_bytes_count_if_that_is_demanded() {
        let mut bytes = vec![7_u8; 100_000];
        let before = print(&bytes, true);
        for place in (0..bytes.len()).step_by(777) {
            bytes[place] ^= 1;
            assert_ne!(before, print(&bytes, true), "byte {place}");
            bytes[place] ^= 1;
        }
    }

    #[test]
    fn memory_that_is_not_mapped_is_no_fault() {
        let nowhere = Range { address: 8, length: 100 };
        assert_eq!(fingerprint([nowhere], false), Print::Unmapped);
        assert_eq!(fingerprint([Range { length: 100_000, ..nowhere }], false), Print::Unmapped);
    }
}
