//! Memory that the adapter shares: guest memory and BAR2. It is accessed only as atomic words,
//! since the adapter reads and writes it at any time.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use vrnic_abi::admin::Pages;
use vrnic_queues::heap::Shared;
use vrnic_queues::mapping::Mapping;
use vrnic_queues::ring::{Ring, Shape};
use zerocopy::{FromBytes, IntoBytes};

/// Guest address of the first byte.
pub const BASE: u64 = 0x4000_0000;
/// Page size in bytes.
pub const PAGE: u64 = 4096;

/// Memory of a file. All clones refer to the same memory.
#[derive(Clone, Debug)]
pub struct Memory {
    words: Shared<Mapping>,
    file: Arc<File>,
    /// The offset of the memory in the file.
    start: u64,
}

impl Memory {
    /// Maps `len` bytes of a file, from `start` on.
    #[must_use]
    pub fn new(file: File, start: u64, len: u64) -> Self {
        let mapping = Mapping::device(file.as_fd(), start, len as usize).expect("a mapping");
        Self { words: Shared::new(mapping).expect("memory"), file: Arc::new(file), start }
    }

    /// Creates `len` bytes of zeroes in a memory file, which may be truncated until it is sealed.
    #[must_use]
    pub fn zeroed(len: u64) -> Self {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("guest", flags).expect("a memory file"));
        file.set_len(len).expect("a memory file of this length");
        Self::new(file, 0, len)
    }

    /// Zeroes all of the memory.
    pub fn clear(&self) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&*self.file, flags, self.start, self.len()).expect("a hole in a memory file");
    }

    /// Returns its file, and the offset of its first byte there.
    #[must_use]
    pub fn file(&self) -> (&File, u64) {
        (&self.file, self.start)
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.words.len() as u64
    }

    /// Returns whether the memory has no bytes, which is never so.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the word at a byte offset, or `None` if it is unaligned or outside.
    #[must_use]
    #[inline]
    pub fn word32(&self, offset: u64) -> Option<&AtomicU32> {
        self.words.word32(u32::try_from(offset).ok()?)
    }

    /// Returns the word at a byte offset, or `None` if it is unaligned or outside.
    #[must_use]
    #[inline]
    pub fn word64(&self, offset: u64) -> Option<&AtomicU64> {
        self.words.word64(u32::try_from(offset).ok()?)
    }

    /// Copies bytes from `offset` on into a buffer. Returns `None` if not all of them are inside.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        read(self.words.words(), usize::try_from(offset).ok()?, into)
    }

    /// Copies bytes to `offset`, in ascending order. Returns `None` if not all of them are inside.
    pub fn write(&self, offset: u64, from: &[u8]) -> Option<()> {
        write(self.words.words(), usize::try_from(offset).ok()?, from)
    }

    /// Returns the ring at a byte offset, or `None` if it is not inside.
    #[must_use]
    pub fn ring(&self, offset: u64, shape: Shape) -> Option<Ring> {
        Ring::within(&self.words, u32::try_from(offset).ok()?, shape)
    }
}

/// Copies bytes of words from a byte offset on. Returns `None` if not all of them are inside.
#[inline]
fn read(words: &[AtomicU64], offset: usize, into: &mut [u8]) -> Option<()> {
    let (mut at, mut rest) = (offset, into);
    while !rest.is_empty() {
        let skip = at % 8;
        let (now, later) = rest.split_at_mut(rest.len().min(8 - skip));
        let bytes = words.get(at / 8)?.load(Ordering::Acquire).to_le_bytes();
        match <&mut [u8; 8]>::try_from(&mut *now) {
            Ok(whole) => *whole = bytes,
            Err(_) => now.copy_from_slice(&bytes[skip..skip + now.len()]),
        }
        at += now.len();
        rest = later;
    }
    Some(())
}

