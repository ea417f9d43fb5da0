//! Memory described by the guest: page tables, and rings in such memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vrnic_abi::GuestAddr;
use vrnic_abi::admin::Pages;

use crate::host::{Fault, GuestMemory, HeldMemory, Lane};
use crate::limits::MAX_PAGES;

/// Smallest page size, as a shift.
pub const PAGE_SHIFT_MIN: u8 = 12;
/// Largest page size, as a shift.
pub const PAGE_SHIFT_MAX: u8 = 30;
/// Number of page addresses in a chunk of a two-level table.
const CHUNK: usize = 512;

/// The reason for which a description was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagesError {
    /// The page size or the number of levels is out of range, or an address is not aligned.
    Malformed,
    /// The table cannot be read.
    Unreachable(Fault),
    /// The adapter has no room for this many pages.
    TooMany,
}

/// The number of page addresses, or other words of 8 bytes, that an adapter may still store for
/// rings, regions and keys. Without this limit, tables that overlap would let a guest fill the
/// daemon's memory from a small memory of its own.
#[derive(Debug)]
pub struct PageBudget(AtomicU64);

impl Default for PageBudget {
    fn default() -> Self {
        Self(AtomicU64::new(MAX_PAGES))
    }
}

impl PageBudget {
    /// Returns the number of words that are in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        MAX_PAGES.saturating_sub(self.0.load(Ordering::Relaxed))
    }
}

/// A part of a [`PageBudget`]. It is returned to the budget on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<PageBudget>,
    pages: u64,
}

impl Charge {
    pub(crate) fn new(budget: &Arc<PageBudget>, pages: u64) -> Option<Self> {
        let take = |left: u64| left.checked_sub(pages);
        budget.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Self { budget: Arc::clone(budget), pages })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.pages, Ordering::Relaxed);
    }
}

/// A contiguous range of guest memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The address of its first byte.
    pub addr: GuestAddr,
    /// The length of the run in bytes.
    pub len: u64,
}

/// Contiguous entries of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRun {
    /// The address of the first entry.
    pub addr: GuestAddr,
    /// The number of entries.
    pub count: u32,
}

/// The pages for a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCount {
    /// log2 of the page size.
    pub shift: u8,
    /// The number of pages.
    pub count: u64,
}

/// A list of page addresses in guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageList {
    /// The address of the first entry.
    pub addr: GuestAddr,
    /// The number of entries.
    pub count: u64,
}

/// The objects that are needed to read a page table.
#[derive(Clone, Copy, Debug)]
pub struct Paging<'a, H> {
    /// The host, with the guest's memory.
    pub host: &'a H,
    /// The budget of the adapter.
    pub budget: &'a Arc<PageBudget>,
}

/// The memory of a ring or region, as resolved pages.
#[derive(Debug)]
pub struct PageMap {
    shift: u8,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A contiguous range.
    Run(GuestAddr),
    /// The addresses of all pages.
    List { pages: Box<[GuestAddr]>, _charge: Charge },
}

impl PageMap {
    /// Returns the map for a contiguous range from `addr` on.
    #[must_use]
    pub fn run(addr: GuestAddr) -> Self {
        Self { shift: PAGE_SHIFT_MIN, kind: Kind::Run(addr) }
    }

    /// Reads the description of `len` bytes that begin `offset` bytes into the first page.
    ///
    /// # Errors
    /// See [`PagesError`].
    pub fn read<H: GuestMemory>(
        Paging { host, budget }: Paging<'_, H>,
        pages: &Pages,
        offset: u64,
        len: u64,
    ) -> Result<Self, PagesError> {
        let PageCount { shift, count } = count_pages(pages, offset, len)?;
        if pages.levels == 0 {
            return Ok(Self { shift, kind: Kind::Run(pages.table) });
        }
        let charge = Charge::new(budget, count).ok_or(PagesError::TooMany)?;
        let mut list = Vec::new();
        each_page(host, pages, count, |page| {
            list.push(page);
            if page.is_multiple_of(1 << shift) { Ok(()) } else { Err(PagesError::Malformed) }
        })?;
        Ok(Self { shift, kind: Kind::List { pages: list.into(), _charge: charge } })
    }

