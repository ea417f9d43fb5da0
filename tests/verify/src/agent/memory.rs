//! Protection domains, regions, windows, and memory of the device.

use std::fs;
use std::io;

use super::calls::calls;
use super::objects::Objects;
use crate::rpc::values::{MemoryUse, MrInfo, MwInfo};
use vrnic_verbs::device_memory::DeviceMemory;
use vrnic_verbs::memory::allocator;
use vrnic_verbs::memory::{Mr, Pd, Td};
use vrnic_verbs::model::{Bind, Change};
use vrnic_verbs::window::Mw;

calls! { Memory:
    /// Allocates a PD.
    fn alloc_pd(&mut self) -> io::Result<u32> {
        let pd = Pd::new(self.context()?)?;
        Ok(self.pds.add(pd))
    }

    /// Allocates a thread domain.
    fn alloc_td(&mut self) -> io::Result<u32> {
        let td = Td::new(self.context()?)?;
        Ok(self.tds.add(td))
    }

    /// Frees a thread domain.
    fn dealloc_td(&mut self, td: u32) -> io::Result<()> {
        self.tds.destroy(td, Td::destroy)
    }

    /// Allocates a parent domain of the PD `pd` for one thread. With `allocating`, the program
    /// itself allocates the memory of rings.
    fn alloc_parent(&mut self, pd: u32, td: u32, allocating: bool) -> io::Result<u32> {
        let parent = self.pds.get(pd)?.parent(self.context()?, self.tds.get(td)?, allocating)?;
        Ok(self.pds.add(parent))
    }

    /// Returns what the memory is for that the program has allocated for rings.
    fn allocated(&mut self) -> io::Result<Vec<u64>> {
        Ok(allocator::resources())
    }

    /// Frees a PD.
    fn dealloc_pd(&mut self, pd: u32) -> io::Result<()> {
        self.pds.destroy(pd, Pd::destroy)
    }

    /// Returns what the process uses of memory.
    fn memory_use(&mut self) -> io::Result<MemoryUse> {
        let maps = fs::read_to_string("/proc/self/maps")?;
        let status = fs::read_to_string("/proc/self/status")?;
        let amount = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok())
                .ok_or_else(|| io::Error::other(format!("no {key} in the status")))
        };
        let (pinned, locked) = (amount("VmPin:")?, amount("VmLck:")?);
        Ok(MemoryUse { mappings: maps.lines().count() as u64, pinned, locked })
    }

    /// Registers a range of the agent's addresses.
    fn reg_mr(&mut self, pd: u32, addr: u64, length: u64, access: u32) -> io::Result<MrInfo> {
        let mr = Mr::new(self.pds.get(pd)?, addr, length, access)?;
        Ok(self.keep_mr(mr))
    }

    /// Allocates a region without memory.
    fn alloc_null_mr(&mut self, pd: u32) -> io::Result<MrInfo> {
        let mr = Mr::null(self.pds.get(pd)?)?;
        Ok(self.keep_mr(mr))
    }

    /// Registers a whole buffer through its DMA buffer.
    fn reg_dmabuf(&mut self, pd: u32, buffer: u32, access: u32) -> io::Result<MrInfo> {
        let mr = Mr::of_dmabuf(self.pds.get(pd)?, self.buffers.get(buffer)?, access)?;
        Ok(self.keep_mr(mr))
    }

    /// Changes a region. Returns its new keys.
    fn rereg_mr(&mut self, mr: u32, pd: Option<u32>, change: Change) -> io::Result<MrInfo> {
        let pd = pd.map(|pd| self.pds.get(pd)).transpose()?;
        let region = self.mrs.get(mr)?;
        region.change(pd, &change)?;
        let (lkey, rkey) = region.keys();
        Ok(MrInfo { mr, lkey, rkey })
    }

    /// Deregisters a region.
    fn dereg_mr(&mut self, mr: u32) -> io::Result<()> {
        self.mrs.destroy(mr, Mr::destroy)
    }

    /// Returns the maximum number of bytes of device memory that the device reports.
    fn most_device_memory(&mut self) -> io::Result<u64> {
        DeviceMemory::largest(self.context()?)
    }

    /// Allocates memory of the device.
    fn alloc_dm(&mut self, length: u64, log_align: u32) -> io::Result<u32> {
        let memory = DeviceMemory::new(self.context()?, length, log_align)?;
        Ok(self.dms.add(memory))
    }

    /// Frees memory of the device.
    fn free_dm(&mut self, dm: u32) -> io::Result<()> {
        self.dms.destroy(dm, DeviceMemory::destroy)
    }

    /// Registers a part of memory of the device.
    fn reg_dm(
        &mut self,
        pd: u32,
        dm: u32,
        offset: u64,
        length: u64,
        access: u32,
    ) -> io::Result<MrInfo> {
        let mr = self.dms.get(dm)?.register(self.pds.get(pd)?, offset, length, access)?;
        Ok(self.keep_mr(mr))
    }

    /// Stores bytes in memory of the device.
    fn write_dm(&mut self, dm: u32, offset: u64, bytes: Vec<u8>) -> io::Result<()> {
        self.dms.get(dm)?.write(offset, &bytes)
    }

    /// Loads at most 1 MiB from memory of the device.
    fn read_dm(&mut self, dm: u32, offset: u64, len: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len.min(1 << 20) as usize];
        self.dms.get(dm)?.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Allocates a window of type 1 or 2.
    fn alloc_mw(&mut self, pd: u32, mw_type: u32) -> io::Result<MwInfo> {
        let mw = Mw::new(self.pds.get(pd)?, mw_type)?;
        let rkey = mw.key();
        Ok(MwInfo { mw: self.mws.add(mw), rkey })
    }

    /// Frees a window.
    fn dealloc_mw(&mut self, mw: u32) -> io::Result<()> {
        self.mws.destroy(mw, Mw::destroy)
    }

    /// Posts a binding with the verb (type 1). Returns the new key.
    fn bind_mw(&mut self, qp: u32, mw: u32, mr: Option<u32>, bind: Bind) -> io::Result<u32> {
        let mr = mr.map(|mr| self.mrs.get(mr)).transpose()?;
        let mw = self.mws.get_mut(mw)?;
        mw.bind(self.qps.get(qp)?, mr, &bind)?;
        Ok(mw.key())
    }

    /// Posts a binding with a work request, with the key `rkey`.
    fn post_bind(
        &mut self,
        qp: u32,
        mw: u32,
        rkey: u32,
        mr: Option<u32>,
        bind: Bind,
    ) -> io::Result<()> {
        let mr = mr.map(|mr| self.mrs.get(mr)).transpose()?;
        self.qps.get(qp)?.post_bind(self.mws.get(mw)?, rkey, mr, &bind)
    }
}

impl Objects {
    pub(super) fn keep_mr(&mut self, made: Mr) -> MrInfo {
        let (lkey, rkey) = made.keys();
        MrInfo { mr: self.mrs.add(made), lkey, rkey }
    }
}
