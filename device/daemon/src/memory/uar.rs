//! BAR2: a memory file that both the device and the guest map. The device maps doorbells and device
//! memory separately, since only device memory has bus addresses.

use std::fs::File;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use vrnic_abi::pci::BAR_UAR_LEN;
use vrnic_abi::uar::{DEVICE_MEMORY_OFFSET, DEVICE_MEMORY_UNIT};

use super::mapping::Mapping;

/// The memory of an adapter's BAR2. Pages are allocated at their first use.
#[derive(Debug)]
pub struct UarMemory {
    /// The name of the memory file in /proc.
    name: String,
    file: Mutex<File>,
    doorbells: Mapping,
    /// Device memory, if the adapter has any.
    device: Option<Arc<Mapping>>,
}

impl UarMemory {
    /// Allocates and maps the memory of adapter `name`, which has `device_memory` units of device
    /// memory.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn new(name: &str, device_memory: u32) -> io::Result<Self> {
        let file = allocate(name)?;
        let map = |offset, len: u64| {
            let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
            Mapping::new(&file, offset, len, true)
        };
        let doorbells = map(0, DEVICE_MEMORY_OFFSET)?;
        let device = match u64::from(device_memory) * DEVICE_MEMORY_UNIT {
            0 => None,
            len => Some(Arc::new(map(DEVICE_MEMORY_OFFSET, len)?)),
        };
        Ok(Self { name: name.to_owned(), file: Mutex::new(file), doorbells, device })
    }

    /// Replaces the memory by new memory, and returns its file for a VMM. A process that still maps
    /// the old memory shares it with no one.
    ///
    /// # Errors
    /// Returns the kernel's error. No other process then has the new memory.
    pub fn renew(&self) -> io::Result<File> {
        let new = allocate(&self.name)?;
        let given = new.try_clone()?;
        let mut file = self.file.lock();
        if let Some(device) = &self.device {
            device.replace(&new, DEVICE_MEMORY_OFFSET)?;
        }
        self.doorbells.replace(&new, 0)?;
        *file = new;
        Ok(given)
    }

    /// Returns doorbells and send queues: the BAR from its start.
    #[must_use]
    pub fn doorbells(&self) -> &Mapping {
        &self.doorbells
    }

    /// Returns device memory, if the adapter has any.
    #[must_use]
    pub fn device(&self) -> Option<&Arc<Mapping>> {
        self.device.as_ref()
    }

    /// Returns the part of the BAR that an access of the VMM reaches, and the offset in this part.
    #[must_use]
    pub fn part(&self, offset: u64) -> Option<(&Mapping, usize)> {
        match offset.checked_sub(DEVICE_MEMORY_OFFSET) {
            Some(offset) => Some((self.device.as_deref()?, usize::try_from(offset).ok()?)),
            None => Some((&self.doorbells, usize::try_from(offset).ok()?)),
        }
    }

    /// Zeroes doorbells and send queues, which the guest sees, too.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn clear(&self) -> io::Result<()> {
        self.clear_range(0, DEVICE_MEMORY_OFFSET)
    }

    /// Zeroes a range, which the guest sees, too, and frees its pages.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn clear_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&*self.file.lock(), flags, offset, len)?)
    }
}

/// Creates a memory file of the length of BAR2.
fn allocate(name: &str) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create(format!("vrnic-{name}"), flags)?);
    file.set_len(BAR_UAR_LEN)?;
    // The guest's VMM gets this file, and must not be able to truncate it.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}