/// Copies bytes into words at a byte offset. Returns `None` if not all of them are inside.
#[inline]
pub(crate) fn write(words: &[AtomicU64], offset: usize, from: &[u8]) -> Option<()> {
    let (mut at, mut rest) = (offset, from);
    while !rest.is_empty() {
        let skip = at % 8;
        let (now, later) = rest.split_at(rest.len().min(8 - skip));
        let word = words.get(at / 8)?;
        match <[u8; 8]>::try_from(now) {
            Ok(whole) => word.store(u64::from_le_bytes(whole), Ordering::Release),
            Err(_) => replace(word, skip, now),
        }
        at += now.len();
        rest = later;
    }
    Some(())
}

/// Replaces some bytes of a word.
fn replace(word: &AtomicU64, skip: usize, bytes: &[u8]) {
    let with = |word: u64| {
        let mut whole = word.to_le_bytes();
        whole[skip..skip + bytes.len()].copy_from_slice(bytes);
        Some(u64::from_le_bytes(whole))
    };
    let _old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, with);
}

/// Returns the value at the start of an entry.
#[inline]
pub(crate) fn load<T: FromBytes + IntoBytes>(entry: &[AtomicU64]) -> T {
    let mut value = T::new_zeroed();
    read(entry, 0, value.as_mut_bytes()).expect("an entry of this length");
    value
}

/// Returns the stamp of an entry, which is the second half of a word.
#[inline]
pub(crate) fn stamp_of(entry: &[AtomicU64], offset: u32) -> u32 {
    (entry[offset as usize / 8].load(Ordering::Acquire) >> 32) as u32
}

/// Guest memory, with an allocator that never frees.
#[derive(Debug)]
pub struct Ram {
    memory: Memory,
    next: AtomicU64,
}

impl Ram {
    /// Creates `len` bytes of zeroes, whose file cannot be truncated.
    #[must_use]
    pub fn new(len: u64) -> Self {
        let this = Self::unsealed(len);
        let seals = SealFlags::SHRINK | SealFlags::GROW;
        fcntl_add_seals(&*this.memory.file, seals).expect("seals");
        this
    }

    /// Creates memory on a file that can be truncated.
    #[must_use]
    pub fn unsealed(len: u64) -> Self {
        Self { memory: Memory::zeroed(len), next: AtomicU64::new(0) }
    }

    /// Returns the memory, by offsets from [`BASE`].
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there always is memory")]
    pub fn len(&self) -> u64 {
        self.memory.len()
    }

    /// Truncates the file.
    pub fn truncate(&self, len: u64) {
        self.memory.file.set_len(len).expect("a file without seals");
    }

    /// Returns the file that has the memory.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.memory.file
    }

    /// Allocates `len` zeroed bytes at a page boundary. Returns their guest address.
    pub fn alloc(&self, len: u64) -> u64 {
        let len = len.next_multiple_of(PAGE).max(PAGE);
        let offset = self.next.fetch_add(len, Ordering::Relaxed);
        assert!(offset + len <= self.len(), "guest memory is used up");
        BASE + offset
    }

    /// Describes contiguous pages from this guest address on.
    #[must_use]
    pub fn pages(addr: u64) -> Pages {
        Pages::new(addr & !(PAGE - 1), PAGE.trailing_zeros() as u8, 0)
    }

    /// Writes at a guest address.
    pub fn write(&self, addr: u64, bytes: &[u8]) {
        self.memory.write(addr.wrapping_sub(BASE), bytes).expect("guest memory");
    }

    /// Reads at a guest address.
    #[must_use]
    pub fn read(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(addr.wrapping_sub(BASE), &mut bytes).expect("guest memory");
        bytes
    }

    /// Reads a value at a guest address.
    #[must_use]
    pub fn fetch<T: FromBytes>(&self, addr: u64) -> T {
        T::read_from_bytes(&self.read(addr, size_of::<T>())).expect("length")
    }

    /// Returns the word at an aligned guest address.
    #[must_use]
    pub fn word64(&self, addr: u64) -> &AtomicU64 {
        self.memory.word64(addr.wrapping_sub(BASE)).expect("an aligned word of guest memory")
    }

    /// Returns the ring at a guest address, or `None` if it is not in guest memory.
    #[must_use]
    pub fn ring(&self, addr: u64, log_size: u8, log_stride: u8) -> Option<Ring> {
        self.memory.ring(addr.wrapping_sub(BASE), Shape { log_size, log_stride })
    }
}