    /// Returns the contiguous memory from `offset` on, up to `len` bytes, or `None` beyond the last
    /// page.
    #[inline]
    #[must_use]
    pub fn resolve(&self, offset: u64, len: u64) -> Option<Run> {
        match &self.kind {
            Kind::Run(base) => Some(Run { addr: base.checked_add(offset)?, len }),
            Kind::List { pages: list, .. } => {
                let size = 1u64 << self.shift;
                let index = usize::try_from(offset >> self.shift).ok()?;
                let within = offset & (size - 1);
                let first = *list.get(index)?;
                let mut run = size - within;
                let mut next = index + 1;
                // Pages are often contiguous, and one long copy is faster than many short ones.
                while run < len
                    && list.get(next).is_some_and(|page| *page == first.wrapping_add(run + within))
                {
                    run += size;
                    next += 1;
                }
                Some(Run { addr: first.checked_add(within)?, len: run.min(len) })
            }
        }
    }
}

/// Checks a description of `len` bytes that begin `offset` bytes into the first page. Returns the
/// number and size of its pages.
///
/// # Errors
/// [`PagesError::Malformed`].
pub fn count_pages(pages: &Pages, offset: u64, len: u64) -> Result<PageCount, PagesError> {
    let (shift, table) = (pages.page_shift, pages.table);
    if !(PAGE_SHIFT_MIN..=PAGE_SHIFT_MAX).contains(&shift)
        || pages.levels > 2
        || pages.reserved != [0; 6]
    {
        return Err(PagesError::Malformed);
    }
    let size = 1u64 << shift;
    let end = offset.checked_add(len).ok_or(PagesError::Malformed)?;
    if pages.levels == 0 && !(table.is_multiple_of(size) && table.checked_add(end).is_some()) {
        return Err(PagesError::Malformed);
    }
    Ok(PageCount { shift, count: end.div_ceil(size) })
}

/// Calls `each` for the page addresses of a description of one or two levels.
///
/// Addresses are read in pieces, so that a huge count fails at the first address that cannot be
/// read, before memory for it is allocated.
///
/// # Errors
/// Returns the first address that cannot be read, or the error of `each`.
pub fn each_page<H: GuestMemory>(
    host: &H,
    pages: &Pages,
    count: u64,
    mut each: impl FnMut(GuestAddr) -> Result<(), PagesError>,
) -> Result<(), PagesError> {
    let table = pages.table;
    if pages.levels == 1 {
        let stride = CHUNK as u64 * 8;
        return chunks(count, |nth, some| {
            let at = nth.checked_mul(stride).and_then(|offset| table.checked_add(offset));
            let addr = at.ok_or(PagesError::Malformed)?;
            read_list(&host.hold(Lane::SHARED), PageList { addr, count: some }, &mut each)
        });
    }
    chunks(count, |nth, some| {
        let mut bytes = [0; 8];
        let at = nth.checked_mul(8).and_then(|offset| table.checked_add(offset));
        let memory = host.hold(Lane::SHARED);
        memory
            .read(at.ok_or(PagesError::Malformed)?, &mut bytes)
            .map_err(PagesError::Unreachable)?;
        let addr = GuestAddr::new(u64::from_le_bytes(bytes));
        read_list(&memory, PageList { addr, count: some }, &mut each)
    })
}

/// Calls `each` with the numbers and lengths of the chunks of `count` entries.
fn chunks(
    count: u64,
    mut each: impl FnMut(u64, u64) -> Result<(), PagesError>,
) -> Result<(), PagesError> {
    let mut left = count;
    for nth in 0..count.div_ceil(CHUNK as u64) {
        let some = left.min(CHUNK as u64);
        each(nth, some)?;
        left -= some;
    }
    Ok(())
}

