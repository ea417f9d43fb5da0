//! Mappings of device files (unsafe code). A program can punch holes into its file, and a page that
//! is missing may not be had again. An access then finds zeroes, and the mapping is lost.

use std::fs::File;
use std::ops::{Deref, Range};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use vrnic_queues::mapping::Mapping;
use vrnic_sigbus::Slot;

use super::PAGE;

/// A mapping whose pages may go.
#[derive(Debug)]
pub struct Guarded {
    slot: &'static Slot,
    mapping: Mapping,
}

impl Guarded {
    /// Guards a mapping.
    ///
    /// # Errors
    /// `ENOMEM` if this process has too many mappings.
    pub fn new(mapping: Mapping) -> Result<Self, Errno> {
        let base = usize::try_from(mapping.address()).map_err(|_| Errno::NOMEM)?;
        let len = mapping.len().next_multiple_of(PAGE as usize);
        // SAFETY: this value owns the mapping, whose pages are whole, and releases the slot before
        // it drops the mapping. The memory is accessed as atomics only.
        let slot = unsafe { Slot::claim(base, len) }.map_err(|_| Errno::NOMEM)?;
        Ok(Self { slot, mapping })
    }

    /// Returns whether the memory is lost. What was read before may be zeroes.
    #[must_use]
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.slot.is_lost()
    }
}

impl Deref for Guarded {
    type Target = Mapping;

    #[inline]
    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.slot.release();
    }
}

/// Takes the memory of a range of a file now, so that a lack of memory is an error of a request,
/// and not of the first access.
///
/// # Errors
/// `ENOMEM`.
pub fn take(file: &File, range: Range<u64>) -> Result<(), Errno> {
    let len = range.end.saturating_sub(range.start);
    let taken = fallocate(file, FallocateFlags::KEEP_SIZE, range.start, len);
    taken.map_err(|error| if error == Errno::NOSPC { Errno::NOMEM } else { error })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::signals::mask_signals;

    #[test]
    fn an_access_to_a_page_that_has_gone_finds_zeroes() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(2 * PAGE).expect("a length");
        let mapping = Mapping::device(file.as_fd(), 0, 2 * PAGE as usize).expect("mapped");
        let guarded = Guarded::new(mapping).expect("room");
        guarded.words()[0].store(7, Ordering::Relaxed);
        assert!(!guarded.is_lost());
        file.set_len(0).expect("a length");
        std::thread::scope(|scope| {
            // As the threads that use such memory are.
            let access = || {
                mask_signals();
                assert_eq!(guarded.words()[0].load(Ordering::Relaxed), 0);
                guarded.words()[600].store(9, Ordering::Relaxed);
            };
            scope.spawn(access);
        });
        assert!(guarded.is_lost());
    }
}
