//! Buffers: filling, comparing, and accesses of the processor while the device works.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use super::calls::calls;
use super::objects::Objects;
use crate::rpc::values::{BufferInfo, Known};
use vrnic_verbs::memory::buffer::{Buffer, Mismatch};

/// Time limit for the last byte of a range to arrive.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Fails if there is a mismatch, which `what` describes.
fn equal(found: Option<Mismatch>, what: impl Display) -> io::Result<()> {
    let Some(Mismatch { offset, got, want }) = found else { return Ok(()) };
    let text = format!("{what}: byte {offset:#x} is {got:#04x}, should be {want:#04x}");
    Err(io::Error::other(text))
}

calls! { Buffers:
    /// Maps zeroed memory.
    fn alloc_buffer(&mut self, len: u64, misalign: u64) -> io::Result<BufferInfo> {
        Ok(self.keep_buffer(Buffer::new(len as usize, misalign as usize)?))
    }

    /// Creates a buffer as a DMA buffer.
    fn alloc_dmabuf(&mut self, len: u64, misalign: u64) -> io::Result<BufferInfo> {
        Ok(self.keep_buffer(Buffer::of_dmabuf(len as usize, misalign as usize)?))
    }

    /// Makes a buffer read only for this process.
    fn protect_buffer(&mut self, buffer: u32) -> io::Result<()> {
        self.buffers.get(buffer)?.make_read_only()
    }

    /// Unmaps a buffer.
    fn free_buffer(&mut self, buffer: u32) -> io::Result<()> {
        let mut unmapped = Ok(());
        self.buffers.destroy(buffer, |b| {
            unmapped = b.unmap();
            Ok(())
        })?;
        unmapped
    }

    /// Fills a range with pseudo-random bytes.
    fn fill(&mut self, to: Known) -> io::Result<()> {
        let (offset, len) = (to.offset as usize, to.len as usize);
        self.buffers.get(to.buffer)?.fill(offset, len, to.seed, to.position)
    }

    /// Compares a range with pseudo-random bytes. Fails at the first difference.
    fn compare(&mut self, with: Known) -> io::Result<()> {
        let Known { buffer, offset, len, seed, position } = with;
        let buffer = self.buffers.get(buffer)?;
        let found = buffer.compare(offset as usize, len as usize, seed, position)?;
        equal(found, format_args!("data at {offset:#x}+{len:#x}"))
    }

    /// Fails if a canary of any buffer has changed.
    fn check_canaries(&mut self) -> io::Result<()> {
        for (handle, buffer) in self.buffers.iter() {
            let what = format_args!("canary of buffer {handle} ({} bytes)", buffer.length());
            equal(buffer.check_canaries(), what)?;
        }
        Ok(())
    }

    /// Stores bytes.
    fn write(&mut self, buffer: u32, offset: u64, bytes: Vec<u8>) -> io::Result<()> {
        self.buffers.get(buffer)?.write(offset as usize, &bytes)
    }

    /// Loads bytes.
    fn read(&mut self, buffer: u32, offset: u64, len: u64) -> io::Result<Vec<u8>> {
        let buffer = self.buffers.get(buffer)?;
        let mut bytes = vec![0; (len as usize).min(buffer.length())];
        buffer.read(offset as usize, &mut bytes)?;
        Ok(bytes)
    }

    /// Adds `count` times to a word with the processor's atomic instruction.
    fn cpu_fetch_add(&mut self, buffer: u32, offset: u64, add: u64, count: u64) -> io::Result<()> {
        self.buffers.get(buffer)?.fetch_add(offset as usize, add, count)
    }

    /// Waits until the byte at the end of a range is right, and then immediately compares the rest.
    fn spin_compare(&mut self, with: Known) -> io::Result<()> {
        let Known { buffer, offset, len, seed, position } = with;
        let buffer = self.buffers.get(buffer)?;
        let mut last = [0u8; 1];
        vrnic_verbs::prng::generate(seed, position + len - 1, &mut last);
        if !buffer.spin((offset + len - 1) as usize, last[0], TIMEOUT)? {
            return Err(io::Error::other("the last byte did not arrive in time"));
        }
        let found = buffer.compare(offset as usize, len as usize, seed, position)?;
        equal(found, "the last byte had arrived, an earlier one had not")
    }
}

impl Objects {
    fn keep_buffer(&mut self, made: Buffer) -> BufferInfo {
        let addr = made.addr();
        BufferInfo { buffer: self.buffers.add(made), addr }
    }
}
