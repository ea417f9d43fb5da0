// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory that this process shares with the adapter: rings in our own memory and areas of the
//! adapter's BARs.
//!
//! The other side reads and writes this memory at any time, so it is only ever accessed through
//! atomics (or, for registers, volatile stores); no reference to plain data in it exists.

use std::ops::Deref;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use vrnic_abi::uverbs::NEXT_RING;

use crate::allocator::{PAGE, Piece};
use crate::heap::Shared;

/// The place of a mapping, for others that map the same memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// The address of the area in this process.
    pub address: u64,
    /// Number of bytes.
    pub length: u64,
    /// The offset at which the driver offers it; zero for memory of this process.
    pub offset: u64,
}

/// A page-aligned area of memory, unmapped or freed on drop.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// The offset at which the driver offers it.
    offset: u64,
    /// The memory, if a program's allocator has provided it.
    piece: Option<Piece>,
    /// True if the part of the file that is mapped is freed on drop.
    frees: bool,
}

// SAFETY: the area belongs to this value until drop and is accessed only through atomics and
// volatile stores, which any thread may do.
unsafe impl Send for Mapping {}
// SAFETY: any thread may use the atomics and volatile stores by which the area is accessed.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Allocates zeroed memory of `len` bytes that a forked child does not inherit: the adapter
    /// continues to use the parent's pages, and copy-on-write must not replace them.
    ///
    /// # Errors
    /// The errors of mmap and madvise, such as `ENOMEM`; `EINVAL` if `len` is zero.
    pub fn anonymous(len: usize) -> Result<Self, Errno> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, prot, MapFlags::PRIVATE) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        let mapping = Self { base, len, offset: 0, piece: None, frees: false };
        mapping.keep_from_children()?;
        Ok(mapping)
    }

    /// Takes memory from a program's allocator. A forked child does not inherit it, unless it is a
    /// part of a huge page. Then the child gets a copy when it is forked, because the adapter uses
    /// the page (`copy_hugetlb_page_range` in the kernel's mm/hugetlb.c).
    pub(crate) fn of(piece: Piece) -> Self {
        let (base, len) = piece.area();
        let mapping = Self { base, len, offset: 0, piece: Some(piece), frees: false };
        let _whole_pages = mapping.keep_from_children();
        mapping
    }

    /// Excludes the area from children that are forked later.
    ///
    /// # Errors
    /// The errors of madvise, such as `ENOMEM`.
    pub fn keep_from_children(&self) -> Result<(), Errno> {
        // SAFETY: the range is the whole mapping; the advice affects only child processes.
        unsafe { madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxDontFork) }
    }

    /// Maps `len` bytes that the driver of `fd` offers at `offset`.
    ///
    /// # Errors
    /// The errors of mmap, such as `EINVAL` for an offset that the driver has not assigned.
    pub fn device(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self, Errno> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { mmap(ptr::null_mut(), len, prot, MapFlags::SHARED, fd, offset) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, len, offset, piece: None, frees: false })
    }

    /// Returns the place of the mapping.
    #[must_use]
    pub fn area(&self) -> Area {
        Area { address: self.address(), length: self.len as u64, offset: self.offset }
    }

    /// Returns the address of the area, for the kernel.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the area has no bytes, which is never so.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the area as 64-bit words.
    #[must_use]
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the area is mapped as long as `self` lives, page aligned, and covers as many
        // whole words; others may write atomics at the same time.
        unsafe { slice::from_raw_parts(self.base.as_ptr().cast(), self.len / 8) }
    }

    /// Returns a pointer to `len` bytes at a byte offset; `None` if they do not lie inside. The
    /// other side may change them at any time.
    #[must_use]
    pub fn bytes(&self, offset: usize, len: usize) -> Option<*mut u8> {
        if len > self.len.checked_sub(offset)? {
            return None;
        }
        // SAFETY: inside the area, or its end, by the check above.
        Some(unsafe { self.base.add(offset) }.as_ptr())
    }

    /// Returns a pointer to the word of `len` bytes at a byte offset; `None` if it is unaligned or
    /// outside.
    #[inline]
    fn at(&self, offset: u32, len: usize) -> Option<NonNull<u8>> {
        let offset = offset as usize;
        if !offset.is_multiple_of(len) || offset > self.len.checked_sub(len)? {
            return None;
        }
        // SAFETY: inside the area by the check above.
        Some(unsafe { self.base.add(offset) })
    }

    /// Returns the word at a byte offset; `None` if it is unaligned or outside.
    #[must_use]
    #[inline]
    pub fn word32(&self, offset: u32) -> Option<&AtomicU32> {
        let at = self.at(offset, 4)?;
        // SAFETY: aligned and inside the area, as `at` has checked, which is mapped as long as
        // `self` lives; others may write an atomic at the same time.
        Some(unsafe { at.cast().as_ref() })
    }

    /// Returns the word at a byte offset; `None` if it is unaligned or outside.
    #[must_use]
    #[inline]
    pub fn word64(&self, offset: u32) -> Option<&AtomicU64> {
        let at = self.at(offset, 8)?;
        // SAFETY: aligned and inside the area, as `at` has checked, which is mapped as long as
        // `self` lives; others may write an atomic at the same time.
        Some(unsafe { at.cast().as_ref() })
    }

    /// Writes the register at the start of the area by exactly one store, which is not merged or
    /// left out.
    #[inline]
    pub fn write_register(&self, value: u32) {
        if self.len < 4 {
            return;
        }
        // SAFETY: aligned (to the page) and inside the area by the check above.
        unsafe { self.base.as_ptr().cast::<u32>().write_volatile(value) }
    }

    /// Reads the register at a byte offset by exactly one load; `None` if it is unaligned or
    /// outside.
    #[must_use]
    pub fn read_register(&self, offset: u32) -> Option<u32> {
        let at = self.at(offset, 4)?;
        // SAFETY: aligned and inside the area, as `at` has checked.
        Some(unsafe { at.cast::<u32>().as_ptr().read_volatile() })
    }
}

