//! Guest memory: a sealed memory file, mapped here and given to the daemon.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, ensure};
use rustix::fs::{MemfdFlags, SealFlags};
use vrnic_device::memory::mapping::{Mapping, Word32, Word64};

/// Guest address of the first byte.
pub const BASE: u64 = 0x4000_0000;
/// Page size in bytes.
pub const PAGE: u64 = 4096;

/// Guest memory with an allocator that never frees.
#[derive(Debug)]
pub struct Ram {
    file: File,
    memory: Mapping,
    next: AtomicU64,
}

impl Ram {
    /// `len` bytes of zeroes.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn new(len: u64) -> anyhow::Result<Self> {
        let this = Self::unsealed(len)?;
        rustix::fs::fcntl_add_seals(&this.file, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(this)
    }

    /// Creates memory on a file that can be truncated.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn unsealed(len: u64) -> anyhow::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("guest", flags)?);
        file.set_len(len)?;
        let memory = Mapping::new(&file, 0, usize::try_from(len)?, true)?;
        Ok(Self { file, memory, next: AtomicU64::new(0) })
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Returns whether there is none; there always is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Cuts the file short.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn truncate(&self, len: u64) -> anyhow::Result<()> {
        Ok(self.file.set_len(len)?)
    }

    /// The descriptor of the file.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Takes `len` zeroed bytes at a page boundary.
    ///
    /// # Errors
    /// When no memory is left.
    pub fn alloc(&self, len: u64) -> anyhow::Result<u64> {
        let len = len.next_multiple_of(PAGE).max(PAGE);
        let offset = self.next.fetch_add(len, Ordering::Relaxed);
        ensure!(offset + len <= self.len(), "guest memory is used up");
        Ok(BASE + offset)
    }

    fn offset(addr: u64) -> anyhow::Result<usize> {
        Ok(usize::try_from(addr.checked_sub(BASE).context("address below guest memory")?)?)
    }

    /// Writes at a guest address.
    ///
    /// # Errors
    /// When it lies outside.
    pub fn write(&self, addr: u64, bytes: &[u8]) -> anyhow::Result<()> {
        self.memory.write(Self::offset(addr)?, bytes).context("address outside guest memory")
    }

    /// Reads at a guest address.
    ///
    /// # Errors
    /// When it lies outside.
    pub fn read(&self, addr: u64, len: usize) -> anyhow::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_into(addr, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads at a guest address.
    ///
    /// # Errors
    /// When it lies outside.
    pub fn read_into(&self, addr: u64, bytes: &mut [u8]) -> anyhow::Result<()> {
        self.memory.read(Self::offset(addr)?, bytes).context("address outside guest memory")
    }

    /// Copies to another guest's memory.
    ///
    /// # Errors
    /// When either range lies outside.
    pub fn copy_to(&self, addr: u64, to: &Self, to_addr: u64, len: usize) -> anyhow::Result<()> {
        let (from_at, to_at) = (Self::offset(addr)?, Self::offset(to_addr)?);
        Mapping::copy(&self.memory, from_at, &to.memory, to_at, len)
            .context("address outside guest memory")
    }

    /// The word at an aligned guest address.
    ///
    /// # Errors
    /// When it lies outside.
    pub fn word32(&self, addr: u64) -> anyhow::Result<Word32<'_>> {
        self.memory.word32(Self::offset(addr)?).context("no such word in guest memory")
    }

    /// The word at an aligned guest address.
    ///
    /// # Errors
    /// When it lies outside.
    pub fn word64(&self, addr: u64) -> anyhow::Result<Word64<'_>> {
        self.memory.word64(Self::offset(addr)?).context("no such word in guest memory")
    }
}
