//! The bytes of buffers of the program, read without trust in the addresses.
//!
//! A program may have unmapped a buffer, or its memory may be that of another device. A copy that
//! finds no memory ends with an error ([`direct`]). Where that is not possible, the kernel copies.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::quality::FixedState;

use crate::{direct, handler};

/// The samples of the first requests of a queue.
const MANY: Samples = Samples { whole: 4096, edge: 1024, pieces: 32, piece: 64 };
/// The samples of later ones.
const FEW: Samples = Samples { whole: 512, edge: 64, pieces: 8, piece: 16 };
/// Requests of a queue of which there are many samples.
const FIRST: u64 = 64;
/// Most parts of a segment that are compared: samples and both ends.
const PARTS: usize = MANY.pieces + 2;

/// Which parts of a segment are compared.
#[derive(Clone, Copy, Debug)]
struct Samples {
    /// Bytes of a segment up to which all are compared.
    whole: usize,
    /// Bytes at the begin and at the end of a longer one.
    edge: usize,
    /// Number of pieces between them.
    pieces: usize,
    /// Bytes of such a piece.
    piece: usize,
}

/// How much of the segments of a request is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All bytes.
    All,
    /// Samples for the request with this number in its queue. Their places differ from those of
    /// the request before it, so that those of many requests are everywhere.
    Samples(u64),
}

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
pub(crate) fn fingerprint(ranges: impl IntoIterator<Item = Range>, extent: Extent) -> Print {
    let is_direct = cfg!(target_arch = "x86_64") && handler::is_ready();
    if !is_direct && IS_REFUSED.load(Ordering::Relaxed) {
        return Print::Refused;
    }
    let mut reader = Reader { hasher: FixedState::default().build_hasher(), is_direct };
    for range in ranges {
        let read = match extent {
            Extent::Samples(number) if number >= FIRST && range.length > FEW.whole => {
                reader.parts::<{ FEW.whole }>(FEW.of(range, number))
            }
            Extent::Samples(number) if number < FIRST && range.length > MANY.whole => {
                reader.parts::<{ MANY.whole }>(MANY.of(range, number))
            }
            _ => reader.all(range),
        };
        if let Err(print) = read {
            return print;
        }
    }
    Print::Bytes(reader.hasher.finish())
}

impl Samples {
    /// Returns the parts of a long range that are compared for the request with this number.
    fn of(self, range: Range, number: u64) -> impl Iterator<Item = Range> {
        let Self { edge, pieces, piece, .. } = self;
        let step = (range.length - 2 * edge - piece) / pieces;
        // A part of the step, which is another one for each request.
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let shift = usize::try_from((step as u64).wrapping_mul(spread) >> 32).unwrap_or(0);
        let first = range.address + edge + shift;
        let last = range.address + range.length - edge;
        let edges = [range.address, last].map(|address| Range { address, length: edge });
        let piece = move |number| Range { address: first + number * step, length: piece };
        edges.into_iter().chain((0..pieces).map(piece))
    }
}

/// Reads memory into a hash.
struct Reader<H> {
    hasher: H,
    /// True if the process may read it itself.
    is_direct: bool,
}

impl<H: Hasher> Reader<H> {
    /// Adds all bytes of a range.
    fn all(&mut self, mut rest: Range) -> Result<(), Print> {
        if rest.length <= FEW.whole {
            return self.parts::<{ FEW.whole }>([rest].into_iter());
        }
        while rest.length > 0 {
            let part = Range { length: rest.length.min(MANY.whole), ..rest };
            self.parts::<{ MANY.whole }>([part].into_iter())?;
            rest.address = rest.address.wrapping_add(part.length);
            rest.length -= part.length;
        }
        Ok(())
    }

    /// Adds the bytes of parts, for all of which there is room.
    fn parts<const ROOM: usize>(
        &mut self,
        parts: impl Iterator<Item = Range>,
    ) -> Result<(), Print> {
        let mut room = [0; ROOM];
        let length = if self.is_direct {
            let mut length = 0;
            for part in parts {
                let place = room.get_mut(length..length + part.length).ok_or(Print::Refused)?;
                if !direct::copy(place, part.address) {
                    return Err(Print::Unmapped);
                }
                length += part.length;
            }
            length
        } else {
            by_kernel(&mut room, parts)?
        };
        self.hasher.write(room.get(..length).unwrap_or(&room));
        Ok(())
    }
}