/// The command file of a context, if it is memory that the process shares with the adapter.
#[derive(Clone, Debug)]
pub struct RingFile {
    fd: RawFd,
    /// The offset of the next ring. Other processes with the same file take theirs here, too.
    next: Word64,
}

impl RingFile {
    /// Returns the file, with this kick page; `None` if the page is too short.
    ///
    /// # Safety
    /// The file must stay open as long as the result and its clones are used.
    #[must_use]
    pub unsafe fn new(fd: RawFd, kick: &Shared<Mapping>) -> Option<Self> {
        Some(Self { fd, next: Word64::new(kick, NEXT_RING)? })
    }

    /// Maps memory of at least `len` bytes that no other ring has, and that is zero. The file has
    /// it until the mapping is dropped, or the adapter destroys the ring.
    pub(crate) fn map(&self, len: usize) -> Result<Mapping, Errno> {
        let len = len.checked_next_multiple_of(PAGE).filter(|len| *len > 0).ok_or(Errno::INVAL)?;
        let at = self.next.fetch_add(len as u64, Ordering::Relaxed);
        // SAFETY: the creator of this value has promised that the file is open.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        let mut mapping = Mapping::device(fd, at, len)?;
        // The kernel may refuse to create the queue, and then nobody else frees it.
        mapping.frees = true;
        mapping.keep_from_children()?;
        Ok(mapping)
    }
}

/// A word of a mapping. It is checked once and keeps the mapping, so an access needs no check.
#[derive(Debug)]
pub struct Word<T> {
    at: NonNull<T>,
    _memory: Shared<Mapping>,
}

/// A 32-bit word.
pub type Word32 = Word<AtomicU32>;
/// A 64-bit word.
pub type Word64 = Word<AtomicU64>;

// SAFETY: it is a shared reference to an atomic.
unsafe impl<T: Sync> Send for Word<T> {}
// SAFETY: it gives out shared references to its atomic only.
unsafe impl<T: Sync> Sync for Word<T> {}

impl<T> Clone for Word<T> {
    fn clone(&self) -> Self {
        Self { at: self.at, _memory: self._memory.clone() }
    }
}

/// Words of a mapping, which they keep.
#[derive(Clone, Debug)]
pub struct Words {
    at: NonNull<AtomicU64>,
    len: usize,
    memory: Shared<Mapping>,
}

