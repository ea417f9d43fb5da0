// SPDX-License-Identifier: GPL-2.0
//! Rings in kernel memory that the adapter reads or writes.

use kernel::{
    device,
    dma::Coherent,
    io::{Io, io_project},
    prelude::*,
};
use zerocopy::{FromBytes, IntoBytes};

/// A ring of `1 << log_size` entries of `1 << log_stride` bytes. Indices are free-running.
pub(crate) struct Ring {
    memory: Coherent<[u8]>,
    log_size: u8,
    log_stride: u8,
}

impl Ring {
    /// A zeroed ring.
    pub(crate) fn new(
        device: &device::Device<device::Bound>,
        log_size: u8,
        log_stride: u8,
    ) -> Result<Self> {
        let length = 1usize << (log_size + log_stride);
        let memory = Coherent::<u8>::zeroed_slice(device, length, GFP_KERNEL)?;
        Ok(Self { memory, log_size, log_stride })
    }

    /// Its address for the adapter; it is contiguous.
    pub(crate) fn dma_address(&self) -> u64 {
        self.memory.dma_address()
    }

    /// Number of entries.
    pub(crate) fn size(&self) -> u32 {
        1 << self.log_size
    }

    /// log2 of the number of entries.
    pub(crate) fn log_size(&self) -> u8 {
        self.log_size
    }

    /// log2 of the bytes of an entry.
    pub(crate) fn log_stride(&self) -> u8 {
        self.log_stride
    }

    /// Where an entry starts.
    fn offset(&self, index: u32) -> usize {
        ((index & (self.size() - 1)) as usize) << self.log_stride
    }

    /// The 32-bit word at `offset` of entry `index`.
    pub(crate) fn word(&self, index: u32, offset: u32) -> Result<u32> {
        let start = self.offset(index) + offset as usize;
        let bytes = io_project!(self.memory, [try: start..start + size_of::<u32>()]);
        Ok(u32::from_le(bytes.try_cast::<u32>()?.read_val()))
    }

    /// Sets that word.
    pub(crate) fn set_word(&self, index: u32, offset: u32, value: u32) -> Result {
        let start = self.offset(index) + offset as usize;
        let bytes = io_project!(self.memory, [try: start..start + size_of::<u32>()]);
        bytes.try_cast::<u32>()?.write_val(value.to_le());
        Ok(())
    }

    /// A copy of entry `index`.
    pub(crate) fn read<T: FromBytes + IntoBytes>(&self, index: u32) -> Result<T> {
        self.read_at(self.offset(index))
    }

    /// A copy of what stands `offset` bytes behind the start of the ring.
    pub(crate) fn read_at<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T> {
        let end = offset.checked_add(size_of::<T>()).ok_or(EINVAL)?;
        let bytes = io_project!(self.memory, [try: offset..end]);
        Ok(bytes.try_cast::<T>()?.copy_read())
    }

    /// Writes the start of entry `index`.
    pub(crate) fn write(&self, index: u32, data: &[u8]) -> Result {
        if data.len() > 1 << self.log_stride {
            return Err(EINVAL);
        }
        let start = self.offset(index);
        io_project!(self.memory, [try: start..start + data.len()]).copy_from_slice(data);
        Ok(())
    }
}
