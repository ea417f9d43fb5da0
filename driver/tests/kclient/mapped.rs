// SPDX-License-Identifier: GPL-2.0
//! Memory that a device knows by addresses.

use core::ops::{Deref, Range};

use kernel::{prelude::*, sync::Arc};

use super::{
    memory::Memory,
    pd::{Device, Pd, is_same},
};
use crate::bindings;

/// Memory of which the device knows each piece by its address, for messages and for both ends of
/// READs and WRITEs.
///
/// The device uses it only for requests, which keep it.
pub struct Mapped {
    memory: Memory,
    addresses: KVec<u64>,
    device: Arc<dyn Device>,
}

impl Mapped {
    /// Maps memory for a device.
    ///
    /// # Errors
    ///
    /// `EINVAL` for memory of another device, `ENOMEM`.
    pub fn new(device: Arc<dyn Device>, memory: Memory) -> Result<Arc<Self>> {
        if memory.device().is_some_and(|of| !is_same(of, &device)) {
            return Err(EINVAL);
        }
        let mut this = Self { memory, addresses: KVec::new(), device };
        let size = u32::try_from(this.memory.piece_len())?;
        for start in this.memory.starts() {
            // The place for the address is reserved first: if this fails, nothing has been mapped
            // yet.
            this.addresses.reserve(1, GFP_KERNEL)?;
            let device = this.device.as_raw().as_ptr();
            let address = match this.memory.device().is_some() {
                // SAFETY: the device is registered, as `this` keeps it; the piece is of the memory
                // of this device, as was checked above.
                true => unsafe { bindings::kclient_peer_address(device, start.cast()) },
                // SAFETY: the device is registered, as `this` keeps it; the piece is of this size
                // and lives until `drop` has unmapped it.
                false => unsafe { bindings::kclient_map(device, start.cast(), size) },
            };
            if address == 0 {
                return Err(ENOMEM);
            }
            this.addresses.push(address, GFP_KERNEL)?;
        }
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Fails unless it is mapped for this device.
    ///
    /// # Errors
    ///
    /// `EINVAL`.
    pub(super) fn check_device(&self, device: &Arc<dyn Device>) -> Result {
        if is_same(&self.device, device) { Ok(()) } else { Err(EINVAL) }
    }

    /// Returns the device's address of a byte; those after it follow up to the end of the piece.
    pub(super) fn address(&self, at: usize) -> Result<u64> {
        let size = self.memory.piece_len();
        let start = self.addresses.get(at / size).ok_or(EINVAL)?;
        // CAST: an offset.
        Ok(start + (at % size) as u64)
    }
}

impl Deref for Mapped {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.memory
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.memory.device().is_some() {
            return;
        }
        // CAST: was made of a u32.
        let size = self.memory.piece_len() as u32;
        for address in &self.addresses {
            // SAFETY: `new` has mapped this address with this size; no request names it any more,
            // as that would keep this.
            unsafe { bindings::kclient_unmap(self.device.as_raw().as_ptr(), *address, size) };
        }
    }
}

/// Bytes of a [`Mapped`], for a request.
#[derive(Clone)]
pub struct Part {
    memory: Arc<Mapped>,
    at: usize,
    length: usize,
}

impl Part {
    /// Returns these bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are no such.
    pub fn new(memory: &Arc<Mapped>, range: Range<usize>) -> Result<Self> {
        let length = range.end.checked_sub(range.start).ok_or(EINVAL)?;
        if range.end > memory.len() {
            return Err(EINVAL);
        }
        Ok(Self { memory: memory.clone(), at: range.start, length })
    }

    /// Returns the memory that they are part of.
    pub(super) fn memory(&self) -> &Arc<Mapped> {
        &self.memory
    }

    /// Returns their number.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns the device's address of the first, after which the others follow.
    ///
    /// # Errors
    ///
    /// `EINVAL` if they are not of one piece.
    pub fn address(&self) -> Result<u64> {
        let size = self.memory.piece_len();
        if self.at % size + self.length > size {
            return Err(EINVAL);
        }
        self.memory.address(self.at)
    }

    /// Returns a list of them for a work request in a domain.
    ///
    /// # Errors
    ///
    /// `EINVAL` if they are mapped for another device than the domain's, `ENOMEM`.
    pub(super) fn segments(&self, pd: &Pd) -> Result<KVec<bindings::ib_sge>> {
        self.memory.check_device(pd.device())?;
        let lkey = pd.lkey();
        let size = self.memory.piece_len();
        let (mut at, mut left) = (self.at, self.length);
        let mut list = KVec::new();
        while left != 0 {
            let part = left.min(size - at % size);
            let addr = self.memory.address(at)?;
            let sge = bindings::ib_sge { addr, length: u32::try_from(part)?, lkey };
            list.push(sge, GFP_KERNEL)?;
            at += part;
            left -= part;
        }
        Ok(list)
    }
}
