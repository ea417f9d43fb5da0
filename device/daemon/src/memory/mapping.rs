//! Shared memory of guests and other daemons, mapped into this process. Only this module converts
//! addresses of guests to pointers.
//!
//! Others can write to this memory at any time, so references to mapped memory are never created:
//! bytes are accessed by raw pointers, and words by atomics. A read may see a part of each of two
//! writes of another process, so callers copy once and validate the copy.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use vrnic_sigbus::Slot;

use super::copy;

/// Number of bytes at the end of a copy that are stored last, and in ascending order.
const TAIL: usize = 64;

/// The order in which the bytes of a copy become visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The bytes become visible in any order.
    Any,
    /// The last bytes become visible last.
    LastBytesLast,
}

/// A shared mapping of part of a file, unmapped on drop.
///
/// The mapping is inside of a reservation with a number of spare pages that differs between
/// mappings. The memories of two guests would otherwise be a power of two apart, and copies between
/// equal guest addresses would compete for the same sets of the processor's caches (measured: 0.8
/// of the bandwidth). The spare pages also catch accesses beyond an end.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
    /// The entry for the handler of SIGBUS.
    slot: &'static Slot,
    _reserved: Reservation,
}

/// A range of addresses, unmapped on drop.
#[derive(Debug)]
struct Reservation {
    start: NonNull<u8>,
    len: usize,
}

/// Type of the file system of huge pages (statfs(2)).
pub const HUGETLBFS: libc::c_long = 0x958458f6;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes of a page.
const PAGE: usize = 4096;
/// Difference between the numbers of spare pages in front of a mapping and the next one.
const STAGGER: usize = 17;
/// Maximum number of spare pages of a mapping.
const SPARE_MAX: usize = 1009;