// SAFETY: it is a shared reference to atomics.
unsafe impl Send for Words {}
// SAFETY: it gives out shared references to its atomics only.
unsafe impl Sync for Words {}

impl Words {
    /// Takes over a mapping.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(memory: Mapping) -> Result<Self, Errno> {
        let (at, len) = (memory.base.cast(), memory.len / 8);
        Ok(Self { at, len, memory: Shared::new(memory)? })
    }

    /// Returns `len` bytes of a mapping, from a byte offset on, as words; `None` if they do not all
    /// lie inside, or are not whole words.
    #[must_use]
    pub fn within(memory: &Shared<Mapping>, offset: u32, len: usize) -> Option<Self> {
        let at = memory.at(offset, 8)?;
        if !len.is_multiple_of(8) || len > memory.len - offset as usize {
            return None;
        }
        Some(Self { at: at.cast(), len: len / 8, memory: memory.clone() })
    }

    /// Returns the mapping.
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.memory
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: whole words inside the mapping, which lives as long as `self`; others
        // may write atomics at the same time.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl Word32 {
    /// Returns the word at a byte offset of `memory`; `None` if it is unaligned or outside.
    #[must_use]
    pub fn new(memory: &Shared<Mapping>, offset: u32) -> Option<Self> {
        Some(Self { at: memory.at(offset, 4)?.cast(), _memory: memory.clone() })
    }
}

impl Word64 {
    /// Returns the word at a byte offset of `memory`; `None` if it is unaligned or outside.
    #[must_use]
    pub fn new(memory: &Shared<Mapping>, offset: u32) -> Option<Self> {
        Some(Self { at: memory.at(offset, 8)?.cast(), _memory: memory.clone() })
    }
}

impl<T> Deref for Word<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: aligned, inside the mapping (which lives as long as `self`), and an atomic, which
        // others may write at the same time.
        unsafe { self.at.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.piece.is_some() {
            return;
        }
        if self.frees {
            // SAFETY: the range is the whole mapping, which nobody accesses any more here; others
            // that map the same part of the file find zeroes there.
            let freed =
                unsafe { madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxRemove) };
            // It stays until the file ends.
            let _kept = freed;
        }
        // SAFETY: made by mmap with this length, and no borrow of it outlives `self`.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        // The kernel fails if it must split an area and the process has too many of them. The
        // memory then stays mapped and unused.
        let _kept = unmapped;
    }
}

