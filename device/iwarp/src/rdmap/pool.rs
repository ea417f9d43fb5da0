//! Copies of short messages, which are complete as soon as they have been sent.

/// A ring of octets. Copies are released in the order in which they were made.
#[derive(Debug)]
pub(super) struct Pool {
    octets: Vec<u8>,
    /// Number of octets that it may have.
    room: usize,
    /// Number of octets that were ever allocated, and that were ever released.
    head: u64,
    tail: u64,
}

impl Pool {
    /// Creates a ring. It has memory while there are copies, and afterwards until
    /// [`Self::shrink`].
    pub(super) const fn new(room: usize) -> Self {
        Self { octets: Vec::new(), room, head: 0, tail: 0 }
    }

    /// Gives memory back if there are no copies.
    pub(super) fn shrink(&mut self) {
        if self.head == self.tail {
            self.octets = Vec::new();
        }
    }

    /// Allocates a copy of `len` octets, and returns its name. A copy is contiguous, so octets at
    /// the end of the ring may stay unused.
    pub(super) fn take(&mut self, len: usize) -> Option<(u64, &mut [u8])> {
        if self.octets.len() < self.room {
            self.octets.try_reserve_exact(self.room).ok()?;
            self.octets.resize(self.room, 0);
        }
        let room = self.room as u64;
        let at = self.head.checked_rem(room)?;
        let start = if at + len as u64 > room { self.head + (room - at) } else { self.head };
        let end = start + len as u64;
        if end - self.tail > room {
            return None;
        }
        self.head = end;
        let from = usize::try_from(start % room).ok()?;
        Some((start, self.octets.get_mut(from..from + len)?))
    }

    /// Returns octets of a copy.
    pub(super) fn get(&self, name: u64, at: usize, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(name.checked_rem(self.octets.len() as u64)?).ok()?;
        self.octets.get(from + at..from + at + len)
    }

    /// Releases a copy, and all that were allocated before it.
    pub(super) const fn release(&mut self, name: u64, len: usize) {
        self.tail = name + len as u64;
    }
}
