//! Buffers: filling, comparing, and what the processor does to them while the device works.

use std::io;
use std::time::Duration;

use super::objects::Objects;
use crate::rpc::calls::{
    AllocBuffer, AllocDmabuf, BufferInfo, Compare, CpuFetchAdd, Fill, Read, SpinCompare, Write,
};
use crate::verbs::buffer::{Buffer, Mismatch};

fn wrong(what: &str, m: &Mismatch) -> io::Error {
    io::Error::other(format!(
        "{what}: byte {:#x} is {:#04x}, should be {:#04x}",
        m.offset, m.got, m.want
    ))
}

impl Objects {
    pub(super) fn alloc_buffer(&mut self, c: &AllocBuffer) -> io::Result<BufferInfo> {
        Ok(self.keep(Buffer::new(c.len as usize, c.misalign as usize)?))
    }

    pub(super) fn alloc_dmabuf(&mut self, c: &AllocDmabuf) -> io::Result<BufferInfo> {
        Ok(self.keep(Buffer::of_dmabuf(c.len as usize, c.misalign as usize)?))
    }

    fn keep(&mut self, made: Buffer) -> BufferInfo {
        let addr = made.addr();
        let buffer = self.handle();
        self.buffers.insert(buffer, made);
        BufferInfo { buffer, addr }
    }

    pub(super) fn protect_buffer(&mut self, buffer: u32) -> io::Result<()> {
        self.buffers.get(buffer)?.make_read_only()
    }

    pub(super) fn free_buffer(&mut self, buffer: u32) -> io::Result<()> {
        let mut unmapped = Ok(());
        self.buffers.destroy(buffer, |b| {
            unmapped = b.unmap();
            Ok(())
        })?;
        unmapped
    }

    pub(super) fn fill(&mut self, c: &Fill) -> io::Result<()> {
        self.buffers.get(c.buffer)?.fill(c.offset as usize, c.len as usize, c.seed, c.position)
    }

    pub(super) fn compare(&mut self, c: &Compare) -> io::Result<()> {
        let buffer = self.buffers.get(c.buffer)?;
        match buffer.compare(c.offset as usize, c.len as usize, c.seed, c.position)? {
            None => Ok(()),
            Some(m) => Err(wrong(&format!("data at {:#x}+{:#x}", c.offset, c.len), &m)),
        }
    }

    pub(super) fn check_canaries(&mut self) -> io::Result<()> {
        for (handle, buffer) in self.buffers.iter() {
            if let Some(m) = buffer.check_canaries() {
                return Err(wrong(
                    &format!("canary of buffer {handle} ({} bytes)", buffer.len()),
                    &m,
                ));
            }
        }
        Ok(())
    }

    pub(super) fn write(&mut self, c: &Write) -> io::Result<()> {
        self.buffers.get(c.buffer)?.write(c.offset as usize, &c.bytes)
    }

    pub(super) fn read(&mut self, c: &Read) -> io::Result<Vec<u8>> {
        let buffer = self.buffers.get(c.buffer)?;
        let mut bytes = vec![0; (c.len as usize).min(buffer.len())];
        buffer.read(c.offset as usize, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn cpu_fetch_add(&mut self, c: &CpuFetchAdd) -> io::Result<()> {
        self.buffers.get(c.buffer)?.fetch_add(c.offset as usize, c.add, c.count)
    }

    pub(super) fn spin_compare(&mut self, c: &SpinCompare) -> io::Result<()> {
        let buffer = self.buffers.get(c.buffer)?;
        let mut last = [0u8; 1];
        crate::pattern::generate(c.seed, c.len - 1, &mut last);
        let timeout = Duration::from_millis(c.timeout_ms);
        if !buffer.spin((c.offset + c.len - 1) as usize, last[0], timeout)? {
            return Err(io::Error::other("the last byte did not arrive in time"));
        }
        match buffer.compare(c.offset as usize, c.len as usize, c.seed, 0)? {
            None => Ok(()),
            Some(m) => Err(wrong("the last byte had arrived, an earlier one had not", &m)),
        }
    }
}
