//! Registered memory with known contents.

use anyhow::{Result, ensure};

use super::env::End;
use crate::model::Sge;
use crate::rpc::client::{Agent, Pending};
use crate::rpc::values::{BufferInfo, MrInfo};

/// A buffer of an agent and a region over the whole of it.
pub(crate) struct Region {
    agent: Agent,
    pub(crate) buffer: u32,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) mr: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

impl Region {
    /// Maps `len` bytes whose first lies `misalign` bytes into a page, and registers them.
    pub(crate) fn new(end: &End, pd: u32, len: u64, misalign: u64, access: u32) -> Result<Self> {
        let agent = end.agent.clone();
        let made = agent.alloc_buffer(len.max(1), misalign)?;
        let mr = agent.reg_mr(pd, made.addr, len.max(1), access)?;
        Ok(Self::over(agent, &made, &mr, len))
    }

    /// Creates a region that is registered for one message of a peer.
    pub(crate) fn for_one_touch(end: &End, pd: u32, len: u64, access: u32) -> Result<Self> {
        let agent = end.agent.clone();
        let made = agent.alloc_buffer(len, 0)?;
        let mr = agent.reg_one_touch(pd, made.addr, len, access)?;
        Ok(Self::over(agent, &made, &mr, len))
    }

    /// Creates a region in a DMA buffer, registered as such.
    pub(crate) fn of_dmabuf(
        end: &End,
        pd: u32,
        len: u64,
        misalign: u64,
        access: u32,
    ) -> Result<Self> {
        let agent = end.agent.clone();
        let made = agent.alloc_dmabuf(len, misalign)?;
        let mr = agent.reg_dmabuf(pd, made.buffer, access)?;
        Ok(Self::over(agent, &made, &mr, len))
    }

    fn over(agent: Agent, made: &BufferInfo, mr: &MrInfo, len: u64) -> Self {
        let (buffer, addr) = (made.buffer, made.addr);
        Self { agent, buffer, addr, len, mr: mr.mr, lkey: mr.lkey, rkey: mr.rkey }
    }

    /// The whole of it as a segment.
    pub(crate) fn sge(&self) -> Sge {
        self.part(0, self.len)
    }

    /// A part of it as a segment.
    pub(crate) fn part(&self, offset: u64, len: u64) -> Sge {
        Sge { addr: self.addr + offset, length: len as u32, lkey: self.lkey }
    }

    /// Fills all of it.
    pub(crate) fn fill(&self, seed: u64) -> Result<()> {
        self.fill_part(0, self.len, seed, 0)
    }

    /// Fills a part with the stream from `position` on.
    pub(crate) fn fill_part(&self, offset: u64, len: u64, seed: u64, position: u64) -> Result<()> {
        Ok(self.agent.fill(self.buffer, offset, len, seed, position)?)
    }

    /// Compares all of it.
    pub(crate) fn check(&self, seed: u64) -> Result<()> {
        self.check_part(0, self.len, seed, 0)
    }

    /// Compares a part with the stream from `position` on.
    pub(crate) fn check_part(&self, offset: u64, len: u64, seed: u64, position: u64) -> Result<()> {
        Ok(self.agent.compare(self.buffer, offset, len, seed, position)?)
    }

    /// Begins to wait for the last byte of all of it, and compares the rest then.
    pub(crate) fn begin_spin(&self, seed: u64) -> Result<Pending<'_, ()>> {
        Ok(self.agent.begin().spin_compare(self.buffer, 0, self.len, seed, 20_000)?)
    }

    /// Stores a little-endian word.
    pub(crate) fn set_word(&self, offset: u64, value: u64) -> Result<()> {
        let bytes = value.to_le_bytes().to_vec();
        Ok(self.agent.write(self.buffer, offset, bytes)?)
    }

    /// Loads a little-endian word.
    pub(crate) fn word(&self, offset: u64) -> Result<u64> {
        let bytes = self.agent.read(self.buffer, offset, 8)?;
        let bytes: [u8; 8] = bytes.as_slice().try_into()?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Deregisters it; the memory stays.
    pub(crate) fn deregister(&self) -> Result<()> {
        Ok(self.agent.dereg_mr(self.mr)?)
    }

    /// Unmaps the memory, after the canaries were looked at.
    pub(crate) fn free(&self) -> Result<()> {
        self.agent.check_canaries()?;
        Ok(self.agent.free_buffer(self.buffer)?)
    }

    /// Fails unless all of it (at most 64 KiB) is zero, as it was mapped.
    pub(crate) fn check_zero(&self) -> Result<()> {
        let len = self.len.min(1 << 16);
        let bytes = self.agent.read(self.buffer, 0, len)?;
        ensure!(bytes.iter().all(|b| *b == 0), "memory that must not be written to was");
        Ok(())
    }
}
