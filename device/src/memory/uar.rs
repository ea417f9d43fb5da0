//! BAR2: a memory file that both the device and the guest map.

use std::fs::File;
use std::io;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use vrnic_abi::pci::BAR_UAR_LEN;

use super::mapping::Mapping;

/// The doorbell memory of an adapter. Pages exist from their first use on.
#[derive(Debug)]
pub struct UarMemory {
    /// Shows in /proc.
    name: String,
    file: Mutex<File>,
    memory: Mapping,
}

impl UarMemory {
    /// Allocates and maps the memory of adapter `name`.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn new(name: &str) -> io::Result<Self> {
        let file = allocate(name)?;
        let len = usize::try_from(BAR_UAR_LEN).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let memory = Mapping::new(&file, 0, len, true)?;
        Ok(Self { name: name.to_owned(), file: Mutex::new(file), memory })
    }

    /// Replaces the memory by new memory and returns its file, to give to a VMM. A process that
    /// still maps the old memory shares it with no one.
    ///
    /// # Errors
    /// Returns the kernel's error; the old memory stays then.
    pub fn renew(&self) -> io::Result<File> {
        let new = allocate(&self.name)?;
        let given = new.try_clone()?;
        let mut file = self.file.lock();
        self.memory.replace(&new)?;
        *file = new;
        Ok(given)
    }

    /// The mapping.
    #[must_use]
    pub fn memory(&self) -> &Mapping {
        &self.memory
    }

    /// Zeroes everything, also in the guest's view.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn clear(&self) -> io::Result<()> {
        self.clear_range(0, BAR_UAR_LEN)
    }

    /// Zeroes a range, also in the guest's view, and gives its pages back.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn clear_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&*self.file.lock(), flags, offset, len)?)
    }
}

/// A memory file of the length of BAR2.
fn allocate(name: &str) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create(format!("vrnic-{name}"), flags)?);
    file.set_len(BAR_UAR_LEN)?;
    // The guest's VMM gets this file: it must not be able to cut pages off under our feet.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}