// SAFETY: a `Mapping` owns its address range; all access goes through raw pointers and atomics,
// which any thread may use at any time.
unsafe impl Send for Mapping {}
// SAFETY: a `Mapping` hands out no reference into its range, and all access goes through raw
// pointers and atomics, which any thread may use at any time.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` on, shared.
    ///
    /// # Errors
    /// Returns the error of mmap, and `InvalidInput` for a length of zero.
    pub fn new(file: &File, offset: u64, len: usize, writable: bool) -> io::Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        if len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let spare = NEXT.fetch_add(STAGGER, Ordering::Relaxed) % SPARE_MAX + 1;
        let page = page_size(file)?;
        let pages = len.checked_next_multiple_of(page).ok_or(io::ErrorKind::OutOfMemory)?;
        // The alignment to a page of the file needs less than one such page.
        let whole =
            pages.checked_add((spare + 1) * PAGE + page).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut prot = ProtFlags::READ;
        prot.set(ProtFlags::WRITE, writable);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a null hint makes the kernel choose a free range, so no existing mapping or
        // object of this process is replaced.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), whole, ProtFlags::empty(), flags) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // Unmaps the reservation if a later step fails.
        let reserved = Reservation { start, len: whole };
        let ahead = (start.addr().get() + spare * PAGE).next_multiple_of(page);
        // SAFETY: the spare pages, the alignment and `pages` bytes fit the reservation, with a page
        // to spare at its end.
        let base = unsafe { start.add(ahead - start.addr().get()) };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range lies inside the reservation made above, which no other code knows yet.
        unsafe { mmap(base.as_ptr().cast(), len, prot, flags, file.as_fd(), offset) }?;
        // SAFETY: this value owns the mapping, releases the slot before it unmaps it, and accesses
        // it by raw pointers and atomics only.
        let slot = unsafe { Slot::claim(base.addr().get(), pages) }?;
        Ok(Self { base, len, writable, slot, _reserved: reserved })
    }

    /// Returns whether the memory has been lost because a holder of the file has changed it. Data
    /// that was read before may be zeroes.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.slot.is_lost()
    }

    /// Binds the memory to the connection of its VMM ([`super::stall`]), which stays open while
    /// this exists.
    pub fn bind(&self, connection: BorrowedFd<'_>) {
        self.slot.bind(connection.as_raw_fd());
    }

    /// Returns none if the memory has been lost, so that a completed access may have reached zero
    /// pages instead.
    #[inline]
    fn there(&self) -> Option<()> {
        (!self.is_lost()).then_some(())
    }

    /// Maps the bytes of `file` from `offset` on in place of the present memory. A concurrent
    /// access reaches either the old or the new memory.
    ///
    /// # Errors
    /// Returns the error of mmap. The old memory then stays mapped, because the kernel checks its
    /// limits first.
    pub fn replace(&self, file: &File, offset: u64) -> io::Result<()> {
        let mut prot = ProtFlags::READ;
        prot.set(ProtFlags::WRITE, self.writable);
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range is this mapping's own and has the length given. The kernel exchanges
        // the memory in one step, so that every pointer and word in use stays valid; that bytes
        // change under them is what each of them expects of shared memory.
        unsafe { mmap(self.base.as_ptr().cast(), self.len, prot, flags, file.as_fd(), offset) }?;
        self.slot.restore();
        Ok(())
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the mapping is empty; it never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the device may write here.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns the pointer to `len` bytes at `offset`, if they are inside.
    fn at(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        if offset > self.len || len > self.len - offset {
            return None;
        }
        // SAFETY: `offset <= self.len`, so the result stays inside the mapping or one past it.
        Some(unsafe { self.base.add(offset) })
    }

    /// Returns the same pointer as [`Self::at`], if the mapping is writable.
    fn at_mut(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        if self.writable { self.at(offset, len) } else { None }
    }

    /// Copies bytes out. Returns none if they are not inside, or if the memory has been lost.
    #[must_use]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Option<()> {
        let from = self.at(offset, into.len())?;
        // SAFETY: `at` proved that the source lies in the mapping, which lives as long as `self`;
        // the destination is an exclusive slice of ours, so the two do not overlap. A
        // concurrent store of the guest yields arbitrary bytes, never undefined length or layout.
        unsafe { copy::copy(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        self.there()
    }

    /// Prefetches bytes into the cache. Bytes that are not inside are ignored.
    #[inline]
    pub fn fetch_ahead(&self, offset: usize, len: usize) {
        for line in (0..len).step_by(LINE) {
            if let Some(at) = self.at(offset.saturating_add(line), 1) {
                fetch_line(at);
            }
        }
    }

    /// Prefetches the cache line of a byte for writing. A byte that is not inside is ignored.
    #[inline]
    pub fn fetch_for_write(&self, offset: usize) {
        if let Some(at) = self.at_mut(offset, 1) {
            fetch_line_for_write(at);
        }
    }

    /// Copies bytes in, the last ones last. Returns none if they are not inside, or if the mapping
    /// is read-only.
    #[must_use]
    pub fn write(&self, offset: usize, from: &[u8]) -> Option<()> {
        let to = self.at_mut(offset, from.len())?;
        // SAFETY: `at_mut` proved that the destination lies in a writable mapping; the
        // source is a slice of ours. No reference to the destination exists anywhere.
        unsafe { copy_tail_last(from.as_ptr(), to.as_ptr(), from.len()) };
        self.there()
    }

    /// Copies bytes in, in any order. Returns none if they are not inside, or if the mapping is
    /// read-only.
    #[must_use]
    pub fn fill(&self, offset: usize, from: &[u8]) -> Option<()> {
        let to = self.at_mut(offset, from.len())?;
        // SAFETY: `at_mut` proved that the destination lies in a writable mapping; the
        // source is a slice of ours. No reference to the destination exists anywhere.
        unsafe { copy::copy(from.as_ptr(), to.as_ptr(), from.len()) };
        self.there()
    }

    /// Copies `len` bytes to another mapping. Returns none if one of the ranges is not inside, or
    /// if `to` is read-only. The ranges may overlap.
    #[inline]
    #[must_use]
    pub fn copy_to(
        &self,
        offset: usize,
        to: &Self,
        to_offset: usize,
        len: usize,
        order: Order,
    ) -> Option<()> {
        let source = self.at(offset, len)?.as_ptr();
        let target = to.at_mut(to_offset, len)?.as_ptr();
        match order {
            // SAFETY: both ranges were checked against mappings that live as long as the borrows,
            // and may overlap.
            Order::Any => unsafe { copy::copy(source, target, len) },
            // SAFETY: both ranges were checked against mappings that live as long as the borrows.
            Order::LastBytesLast => unsafe { copy_tail_last(source, target, len) },
        }
        self.there().and(to.there())
    }

    /// Returns the atomic 32-bit word at `offset`, which must be aligned.
    #[must_use]
    pub fn word32(&self, offset: usize) -> Option<Word32<'_>> {
        let at = self.at(offset, 4)?.cast::<AtomicU32>();
        if !at.is_aligned() {
            return None;
        }
        // SAFETY: in range, aligned, and alive as long as `self`; an atomic has interior
        // mutability, and all words of shared memory are only accessed as atomics or raw bytes.
        Some(Word32 { word: unsafe { at.as_ref() }, writable: self.writable })
    }

    /// Returns the atomic 64-bit word at `offset`, which must be aligned.
    #[must_use]
    pub fn word64(&self, offset: usize) -> Option<Word64<'_>> {
        let at = self.at(offset, 8)?.cast::<AtomicU64>();
        if !at.is_aligned() {
            return None;
        }
        // SAFETY: in range, aligned, and alive as long as `self`; an atomic has interior
        // mutability, and all words of shared memory are only accessed as atomics or raw bytes.
        Some(Word64 { word: unsafe { at.as_ref() }, writable: self.writable })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Released before the reservation is unmapped, because another mapping may then take its
        // place.
        self.slot.release();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is the one that `mmap_anonymous` returned, and every pointer or word
        // derived from it borrowed the mapping that owns this, so none outlives this call.
        if let Err(error) = unsafe { munmap(self.start.as_ptr().cast(), self.len) } {
            tracing::error!(len = self.len, %error, "guest memory cannot be unmapped");
        }
    }
}

