//! Buffers: filling, comparing, and what the processor does to them while the device works.

use std::io;
use std::time::Duration;

use super::calls::calls;
use super::objects::Objects;
use crate::rpc::values::BufferInfo;
use vrnic_verbs::buffer::{Buffer, Mismatch};

fn wrong(what: &str, m: &Mismatch) -> io::Error {
    io::Error::other(format!(
        "{what}: byte {:#x} is {:#04x}, should be {:#04x}",
        m.offset, m.got, m.want
    ))
}

calls! { Buffers:
    /// Maps memory, zeroed.
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
    fn fill(
        &mut self,
        buffer: u32,
        offset: u64,
        len: u64,
        seed: u64,
        position: u64,
    ) -> io::Result<()> {
        self.buffers.get(buffer)?.fill(offset as usize, len as usize, seed, position)
    }

    /// Compares a range with pseudo-random bytes; fails at the first difference.
    fn compare(
        &mut self,
        buffer: u32,
        offset: u64,
        len: u64,
        seed: u64,
        position: u64,
    ) -> io::Result<()> {
        let buffer = self.buffers.get(buffer)?;
        match buffer.compare(offset as usize, len as usize, seed, position)? {
            None => Ok(()),
            Some(m) => Err(wrong(&format!("data at {offset:#x}+{len:#x}"), &m)),
        }
    }

    /// Fails if a canary of any buffer was touched.
    fn check_canaries(&mut self) -> io::Result<()> {
        for (handle, buffer) in self.buffers.iter() {
            if let Some(m) = buffer.check_canaries() {
                return Err(wrong(
                    &format!("canary of buffer {handle} ({} bytes)", buffer.length()),
                    &m,
                ));
            }
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

    /// Adds to a word with the processor's atomic instruction, over and over.
    fn cpu_fetch_add(&mut self, buffer: u32, offset: u64, add: u64, count: u64) -> io::Result<()> {
        self.buffers.get(buffer)?.fetch_add(offset as usize, add, count)
    }

    /// Waits until the byte at the end of a range is the right one, and at once compares the
    /// rest.
    fn spin_compare(
        &mut self,
        buffer: u32,
        offset: u64,
        len: u64,
        seed: u64,
        timeout_ms: u64,
    ) -> io::Result<()> {
        let buffer = self.buffers.get(buffer)?;
        let mut last = [0u8; 1];
        vrnic_verbs::prng::generate(seed, len - 1, &mut last);
        let timeout = Duration::from_millis(timeout_ms);
        if !buffer.spin((offset + len - 1) as usize, last[0], timeout)? {
            return Err(io::Error::other("the last byte did not arrive in time"));
        }
        match buffer.compare(offset as usize, len as usize, seed, 0)? {
            None => Ok(()),
            Some(m) => Err(wrong("the last byte had arrived, an earlier one had not", &m)),
        }
    }
}

impl Objects {
    fn keep_buffer(&mut self, made: Buffer) -> BufferInfo {
        let addr = made.addr();
        BufferInfo { buffer: self.buffers.add(made), addr }
    }
}
