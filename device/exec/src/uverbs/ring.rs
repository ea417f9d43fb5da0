//! The memory of rings. Usually the plugin takes it from the device file, so that the adapter
//! reaches it without system calls. Otherwise it is any memory of the process.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use vrnic_abi::GuestAddr;
use vrnic_queues::mapping::Mapping;

use crate::memory::guarded::{Guarded, take};
use crate::memory::spaces::{Number, Placement, Spaces};

/// The part of a device file from which rings come: 2^50 bytes, of which each is used once.
pub const RINGS: Range<u64> = 1 << 36..(1 << 36) + (1 << 50);

/// The memory of a ring in a device file. When this is dropped, it is free.
#[derive(Debug)]
pub struct SharedRing {
    spaces: Arc<Spaces>,
    number: Number,
    file: Arc<File>,
    place: Range<u64>,
    /// True if the memory in the file is freed at the end.
    frees: bool,
}

impl SharedRing {
    /// Maps a range of a file. Nobody can make the file shorter.
    ///
    /// # Errors
    /// `EINVAL` if the range is not one for rings, and the errors of mmap.
    pub fn map(spaces: &Arc<Spaces>, file: &Arc<File>, place: Range<u64>) -> Result<Self, Errno> {
        if place.is_empty() || place.start < RINGS.start || place.end > RINGS.end {
            return Err(Errno::INVAL);
        }
        let len = usize::try_from(place.end - place.start).map_err(|_| Errno::INVAL)?;
        take(file, place.clone())?;
        let mapping = Mapping::device(file.as_fd(), place.start, len)?;
        let number = spaces.insert_ring(Guarded::new(mapping)?)?;
        let (spaces, file) = (Arc::clone(spaces), Arc::clone(file));
        Ok(Self { spaces, number, file, place, frees: true })
    }

    /// Returns the number of bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a ring has at least a page")]
    pub fn len(&self) -> u64 {
        self.place.end - self.place.start
    }

    /// Returns the number of the memory, at the start of which the ring is.
    #[must_use]
    pub fn number(&self) -> Number {
        self.number
    }
}

impl Drop for SharedRing {
    fn drop(&mut self) {
        self.spaces.remove(self.number);
        if !self.frees {
            return;
        }
        let Range { start, end } = self.place;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // If it fails, the memory is free when the file ends.
        let _kept = fallocate(&*self.file, flags, start, end - start);
    }
}

/// The memory of a ring.
#[derive(Debug)]
pub enum RingMemory {
    /// In a device file.
    Shared(SharedRing),
    /// Any memory of a process.
    Placed(Placement),
}

impl RingMemory {
    /// Gives the memory up when the queue has another ring. The program may still read entries in
    /// the old one, and frees the memory then.
    pub fn leave(mut self) {
        if let Self::Shared(ring) = &mut self {
            ring.frees = false;
        }
    }

    /// Returns the adapter's address of the ring.
    ///
    /// # Errors
    /// None: each ring has an address.
    pub fn addr(&self) -> Result<GuestAddr, Errno> {
        match self {
            Self::Shared(ring) => ring.number().place(0),
            Self::Placed(placement) => Ok(placement.addr()),
        }
    }
}

/// The rings of a queue. They are dropped only when the adapter does not use them any more.
pub type Rings = Vec<RingMemory>;

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, fstat, memfd_create};

    use super::*;

    fn file() -> Arc<File> {
        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).expect("a file"));
        file.set_len(RINGS.end).expect("a length");
        Arc::new(file)
    }

    #[test]
    fn a_ring_is_the_memory_of_the_file_and_free_at_its_end() {
        let (spaces, file) = (Arc::new(Spaces::default()), file());
        let start = RINGS.start + (1 << 40);
        let ring = SharedRing::map(&spaces, &file, start..start + 8192).expect("mapped");
        let theirs = Mapping::device(file.as_fd(), start, 8192).expect("mapped");
        spaces.hold().write(ring.number, 4096, &[9; 8]).expect("inside");
        let word = theirs.word64(4096).expect("inside");
        assert_eq!(word.load(std::sync::atomic::Ordering::Relaxed), u64::from_le_bytes([9; 8]));
        assert!(fstat(&*file).expect("a file").st_blocks > 0);
        let number = ring.number;
        drop(ring);
        assert!(!spaces.hold().has(number));
        assert_eq!(fstat(&*file).expect("a file").st_blocks, 0);
    }

    #[test]
    fn other_parts_of_the_file_are_no_rings() {
        let (spaces, file) = (Arc::new(Spaces::default()), file());
        for place in [0..4096, RINGS.start - 4096..RINGS.start + 4096, RINGS.end..RINGS.end + 4096]
        {
            let refused = SharedRing::map(&spaces, &file, place.clone());
            assert_eq!(refused.err(), Some(Errno::INVAL), "{place:?}");
        }
    }
}
