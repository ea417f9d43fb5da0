//! The store for bytes out of order: a ring in which each position of the stream has a fixed place.

use crate::seq::StreamPos;

/// A ring of bytes, allocated once.
pub(crate) struct Store(Box<[u8]>);

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.0.len())
    }
}

impl Store {
    pub(crate) fn new(len: usize) -> Self {
        Self(vec![0; len].into_boxed_slice())
    }

    /// Returns the number of places. Positions that are less far apart do not share a place.
    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Stores bytes, at most as many as there are places.
    pub(crate) fn write(&mut self, at: StreamPos, bytes: &[u8]) {
        let start = self.place(at);
        let first = bytes.len().min(self.0.len() - start);
        let (head, tail) = bytes.split_at(first);
        for (start, part) in [(start, head), (0, tail)] {
            if let Some(to) = self.0.get_mut(start..start + part.len()) {
                to.copy_from_slice(part);
            }
        }
    }

    /// Returns the stored bytes from `at` on, at most `len` and at most up to the end of the ring;
    /// at least one if `len` is not zero.
    pub(crate) fn read(&self, at: StreamPos, len: u64) -> &[u8] {
        let rest = self.0.get(self.place(at)..).unwrap_or_default();
        rest.get(..usize::try_from(len).unwrap_or(usize::MAX)).unwrap_or(rest)
    }

    fn place(&self, at: StreamPos) -> usize {
        // CAST: the remainder is less than the ring's length, which is a usize.
        at.0.checked_rem(self.len()).unwrap_or_default() as usize
    }
}