/// Returns the page size of the file. Huge pages are mapped at multiples of their size.
pub(super) fn page_size(file: &File) -> io::Result<usize> {
    let info = rustix::fs::fstatfs(file)?;
    let size = if info.f_type == HUGETLBFS { usize::try_from(info.f_bsize).ok() } else { None };
    Ok(size.filter(|size| size.is_power_of_two()).unwrap_or(PAGE))
}

/// Prefetches a cache line.
#[inline]
fn fetch_line(at: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has this instruction, which accesses nothing that a
        // program could observe and never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.as_ptr().cast::<i8>()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _no_hint = at;
}

/// Prefetches a cache line for writing, so that a store finds it only in this processor's cache.
#[inline]
fn fetch_line_for_write(at: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor executes this instruction, some without any effect. It
    // accesses nothing that a program could observe and never faults, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at.as_ptr(), options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _no_hint = at;
}

/// An aligned 32-bit word of shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Word32<'a> {
    word: &'a AtomicU32,
    writable: bool,
}

impl Word32<'_> {
    /// Loads the word.
    #[must_use]
    pub fn load(self, order: Ordering) -> u32 {
        u32::from_le(self.word.load(order))
    }

    /// Stores the word. Returns none if the memory is read-only.
    #[must_use]
    pub fn store(self, value: u32, order: Ordering) -> Option<()> {
        self.writable.then(|| self.word.store(value.to_le(), order))
    }
}

/// An aligned 64-bit word of shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Word64<'a> {
    word: &'a AtomicU64,
    writable: bool,
}

impl Word64<'_> {
    /// Loads the word.
    #[must_use]
    pub fn load(self, order: Ordering) -> u64 {
        u64::from_le(self.word.load(order))
    }

    /// Stores the word. Returns none if the memory is read-only.
    #[must_use]
    pub fn store(self, value: u64, order: Ordering) -> Option<()> {
        self.writable.then(|| self.word.store(value.to_le(), order))
    }

    /// Clears the bits of `mask`, and returns the old value, or none if the memory is read-only.
    #[must_use]
    pub fn fetch_clear(self, mask: u64) -> Option<u64> {
        let order = Ordering::SeqCst;
        // x86 exchanges a word by one instruction, but clears single bits by a loop.
        let old = || match mask {
            u64::MAX => self.word.swap(0, order),
            _ => self.word.fetch_and((!mask).to_le(), order),
        };
        self.writable.then(|| u64::from_le(old()))
    }

    /// Adds to the word, and returns the old value, or none if the memory is read-only.
    #[must_use]
    pub fn fetch_add(self, value: u64) -> Option<u64> {
        let order = Ordering::SeqCst;
        // On a big-endian host, the sum of the swapped words would not be the swapped sum.
        const { assert!(cfg!(target_endian = "little")) };
        self.writable.then(|| self.word.fetch_add(value, order))
    }

    /// Stores `new` if the word is `compare`. Returns the old value, or none if the memory is
    /// read-only.
    #[must_use]
    pub fn compare_swap(self, compare: u64, new: u64) -> Option<u64> {
        let order = Ordering::SeqCst;
        self.writable
            .then(|| self.word.compare_exchange(compare.to_le(), new.to_le(), order, order))
            .map(|result| u64::from_le(result.unwrap_or_else(|old| old)))
    }
}

/// Copies in such an order that a reader that polls the last bytes finds all others in place.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes; overlap is allowed.
unsafe fn copy_tail_last(from: *const u8, to: *mut u8, len: usize) {
    let tail = len.min(TAIL);
    let head = len - tail;
    // The tail is taken first, so that an overlapping head does not change it.
    let mut last = [0u8; TAIL];
    // SAFETY: the caller vouches for `len` bytes at both ends; `head + tail == len` and
    // `tail <= TAIL`, so every offset stays inside. The bulk is one memmove; the tail goes out
    // in aligned-or-not 8-byte volatile stores, which neither compiler nor x86 reorders.
    unsafe {
        ptr::copy_nonoverlapping(from.add(head), last.as_mut_ptr(), tail);
        if head > 0 {
            ptr::copy(from, to, head);
            fence(Ordering::Release);
        }
        store_ascending(&last[..tail], to.add(head));
    }
}

/// Stores bytes in ascending order, eight at a time where possible.
///
/// # Safety
/// `to` must be writable for the length of `from`.
unsafe fn store_ascending(from: &[u8], to: *mut u8) {
    let words = from.chunks_exact(8);
    let rest = words.remainder();
    let mut at = 0;
    for word in words {
        let mut bytes = [0u8; 8];
        bytes.copy_from_slice(word);
        let word = Unaligned(u64::from_ne_bytes(bytes));
        // SAFETY: `at + 8 <= from.len()`; the packed struct makes the store an unaligned one.
        unsafe { to.add(at).cast::<Unaligned>().write_volatile(word) };
        at += 8;
    }
    for byte in rest {
        // SAFETY: `at < from.len()`.
        unsafe { to.add(at).write_volatile(*byte) };
        at += 1;
    }
}

/// Eight bytes without alignment.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Unaligned(u64);