/// Calls `each` for the page addresses of a list.
///
/// # Errors
/// Returns the same errors as [`each_page`].
pub fn read_list<M: HeldMemory>(
    memory: &M,
    list: PageList,
    each: &mut impl FnMut(GuestAddr) -> Result<(), PagesError>,
) -> Result<(), PagesError> {
    let mut buffer = [0u8; CHUNK * 8];
    let PageList { mut addr, count: mut left } = list;
    while left > 0 {
        let some = left.min(CHUNK as u64);
        let bytes = buffer.get_mut(..some as usize * 8).ok_or(PagesError::Malformed)?;
        memory.read(addr, bytes).map_err(PagesError::Unreachable)?;
        for bytes in bytes.as_chunks::<8>().0 {
            each(GuestAddr::new(u64::from_le_bytes(*bytes)))?;
        }
        left -= some;
        addr = addr.checked_add(some * 8).ok_or(PagesError::Malformed)?;
    }
    Ok(())
}

/// A ring of entries in guest memory.
#[derive(Debug)]
pub struct Ring {
    map: PageMap,
    log_size: u8,
    log_stride: u8,
}

impl Ring {
    /// Reads the description of a ring of `1 << log_size` entries of `1 << log_stride` bytes.
    /// Entries never cross pages, since both sizes are powers of two and a stride is smaller than a
    /// page.
    ///
    /// # Errors
    /// See [`PagesError`].
    pub fn read<H: GuestMemory>(
        paging: Paging<'_, H>,
        pages: &Pages,
        log_size: u8,
        log_stride: u8,
    ) -> Result<Self, PagesError> {
        let len = 1u64 << (log_size + log_stride);
        Ok(Self { map: PageMap::read(paging, pages, 0, len)?, log_size, log_stride })
    }

    /// Creates a ring in a contiguous range.
    #[must_use]
    pub fn run(addr: GuestAddr, log_size: u8, log_stride: u8) -> Self {
        Self { map: PageMap::run(addr), log_size, log_stride }
    }

    /// Returns the number of entries.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        1 << self.log_size
    }

    /// Returns the number of bytes of an entry.
    #[inline]
    #[must_use]
    pub fn stride(&self) -> usize {
        1 << self.log_stride
    }

    /// Returns log2 of the number of bytes of an entry.
    #[must_use]
    pub fn log_stride(&self) -> u8 {
        self.log_stride
    }

    /// Returns the contiguous entries from `index` on, up to `max`, which must not be zero.
    #[inline]
    #[must_use]
    pub fn run_at(&self, index: u32, max: u32) -> Option<EntryRun> {
        let slot = index & (self.size() - 1);
        let max = u64::from(max.min(self.size() - slot));
        let Run { addr, len } =
            self.map.resolve(u64::from(slot) << self.log_stride, max << self.log_stride)?;
        Some(EntryRun { addr, count: u32::try_from(len >> self.log_stride).ok()? })
    }

    /// Returns the guest address of entry `index`.
    #[inline]
    #[must_use]
    pub fn addr(&self, index: u32) -> Option<GuestAddr> {
        let slot = u64::from(index & (self.size() - 1));
        self.map.resolve(slot << self.log_stride, 1).map(|run| run.addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_kept() {
        let budget = Arc::new(PageBudget::default());
        let large = Charge::new(&budget, MAX_PAGES - 10).expect("room");
        assert!(Charge::new(&budget, 11).is_none());
        let rest = Charge::new(&budget, 10).expect("room");
        assert!(Charge::new(&budget, 1).is_none());
        assert!(Charge::new(&budget, u64::MAX).is_none());
        drop(large);
        assert!(Charge::new(&budget, MAX_PAGES - 10).is_some());
        drop(rest);
        assert!(Charge::new(&budget, MAX_PAGES).is_some());
    }
}