/// Copies parts, for all of which there is room, one after the other. Returns their bytes.
fn by_kernel(room: &mut [u8], parts: impl Iterator<Item = Range>) -> Result<usize, Print> {
    let vector =
        |part: Range| libc::iovec { iov_base: part.address as *mut _, iov_len: part.length };
    let mut vectors = [vector(Range { address: 0, length: 0 }); PARTS];
    let (mut count, mut wanted) = (0, 0);
    for (place, part) in vectors.iter_mut().zip(parts) {
        *place = vector(part);
        (count, wanted) = (count + 1, wanted + part.length);
    }
    let into = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len().min(wanted) };
    // The first thread, which has the number of the process, may have ended.
    // SAFETY: the kernel writes at most as many bytes to `room` as it has, and checks all other
    // addresses.
    let read = unsafe {
        let own = libc::gettid();
        libc::process_vm_readv(own, &raw const into, 1, vectors.as_ptr(), count, 0)
    };
    if usize::try_from(read) == Ok(wanted) {
        return Ok(wanted);
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

    /// A request of which there are few samples.
    const LATER: Extent = Extent::Samples(FIRST);

    fn range(bytes: &[u8]) -> Range {
        Range { address: bytes.as_ptr() as usize, length: bytes.len() }
    }

    fn print(bytes: &[u8], extent: Extent) -> Print {
        fingerprint([range(bytes)], extent)
    }

    #[test]
    fn each_byte_counts_in_short_buffers_and_at_the_edges() {
        for (extent, samples) in [(Extent::Samples(0), MANY), (LATER, FEW)] {
            for length in [1, 64, samples.whole, samples.whole + 1, 4096, 4097, 100_000] {
                let mut bytes = vec![7_u8; length];
                let before = print(&bytes, extent);
                assert_eq!(before, print(&bytes, extent));
                for place in [0, samples.edge - 1, length / 3, length - 1] {
                    let is_within =
                        (samples.edge..length.saturating_sub(samples.edge)).contains(&place);
                    if place >= length || (length > samples.whole && is_within) {
                        continue;
                    }
                    bytes[place] ^= 1;
                    assert_ne!(before, print(&bytes, extent), "byte {place} of {length}");
                    bytes[place] ^= 1;
                }
            }
        }
    }

    #[test]
    fn samples_of_many_requests_are_everywhere() {
        let length = 65_536;
        let mut is_compared = vec![false; length];
        for number in FIRST..FIRST + 4096 {
            for part in FEW.of(Range { address: 0, length }, number) {
                is_compared[part.address..part.address + part.length].fill(true);
            }
        }
        let missing = is_compared.iter().filter(|is| !**is).count();
        assert!(missing < length / 100, "{missing} of {length} bytes are never compared");
    }

    #[test]
    fn the_kernel_and_the_process_read_the_same() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|place| (place % 251) as u8).collect();
        for samples in [FEW, MANY] {
            let print = |is_direct| {
                let mut reader = Reader { hasher: FixedState::default().build_hasher(), is_direct };
                let read = reader.parts::<{ MANY.whole }>(samples.of(range(&bytes), 77));
                read.map(|()| reader.hasher.finish())
            };
            assert!(handler::is_ready());
            assert_eq!(print(true), print(false));
        }
    }

    #[test]
    fn all_bytes_count_if_that_is_demanded() {
        let mut bytes = vec![7_u8; 100_000];
        let before = print(&bytes, Extent::All);
        for place in (0..bytes.len()).step_by(777) {
            bytes[place] ^= 1;
            assert_ne!(before, print(&bytes, Extent::All), "byte {place}");
            bytes[place] ^= 1;
        }
    }

    #[test]
    fn memory_that_is_not_mapped_is_no_fault() {
        for length in [100, 1000, 100_000] {
            let nowhere = Range { address: 8, length };
            for extent in [Extent::All, Extent::Samples(0), LATER] {
                assert_eq!(fingerprint([nowhere], extent), Print::Unmapped);
            }
            let mut room = [0; 4096];
            let part = Range { length: length.min(room.len()), ..nowhere };
            assert_eq!(by_kernel(&mut room, [part].into_iter()), Err(Print::Unmapped));
        }
    }
}
