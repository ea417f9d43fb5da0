// SPDX-License-Identifier: GPL-2.0
//! The consuming side of a completion ring, which finds new entries. It does not depend on the
//! kernel, so `abi/tests/kernel_cq.rs` can test it without one.

use abi::cq::waiting;

/// The owner of an entry that is skipped: no queue pair has this number.
pub(super) const NO_QPN: u32 = u32::MAX;

/// A ring of completions. Indices are free-running.
pub(super) trait Entries {
    /// The error of reading and writing.
    type Error;

    /// Returns the number of entries.
    fn size(&self) -> u32;

    /// Returns the stamp of an entry; what is read of the entry later was written before its stamp.
    fn stamp(&self, index: u32) -> Result<u32, Self::Error>;

    /// Returns the queue pair that an entry is of.
    fn owner(&self, index: u32) -> Result<u32, Self::Error>;

    /// Makes it one of [`NO_QPN`].
    fn disown(&self, index: u32) -> Result<(), Self::Error>;

    /// Copies an entry to its place in another ring.
    fn copy(&self, index: u32, to: &Self) -> Result<(), Self::Error>;
}

/// The reader of a ring.
pub(super) struct Consumer {
    /// The next entry.
    pub(super) index: u32,
}

impl Consumer {
    /// Starts at the beginning of a new ring.
    pub(super) fn new() -> Self {
        Self { index: 0 }
    }

    /// Returns whether there is an entry.
    pub(super) fn has_next<E: Entries>(&self, ring: &E) -> Result<bool, E::Error> {
        is_ready(ring, self.index)
    }

    /// Begins to take entries, of one round of the ring at most: the adapter may go on writing
    /// entries that belong to nobody.
    pub(super) fn round<'a, E: Entries>(&'a mut self, ring: &'a E) -> Round<'a, E> {
        Round { left: ring.size(), consumer: self, ring }
    }

    /// Returns the first entry that has not been written.
    pub(super) fn end<E: Entries>(&self, ring: &E) -> Result<u32, E::Error> {
        let written = |step| is_ready(ring, self.index.wrapping_add(step));
        Ok(self.index.wrapping_add(waiting(ring.size(), written)?))
    }

    /// Copies the entries that were not taken to their places in another ring, in which the adapter
    /// writes those from `first` on. Returns false, with nothing copied, if that cannot be right.
    pub(super) fn move_to<E: Entries>(
        &self,
        from: &E,
        to: &E,
        first: u32,
    ) -> Result<bool, E::Error> {
        let left = first.wrapping_sub(self.index);
        if left > from.size().min(to.size()) {
            return Ok(false);
        }
        (0..left).try_for_each(|step| from.copy(self.index.wrapping_add(step), to))?;
        Ok(true)
    }

    /// Marks the present entries of this queue pair as entries without an owner. To be called when
    /// the queue pair has ended, and the adapter has written the last of them. Entries of a later
    /// queue pair with the same number are not affected.
    pub(super) fn forget<E: Entries>(&self, ring: &E, owner: u32) -> Result<(), E::Error> {
        // The adapter may go on writing, so the walk is one round at most.
        for step in 0..ring.size() {
            let index = self.index.wrapping_add(step);
            if !is_ready(ring, index)? {
                break;
            }
            if ring.owner(index)? == owner {
                ring.disown(index)?;
            }
        }
        Ok(())
    }
}

/// A walk that takes entries of a ring, each place of it once at most.
pub(super) struct Round<'a, E> {
    consumer: &'a mut Consumer,
    ring: &'a E,
    /// The number of entries that it may still take.
    left: u32,
}

impl<E: Entries> Round<'_, E> {
    /// Takes the next entry if there is one.
    pub(super) fn next(&mut self) -> Result<Option<u32>, E::Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        if !self.consumer.has_next(self.ring)? {
            return Ok(None);
        }
        self.left = left;
        let index = self.consumer.index;
        self.consumer.index = index.wrapping_add(1);
        Ok(Some(index))
    }
}

/// Returns whether an entry has been written in this lap.
fn is_ready<E: Entries>(ring: &E, index: u32) -> Result<bool, E::Error> {
    Ok(ring.stamp(index)? == abi::stamp(index))
}
