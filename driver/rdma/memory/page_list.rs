// SPDX-License-Identifier: GPL-2.0
//! Page lists of regions for fast registration: the device reads them when it executes the work
//! request that registers.

use kernel::{
    device,
    dma::Coherent,
    io::{Io, io_project},
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
};

/// A list of page addresses (`__le64`) in memory that the device can read.
///
/// The client of a region does not change its list while the region is registered, and by one
/// thread at a time.
///
/// # Invariants
///
/// `count` is not above the number of entries of `addresses`.
pub(crate) struct PageList {
    addresses: Coherent<[u64]>,
    /// Pages in the list.
    count: Atomic<u32>,
}

impl PageList {
    /// Creates an empty list with room for `max` pages.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(device: &device::Device<device::Bound>, max: u32) -> Result<Self> {
        // CAST: to the wider type.
        let addresses = Coherent::<u64>::zeroed_slice(device, max as usize, GFP_KERNEL)?;
        // INVARIANT: any list has zero entries.
        Ok(Self { addresses, count: Atomic::new(0) })
    }

    /// Empties the list.
    pub(crate) fn clear(&self) {
        // INVARIANT: any list has zero entries.
        self.count.store(0, Relaxed);
    }

    /// Appends a page.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the list is full.
    pub(crate) fn push(&self, page: u64) -> Result {
        let count = self.count.load(Relaxed);
        let index = count as usize;
        if index >= self.addresses.len() {
            return Err(ENOMEM);
        }
        io_project!(self.addresses, [try: index]).write_val(page.to_le());
        // INVARIANT: `count` was below the number of entries.
        self.count.store(count + 1, Relaxed);
        Ok(())
    }

    /// Pages in the list.
    pub(crate) fn len(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Returns the address of the list for the device; it is contiguous.
    pub(crate) fn dma_address(&self) -> u64 {
        self.addresses.dma_address()
    }
}
