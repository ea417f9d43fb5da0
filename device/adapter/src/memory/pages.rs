//! Memory described by the guest: page tables, and the rings that lie in them.

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
/// Page addresses in a chunk of a two-level table.
const CHUNK: usize = 512;

/// Why a description was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagesError {
    /// The page size or the number of levels is out of range, or an address is not aligned.
    Malformed,
    /// The table cannot be read.
    Unreachable(Fault),
    /// The adapter has no room for so many pages.
    TooMany,
}

/// Number of page addresses, or other words of 8 bytes, that an adapter may still keep: for rings,
/// regions and keys. Tables that overlap would otherwise let a guest fill the daemon's memory from
/// little memory of its own.
#[derive(Debug)]
pub struct PageBudget(AtomicU64);

impl Default for PageBudget {
    fn default() -> Self {
        Self(AtomicU64::new(MAX_PAGES))
    }
}

impl PageBudget {
    /// Returns the number of words that are taken.
    #[must_use]
    pub fn used(&self) -> u64 {
        MAX_PAGES.saturating_sub(self.0.load(Ordering::Relaxed))
    }
}

/// Part of a [`PageBudget`], given back on drop.
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

/// Guest memory without a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The address of its first byte.
    pub addr: GuestAddr,
    /// Its length in bytes.
    pub len: u64,
}

/// Entries of a ring that follow each other without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRun {
    /// The address of the first entry.
    pub addr: GuestAddr,
    /// The number of entries.
    pub count: u32,
}

/// The pages that hold a number of bytes.
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

/// Memory of a ring or region: the pages, resolved once.
#[derive(Debug)]
pub struct PageMap {
    shift: u8,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// One run of memory.
    Run(GuestAddr),
    /// A page each.
    List { pages: Box<[GuestAddr]>, _charge: Charge },
}

impl PageMap {
    /// A single run of memory from `addr` on.
    #[must_use]
    pub fn run(addr: GuestAddr) -> Self {
        Self { shift: PAGE_SHIFT_MIN, kind: Kind::Run(addr) }
    }

    /// Reads the description of `len` bytes that begin `offset` bytes into the first page.
    ///
    /// # Errors
    /// See [`PagesError`].
    pub fn read<H: GuestMemory>(
        (host, budget): (&H, &Arc<PageBudget>),
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

    /// The memory from `offset` on that follows without a gap, up to `len` bytes. `None` beyond the
    /// last page.
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
                // Neighbouring pages are usual; one long copy beats many short ones.
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
/// pages it describes.
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
/// They are read in pieces, so that a huge count fails at the first address that is not there,
/// before memory for it is taken.
///
/// # Errors
/// The first address that cannot be read, or what `each` returns.
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
/// Fails as [`each_page`] does.
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
    /// A ring of `1 << log_size` entries of `1 << log_stride` bytes; entries never cross pages,
    /// since both are powers of two and a stride is smaller than a page.
    ///
    /// # Errors
    /// See [`PagesError`].
    pub fn read<H: GuestMemory>(
        place: (&H, &Arc<PageBudget>),
        pages: &Pages,
        log_size: u8,
        log_stride: u8,
    ) -> Result<Self, PagesError> {
        let len = 1u64 << (log_size + log_stride);
        Ok(Self { map: PageMap::read(place, pages, 0, len)?, log_size, log_stride })
    }

    /// A ring in one run of memory.
    #[must_use]
    pub fn run(addr: GuestAddr, log_size: u8, log_stride: u8) -> Self {
        Self { map: PageMap::run(addr), log_size, log_stride }
    }

    /// Number of entries.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        1 << self.log_size
    }

    /// Bytes of an entry.
    #[inline]
    #[must_use]
    pub fn stride(&self) -> usize {
        1 << self.log_stride
    }

    /// The entries from `index` on that follow each other without a gap, up to `max`, which is not
    /// zero.
    #[inline]
    #[must_use]
    pub fn run_at(&self, index: u32, max: u32) -> Option<EntryRun> {
        let slot = index & (self.size() - 1);
        let max = u64::from(max.min(self.size() - slot));
        let Run { addr, len } =
            self.map.resolve(u64::from(slot) << self.log_stride, max << self.log_stride)?;
        Some(EntryRun { addr, count: u32::try_from(len >> self.log_stride).ok()? })
    }

    /// Guest address of entry `index`.
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
        let most = Charge::new(&budget, MAX_PAGES - 10).expect("room");
        assert!(Charge::new(&budget, 11).is_none());
        let rest = Charge::new(&budget, 10).expect("room");
        assert!(Charge::new(&budget, 1).is_none());
        assert!(Charge::new(&budget, u64::MAX).is_none());
        drop(most);
        assert!(Charge::new(&budget, MAX_PAGES - 10).is_some());
        drop(rest);
        assert!(Charge::new(&budget, MAX_PAGES).is_some());
    }
}
