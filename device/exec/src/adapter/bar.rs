//! BAR2 of an adapter (unsafe code). A program maps its doorbell pages, and send queues in device
//! memory, from a file of its own. Here the same pages of the same file take the place of those of
//! BAR2, so that the adapter finds all of them at their offsets.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use vrnic_abi::doorbell::BarRange;
use vrnic_abi::uar::DEVICE_MEMORY_OFFSET;
use vrnic_queues::mapping::Mapping;
use vrnic_sigbus::Slot;

use crate::memory::PAGE;
use crate::memory::guarded::take;

/// Length in bytes of the part of BAR2 that exists: all but device memory, of which there is none.
pub const LEN: u64 = DEVICE_MEMORY_OFFSET;

/// BAR2.
#[derive(Debug)]
pub struct Bar {
    memory: Mapping,
    /// The ranges that are pages of files, by their starts: such a page may go.
    slots: Mutex<HashMap<u64, &'static Slot>>,
}

impl Bar {
    /// Creates a BAR2 of zeroes, without pages of files.
    ///
    /// # Errors
    /// The errors of mmap, such as `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        let len = usize::try_from(LEN).map_err(|_| Errno::NOMEM)?;
        let memory = Mapping::anonymous(len)?;
        Ok(Self { memory, slots: Mutex::default() })
    }

    /// Returns its words.
    #[must_use]
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    /// Puts pages of a file, at the same offset, in the place of this range, until it is cleared.
    /// Ends the process if areas of memory are short.
    ///
    /// # Errors
    /// `EINVAL` if the range is not one of pages inside, `ENOMEM` if memory is short.
    pub fn place(&self, range: BarRange, file: &File) -> Result<(), Errno> {
        let (address, len) = self.inside(range)?;
        take(file, range.start..range.start + range.len)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range is inside of the mapping that `self` owns, so only its pages are
        // replaced. It stays mapped, readable and writable at any time: the kernel replaces pages
        // under the lock of the address space, and if it fails, which may leave a hole, the process
        // ends. The memory is only accessed as atomic words, which may change at any time.
        let replaced = unsafe { mmap(address, len, prot, flags, file.as_fd(), range.start) };
        whole(replaced)?;
        // SAFETY: the range is inside of the mapping that `self` owns, of whole pages, and `clear`
        // or the end of `self` releases the slot. The memory is only accessed as atomic words.
        let slot = unsafe { Slot::claim(address.expose_provenance(), len) };
        match slot {
            Ok(slot) => {
                let before = self.slots.lock().insert(range.start, slot);
                before.into_iter().for_each(Slot::release);
                Ok(())
            }
            Err(_) => self.clear(range).and(Err(Errno::NOMEM)),
        }
    }

    /// Puts zeroes in the place of this range, which then belongs to no file. Ends the process if
    /// memory is short.
    ///
    /// # Errors
    /// `EINVAL` if the range is not one of pages inside.
    pub fn clear(&self, range: BarRange) -> Result<(), Errno> {
        let (address, len) = self.inside(range)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: as in `place`.
        let replaced = unsafe { mmap_anonymous(address, len, prot, flags) };
        whole(replaced)?;
        let inside = range.start..range.start + range.len;
        let released = self.slots.lock().extract_if(|start, _| inside.contains(start)).collect();
        let released: Vec<_> = released;
        released.into_iter().for_each(|(_, slot)| slot.release());
        Ok(())
    }

    /// Returns whether the pages of a file in the range that starts here are lost, so that the
    /// adapter finds zeroes.
    #[must_use]
    pub fn is_lost(&self, start: u64) -> bool {
        self.slots.lock().get(&start).is_some_and(|slot| slot.is_lost())
    }

    /// Returns the address and the length of a range of pages inside.
    fn inside(&self, range: BarRange) -> Result<(*mut core::ffi::c_void, usize), Errno> {
        let end = range.start.checked_add(range.len).ok_or(Errno::INVAL)?;
        if end > LEN || range.len == 0 || !(range.start | range.len).is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        let address =
            usize::try_from(self.memory.address() + range.start).map_err(|_| Errno::INVAL)?;
        let len = usize::try_from(range.len).map_err(|_| Errno::INVAL)?;
        Ok((std::ptr::with_exposed_provenance_mut(address), len))
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.slots.get_mut().values().for_each(|slot| slot.release());
    }
}

/// Takes the result of mmap over pages of a mapping, which may leave a hole if it fails.
fn whole(replaced: Result<*mut core::ffi::c_void, Errno>) -> Result<(), Errno> {
    match replaced {
        Ok(_same) => Ok(()),
        Err(error) => {
            eprintln!("vrnic exec: the pages of an adapter cannot be mapped: {error}");
            std::process::abort()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn pages_of_a_file_are_seen_at_their_offset_until_they_are_cleared() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(LEN).expect("a length");
        let bar = Bar::new().expect("memory");
        let range = BarRange { start: 3 * PAGE, len: 2 * PAGE };
        bar.place(range, &file).expect("a range inside");
        let other = Mapping::device(file.as_fd(), 4 * PAGE, 4096).expect("a mapping");
        other.words()[1].store(77, Ordering::Relaxed);
        assert_eq!(bar.words()[4 * 512 + 1].load(Ordering::Relaxed), 77);
        bar.clear(range).expect("a range inside");
        assert_eq!(bar.words()[4 * 512 + 1].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn pages_that_have_gone_are_zeroes_until_they_are_cleared() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(LEN).expect("a length");
        let bar = Bar::new().expect("memory");
        let range = BarRange { start: 3 * PAGE, len: 2 * PAGE };
        bar.place(range, &file).expect("a range inside");
        file.set_len(0).expect("a length");
        bar.words()[3 * 512].store(7, Ordering::Relaxed);
        assert!(bar.is_lost(range.start));
        bar.clear(range).expect("a range inside");
        assert!(!bar.is_lost(range.start));
    }

    #[test]
    fn ranges_outside_are_refused() {
        let bar = Bar::new().expect("memory");
        for (start, len) in [(LEN, PAGE), (1, PAGE), (0, 1), (u64::MAX - PAGE + 1, PAGE), (0, 0)] {
            assert_eq!(
                bar.clear(BarRange { start, len }),
                Err(Errno::INVAL),
                "{start:#x} {len:#x}"
            );
        }
    }
}
