// SPDX-License-Identifier: GPL-2.0
//! Page tables: how the adapter learns where a ring or region lies. It reads a table while the
//! command runs and not afterwards.

use abi::admin::Pages;
use kernel::{
    device,
    dma::Coherent,
    io::{Io, io_project},
    page::PAGE_SIZE,
    prelude::*,
};

use crate::{hw::ring::Ring, rdma::memory::umem::Umem};

/// Entries of a chunk of a table with two levels.
const CHUNK: usize = 512;
/// Entries up to which a table has one level: beyond this a contiguous allocation gets rare.
const MAX_FLAT: usize = 16 * CHUNK;

/// A description of memory, with what it points to.
pub(in crate::verbs) struct PageTable {
    pages: Pages,
    _directory: Option<Coherent<[u64]>>,
    _chunks: KVec<Coherent<[u64]>>,
}

impl PageTable {
    /// Describes a ring of the kernel's.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(in crate::verbs) fn of_kernel_ring(
        device: &device::Device<device::Bound>,
        ring: &Ring,
    ) -> Result<Self> {
        let mut pieces = ring.pieces();
        if pieces.len() == 1 {
            let address = ring.dma_address();
            return Ok(Self::of(Pages::new(address, page_shift(PAGE_SIZE as u64), 0)));
        }
        let table = fill(device, pieces.len(), &mut pieces)?;
        let pages = Pages::new(table.dma_address(), ring.piece_shift(), 1);
        Ok(Self { pages, _directory: Some(table), _chunks: KVec::new() })
    }

    /// Describes `umem` in the largest pages that fit, of `page_sizes` (a bit each).
    ///
    /// # Errors
    ///
    /// `EINVAL` when no page size fits, `ENOMEM`.
    pub(in crate::verbs) fn of_umem(
        device: &device::Device<device::Bound>,
        umem: &mut Umem,
        page_sizes: u64,
        iova: u64,
    ) -> Result<Self> {
        let paged = umem.paged(page_sizes, iova)?;
        let (shift, count, mut blocks) = (paged.shift(), paged.count(), paged.blocks());
        if count == 1 {
            return Ok(Self::of(Pages::new(blocks.next().ok_or(EINVAL)?, shift, 0)));
        }
        if count <= MAX_FLAT {
            let table = fill(device, count, &mut blocks)?;
            let pages = Pages::new(table.dma_address(), shift, 1);
            return Ok(Self { pages, _directory: Some(table), _chunks: KVec::new() });
        }
        let mut chunks = KVec::with_capacity(count.div_ceil(CHUNK), GFP_KERNEL)?;
        let mut left = count;
        while left > 0 {
            let length = left.min(CHUNK);
            chunks.push(fill(device, length, &mut blocks)?, GFP_KERNEL)?;
            left -= length;
        }
        let mut addresses = chunks.iter().map(Coherent::dma_address);
        let directory = fill(device, chunks.len(), &mut addresses)?;
        let pages = Pages::new(directory.dma_address(), shift, 2);
        Ok(Self { pages, _directory: Some(directory), _chunks: chunks })
    }

    /// Describes a ring, which starts at the start of a page.
    ///
    /// # Errors
    ///
    /// As [`Self::of_umem`]; `EINVAL` also when `address` is not page aligned.
    pub(in crate::verbs) fn of_ring(
        device: &device::Device<device::Bound>,
        umem: &mut Umem,
        page_sizes: u64,
        address: u64,
    ) -> Result<Self> {
        let alignment = address & address.wrapping_neg();
        let aligned_sizes = page_sizes & (alignment | alignment.wrapping_sub(1));
        Self::of_umem(device, umem, aligned_sizes, address)
    }

    /// Returns the description for a command.
    pub(in crate::verbs) fn pages(&self) -> Pages {
        self.pages
    }

    fn of(pages: Pages) -> Self {
        Self { pages, _directory: None, _chunks: KVec::new() }
    }
}

/// Returns log2 of a page size.
fn page_shift(size: u64) -> u8 {
    // CAST: below 64.
    size.trailing_zeros() as u8
}

/// Returns an array of the next `count` addresses.
fn fill(
    device: &device::Device<device::Bound>,
    count: usize,
    addresses: &mut impl Iterator<Item = u64>,
) -> Result<Coherent<[u64]>> {
    let table = Coherent::<u64>::zeroed_slice(device, count, GFP_KERNEL)?;
    for i in 0..count {
        let address = addresses.next().ok_or(EINVAL)?;
        io_project!(table, [try: i]).write_val(address.to_le());
    }
    Ok(table)
}
