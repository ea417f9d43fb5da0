// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Device memory that this process has mapped.

use rustix::io::Errno;

use crate::mapping::Mapping;

/// Bytes of a word. Copies have whole words: other adapters have device memory that cannot be
/// accessed in another way (rdma-core 56.1, `mlx5_access_dm`, and the test `test_dm_bad_access`).
const WORD: usize = 4;

/// Mapped device memory.
#[derive(Debug)]
pub struct DeviceMemory {
    /// The pages that contain it.
    pages: Mapping,
    /// Length in bytes, as the program has asked for it.
    length: usize,
}

impl DeviceMemory {
    /// Takes over the mapping of the pages that contain `length` bytes.
    #[must_use]
    pub fn new(pages: Mapping, length: usize) -> Self {
        Self { pages, length }
    }

    /// Returns a pointer to `length` bytes at a byte offset. The adapter may change them at any
    /// time.
    ///
    /// # Errors
    /// `EINVAL` if these are not whole words of the memory.
    pub fn words(&self, offset: u64, length: usize) -> Result<*mut u8, Errno> {
        let offset = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
        let end = offset.checked_add(length).ok_or(Errno::INVAL)?;
        if !offset.is_multiple_of(WORD) || !length.is_multiple_of(WORD) || end > self.length {
            return Err(Errno::INVAL);
        }
        self.pages.bytes(offset, length).ok_or(Errno::INVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: direct: copies into and out of device memory have whole words
    #[test]
    fn copies_have_whole_words_of_the_memory() {
        let memory = DeviceMemory::new(Mapping::anonymous(4096).expect("mmap"), 100);
        for (offset, length) in [(0, 100), (96, 4), (100, 0)] {
            assert!(memory.words(offset, length).is_ok(), "{length} bytes at {offset}");
        }
        let wrong = [(3, 4), (4, 3), (1, 3), (104, 4), (100, 4), (0, 104), (u64::MAX - 3, 8)];
        for (offset, length) in wrong {
            let place = memory.words(offset, length);
            assert_eq!(place.err(), Some(Errno::INVAL), "{length} bytes at {offset}");
        }
    }
}