/// Completes write-combined stores before any later store.
#[inline]
pub fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE, which the instruction belongs to, is part of x86-64.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::fd::{AsFd, AsRawFd};
    use std::sync::atomic::Ordering::Relaxed;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    /// Replaces each page of these mappings by the same page of zeroes, as the kernel does with the
    /// mappings of a context when the device goes away.
    pub(crate) fn replace_by_one_page(areas: &[&[AtomicU64]]) {
        let page = memfd_create("page", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&page, 4096).expect("memory");
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        for area in areas {
            for offset in (0..size_of_val(*area)).step_by(4096) {
                let at = area.as_ptr().wrapping_byte_add(offset).cast_mut().cast();
                // SAFETY: whole pages of a mapping of the caller, which is borrowed, so that it
                // stays mapped; all accesses to it are atomic.
                let mapped = unsafe { mmap(at, 4096, prot, flags | MapFlags::FIXED, &page, 0) };
                assert_eq!(mapped.expect("mapped"), at);
            }
        }
    }

    fn shared(len: usize) -> Shared<Mapping> {
        Shared::new(Mapping::anonymous(len).expect("mmap")).expect("memory")
    }

    #[test]
    fn words_cover_the_area_and_no_more() {
        let mapping = shared(4096);
        assert_eq!(mapping.words().len(), 512);
        assert_eq!(mapping.address() % 4096, 0);
        assert!(mapping.words().iter().all(|word| word.load(Relaxed) == 0));
        assert!(Word32::new(&mapping, 4092).is_some() && Word64::new(&mapping, 4088).is_some());
        for outside in [4096, 2, u32::MAX - 3] {
            assert!(Word32::new(&mapping, outside).is_none(), "{outside}");
        }
        for outside in [4096, 4092, 4, u32::MAX - 7] {
            assert!(Word64::new(&mapping, outside).is_none(), "{outside}");
        }
    }

    #[test]
    fn parts_of_an_area_are_its_words() {
        let mapping = shared(4096);
        mapping.word32(100).expect("inside").store(7, Relaxed);
        assert_eq!(mapping.word64(96).expect("inside").load(Relaxed), 7 << 32);
        let part = Words::within(&mapping, 96, 4000).expect("inside");
        assert_eq!((part.len(), part[0].load(Relaxed)), (500, 7 << 32));
        for (offset, len) in [(96, 4008), (4096, 8), (4, 8), (0, 12), (8, usize::MAX - 7)] {
            assert!(Words::within(&mapping, offset, len).is_none(), "{offset}, {len}");
        }
        assert!(mapping.word32(4096).is_none() && mapping.word64(4092).is_none());
    }

    /// Shows: memory: a ring that the kernel refuses takes no memory of the device file
    #[test]
    fn the_memory_of_a_ring_in_a_file_is_free_after_it() {
        let file = memfd_create("rings", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&file, 1 << 30).expect("a length");
        let kick = shared(4096);
        // SAFETY: the file is open until the end of the test.
        let rings = unsafe { RingFile::new(file.as_raw_fd(), &kick) }.expect("a page");
        for _ in 0..3 {
            let ring = rings.map(8192).expect("mapped");
            ring.words().iter().for_each(|word| word.store(1, Relaxed));
            assert!(rustix::fs::fstat(&file).expect("a file").st_blocks > 0);
            drop(ring);
            assert_eq!(rustix::fs::fstat(&file).expect("a file").st_blocks, 0);
        }
    }

    #[test]
    fn a_word_keeps_its_mapping() {
        let mapping = shared(4096);
        let word = Word32::new(&mapping, 4).expect("inside");
        word.store(7, Relaxed);
        assert_eq!(mapping.words()[0].load(Relaxed), 7 << 32);
        drop(mapping);
        assert_eq!(word.load(Relaxed), 7);
    }

    #[test]
    fn a_mapping_has_the_place_where_others_map_it() {
        let file = memfd_create("area", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&file, 3 * 4096).expect("memory");
        let mapping = Mapping::device(file.as_fd(), 4096, 8192).expect("mapped");
        let Area { address, length, offset } = mapping.area();
        assert_eq!((address, length, offset), (mapping.address(), 8192, 4096));
        let other = Mapping::device(file.as_fd(), offset, 8192).expect("mapped");
        mapping.word32(4).expect("inside").store(7, Relaxed);
        assert_eq!(other.word32(4).expect("inside").load(Relaxed), 7);
        assert_eq!(Mapping::anonymous(4096).expect("memory").area().offset, 0);
    }

    #[test]
    fn rings_in_a_file_have_different_places_for_all_that_share_it() {
        let file = memfd_create("area", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&file, 16 * 4096).expect("memory");
        let kick = Shared::new(Mapping::device(file.as_fd(), 0, 4096).expect("mapped"));
        let kick = kick.expect("memory");
        kick.word64(NEXT_RING).expect("inside").store(4096, Ordering::Relaxed);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        // SAFETY: the file stays open to the end of the test.
        let [first, second] = [(); 2].map(|()| unsafe { RingFile::new(fd, &kick) });
        let (first, second) = (first.expect("a word"), second.expect("a word"));
        let rings =
            [first.map(100), second.map(8192), first.map(1)].map(|ring| ring.expect("room"));
        let places = rings.each_ref().map(|ring| (ring.area().offset, ring.len()));
        assert_eq!(places, [(4096, 4096), (8192, 8192), (16384, 4096)]);
        rings[1].word32(4096).expect("inside").store(7, Ordering::Relaxed);
        let theirs = Mapping::device(file.as_fd(), 8192, 8192).expect("mapped");
        assert_eq!(theirs.word32(4096).expect("inside").load(Ordering::Relaxed), 7);
        assert!(first.map(0).is_err());
    }

    #[test]
    fn empty_areas_are_refused() {
        assert_eq!(Mapping::anonymous(0).expect_err("no bytes"), Errno::INVAL);
    }
}
