//! The memory translation table: the pages of all regions of an adapter.
//!
//! A region of one contiguous range needs no entry. Up to eight page addresses are in one cache
//! line, up to 512 in a list, and more in lists of lists. All of these are atomic words that live
//! as long as the table, so a look-up needs no lock and no reference count. If a region is
//! destroyed during a look-up, the result is outdated but never invalid memory, because a region's
//! blocks are freed only when no thread uses them any more ([`crate::memory::tpt`]).

mod sparse;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{mem, slice};

use vrnic_abi::admin::Pages;
use vrnic_abi::{GuestAddr, Key};

pub use self::sparse::PageState;
use crate::host::{GuestMemory, HeldMemory};
use crate::limits::{MAX_COMMANDS, MAX_PAGES};
use crate::memory::pages::{self, PageBudget, PageCount, PageList, PagesError, Run};
use crate::memory::word_arena::Arena;
use crate::requests::wqe::Segment;
use crate::sync::{AtomicU64, fence};

/// log2 of the number of words of a list.
const LIST: u32 = 9;
/// log2 of the number of words of a line.
const LINE: u32 = 3;

/// The location of a region's page addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// log2 of the page size.
    pub shift: u8,
    /// Type of `root`: 0 for a guest address, 1 for a line, 2 for a list, 3 to 5 for lists of
    /// lists. For the segments of a command, see [`segments`].
    pub depth: u8,
    /// The guest address of the first page, or the number of the first block.
    pub root: u64,
}

impl Table {
    /// Returns the table for a contiguous range from `addr` on.
    #[must_use]
    pub const fn run(addr: GuestAddr) -> Self {
        Self { shift: pages::PAGE_SHIFT_MIN, depth: 0, root: addr.get() }
    }
}

/// Tables that hold the segments of a command instead of pages.
pub mod segments {
    use super::Table;

    /// [`Table::depth`] of segments that name regions.
    pub const VIRTUAL: u8 = 6;
    /// [`Table::depth`] of segments that are guest addresses.
    pub const PHYSICAL: u8 = 7;
    /// log2 of the number of words of a command: two for each segment.
    pub(super) const LOG_WORDS: u32 = (2 * vrnic_abi::sq::MAX_SGE).ilog2();

    /// Returns whether a table holds the segments of a command.
    #[must_use]
    pub const fn is(table: &Table) -> bool {
        table.depth >= VIRTUAL
    }
}

/// The table.
#[derive(Debug)]
pub struct Mtt {
    lines: Arena,
    lists: Arena,
    segments: Arena,
}

impl Mtt {
    /// Creates a table whose blocks count against `budget`. Blocks that were charged stay charged
    /// as long as the table exists.
    #[must_use]
    pub fn new(budget: &Arc<PageBudget>) -> Self {
        Self {
            lines: Arena::new(LINE, MAX_PAGES, budget),
            lists: Arena::new(LIST, MAX_PAGES, budget),
            segments: Arena::new(segments::LOG_WORDS, MAX_COMMANDS << segments::LOG_WORDS, budget),
        }
    }

    /// Returns the number of words of the budget that its blocks use.
    #[must_use]
    pub fn charged(&self) -> u64 {
        [&self.lines, &self.lists, &self.segments].map(Arena::charged).iter().sum()
    }

    /// Reads the description of `len` bytes that begin `offset` bytes into the first page.
    ///
    /// # Errors
    /// See [`PagesError`]. Nothing is allocated in case of an error.
    pub fn load<H: GuestMemory>(
        &self,
        host: &H,
        pages: &Pages,
        offset: u64,
        len: u64,
    ) -> Result<Table, PagesError> {
        let PageCount { shift, count } = pages::count_pages(pages, offset, len)?;
        if pages.levels == 0 {
            return Ok(Table { shift, depth: 0, root: pages.table.get() });
        }
        let depth = depth_of(count).ok_or(PagesError::TooMany)?;
        let root = self.block(depth)?;
        let table = Table { shift, depth, root };
        let mut at = 0;
        let filled = pages::each_page(host, pages, count, |page| {
            self.store(&table, at, page)?;
            at += 1;
            Ok(())
        });
        match filled {
            Ok(()) => Ok(table),
            Err(error) => {
                self.free(&table);
                Err(error)
            }
        }
    }

    /// Allocates room for `count` pages, which [`Self::refill`] fills.
    ///
    /// # Errors
    /// [`PagesError::TooMany`]. Nothing is allocated then.
    pub fn reserve(&self, count: u64) -> Result<Table, PagesError> {
        let depth = depth_of(count).ok_or(PagesError::TooMany)?;
        let table = Table { shift: pages::PAGE_SHIFT_MIN, depth, root: self.block(depth)? };
        // Allocating the first place of each list allocates the list.
        let firsts = (0..count).step_by(1 << LIST);
        firsts
            .into_iter()
            .try_for_each(|at| self.store(&table, at, GuestAddr::default()))
            .inspect_err(|_| self.free(&table))?;
        Ok(table)
    }

    /// Reads a list of page addresses into reserved room for the same number. Returns the table by
    /// which the pages are found from then on.
    ///
    /// # Errors
    /// [`PagesError::Unreachable`], or [`PagesError::Malformed`] for an address that is not
    /// aligned.
    pub fn refill<M: HeldMemory>(
        &self,
        memory: &M,
        room: &Table,
        shift: u8,
        list: PageList,
    ) -> Result<Table, PagesError> {
        let table = Table { shift, ..*room };
        let mut gapless = true;
        let mut first = None;
        let mut at = 0u64;
        pages::read_list(memory, list, &mut |page: GuestAddr| {
            let first = *first.get_or_insert(page);
            gapless &= Some(page) == first.checked_add(at << shift);
            self.store(&table, at, page)?;
            at += 1;
            Ok(())
        })?;
        match first {
            // Contiguous pages need no list.
            Some(first) if gapless => Ok(Table { shift, depth: 0, root: first.get() }),
            _ => Ok(table),
        }
    }

    /// Stores the segments of a command.
    ///
    /// # Errors
    /// [`PagesError::TooMany`]. Nothing is allocated then.
    pub fn store_segments(
        &self,
        data: impl Iterator<Item = Segment>,
        physical: bool,
    ) -> Result<Table, PagesError> {
        let root = self.segments.take().ok_or(PagesError::TooMany)?;
        let depth = if physical { segments::PHYSICAL } else { segments::VIRTUAL };
        let table = Table { shift: pages::PAGE_SHIFT_MIN, depth, root };
        for (at, segment) in (0u64..).zip(data) {
            let Segment { addr, len, key } = segment;
            let stored = self.segments.store(root, 2 * at, addr).and_then(|()| {
                self.segments.store(root, 2 * at + 1, u64::from(len) << 32 | u64::from(key.get()))
            });
            if stored.is_none() {
                self.free(&table);
                return Err(PagesError::TooMany);
            }
        }
        Ok(table)
    }

    /// Returns segment `at` of a command. Segments that the command does not have are empty.
    #[must_use]
    pub fn segment(&self, table: &Table, at: u64) -> Option<Segment> {
        let addr = self.segments.load(table.root, 2 * at)?;
        let rest = self.segments.load(table.root, 2 * at + 1)?;
        // CAST: the lower half is the key.
        Some(Segment { addr, len: (rest >> 32) as u32, key: Key::new(rest as u32) })
    }

    /// Returns the number of words in allocated blocks.
    #[must_use]
    pub fn used(&self) -> u64 {
        [&self.lines, &self.lists, &self.segments].map(Arena::used).iter().sum()
    }

    /// Frees the blocks of a table. No thread reads it any more.
    pub fn free(&self, table: &Table) {
        match table.depth {
            0 => {}
            1 => self.lines.give(table.root),
            2 => self.lists.give(table.root),
            segments::VIRTUAL | segments::PHYSICAL => self.segments.give(table.root),
            depth => {
                for at in 0..1 << LIST {
                    // Numbers are stored plus one, because zero means an empty place.
                    let below = self.lists.load(table.root, at).and_then(|n| n.checked_sub(1));
                    if let Some(root) = below {
                        self.free(&Table { depth: depth - 1, root, ..*table });
                    }
                }
                self.lists.give(table.root);
            }
        }
    }

    /// Returns the contiguous memory from `offset` on, up to `len` bytes, or `None` beyond the last
    /// page.
    #[inline]
    #[must_use]
    pub fn resolve(&self, table: &Table, offset: u64, len: u64) -> Option<Run> {
        if table.depth == 0 {
            return Some(Run { addr: GuestAddr::new(table.root.checked_add(offset)?), len });
        }
        let size = 1u64 << table.shift;
        let within = offset & (size - 1);
        let index = offset >> table.shift;
        let mut pages =
            self.list(table, index)?.iter().map(|word| page(word.load(Ordering::Relaxed)));
        let first = pages.next()??;
        let mut run = size - within;
        // Pages are often contiguous, and one long copy is faster than many short ones.
        while run < len && pages.next() == Some(Some(first.wrapping_add(run + within))) {
            run += size;
        }
        Some(Run { addr: first.checked_add(within)?, len: run.min(len) })
    }

    /// Iterates over the contiguous runs of `len` bytes from `offset` on. Unlike repeated calls of
    /// [`Self::resolve`], this looks each list up only once.
    #[inline]
    #[must_use]
    pub fn walk(&self, table: &Table, offset: u64, len: u64) -> Walk<'_> {
        let within = if table.depth == 0 { offset } else { offset & ((1 << table.shift) - 1) };
        let next = offset >> table.shift;
        Walk { mtt: self, table: *table, next, list: [].iter(), within, left: len }
    }

    /// Returns the words from page `index` on in the block of this page.
    #[inline(always)]
    fn list(&self, table: &Table, index: u64) -> Option<&[AtomicU64]> {
        let below = |list, at| self.lists.load(list, at)?.checked_sub(1);
        let (arena, block, at) = match table.depth {
            1 => (&self.lines, table.root, index),
            2 => (&self.lists, table.root, index),
            3 => (&self.lists, below(table.root, index >> LIST)?, index & LIST_MASK),
            4 => {
                let upper = below(table.root, index >> (2 * LIST))?;
                (&self.lists, below(upper, index >> LIST & LIST_MASK)?, index & LIST_MASK)
            }
            5 => {
                let third = below(table.root, index >> (3 * LIST))?;
                let upper = below(third, index >> (2 * LIST) & LIST_MASK)?;
                (&self.lists, below(upper, index >> LIST & LIST_MASK)?, index & LIST_MASK)
            }
            // The segments of a command are not pages.
            _ => return None,
        };
        arena.block(block)?.get(usize::try_from(at).ok()?..)
    }

    /// Stores the address of page `index`, and allocates the lists on the path to it.
    fn store(&self, table: &Table, index: u64, page: GuestAddr) -> Result<(), PagesError> {
        if !page.is_multiple_of(1 << table.shift) {
            return Err(PagesError::Malformed);
        }
        let (arena, block, at) = self.path(table, index)?;
        arena.store(block, at, page.get() | 1).ok_or(PagesError::TooMany)
    }

    /// Returns the place of the address of page `index`: its block, and the index in the block.
    /// Allocates the lists on the path to it.
    fn path(&self, table: &Table, index: u64) -> Result<(&Arena, u64, u64), PagesError> {
        Ok(match table.depth {
            1 => (&self.lines, table.root, index),
            2 => (&self.lists, table.root, index),
            3 => (&self.lists, self.below(table.root, index >> LIST)?, index & LIST_MASK),
            depth => {
                let upper = match depth {
                    4 => table.root,
                    _ => self.below(table.root, index >> (3 * LIST))?,
                };
                let upper = self.below(upper, index >> (2 * LIST) & LIST_MASK)?;
                let list = self.below(upper, index >> LIST & LIST_MASK)?;
                (&self.lists, list, index & LIST_MASK)
            }
        })
    }

    /// Returns the list in entry `at` of the list `of`. Allocates it if it does not exist.
    fn below(&self, of: u64, at: u64) -> Result<u64, PagesError> {
        match self.lists.load(of, at) {
            Some(0) => {
                let made = self.block(2)?;
                // A look-up of a page that is absent may find the list at once.
                fence(Ordering::Release);
                self.lists.store(of, at, made + 1).ok_or(PagesError::TooMany)?;
                Ok(made)
            }
            Some(number) => Ok(number - 1),
            None => Err(PagesError::TooMany),
        }
    }

    /// Allocates an empty block for the root of a table of this depth.
    fn block(&self, depth: u8) -> Result<u64, PagesError> {
        let arena = if depth == 1 { &self.lines } else { &self.lists };
        arena.take().ok_or(PagesError::TooMany)
    }
}

/// An iteration over the contiguous runs of a table.
#[derive(Debug)]
pub struct Walk<'a> {
    mtt: &'a Mtt,
    table: Table,
    /// The index of the next page.
    next: u64,
    /// The rest of the list with the next page.
    list: slice::Iter<'a, AtomicU64>,
    /// Offset of the next run in its page or, without pages, in the table.
    within: u64,
    left: u64,
}

impl Walk<'_> {
    /// Returns the next run, which ends at a gap or at the end of a list. Returns `None` beyond the
    /// last page, or at the end of the iteration.
    #[inline]
    pub fn run(&mut self) -> Option<Run> {
        if self.left == 0 {
            return None;
        }
        if self.table.depth == 0 {
            let addr = GuestAddr::new(self.table.root.checked_add(self.within)?);
            return Some(Run { addr, len: mem::take(&mut self.left) });
        }
        let first = match self.list.next() {
            Some(word) => word,
            None => self.enter()?,
        };
        let first = page(first.load(Ordering::Relaxed))?;
        self.next += 1;
        let within = mem::take(&mut self.within);
        let size = 1u64 << self.table.shift;
        let mut run = size - within;
        let follows = |word: &AtomicU64, at| page(word.load(Ordering::Relaxed)) == Some(at);
        while run < self.left
            && let Some(word) = self.list.as_slice().first()
            && follows(word, first.wrapping_add(run + within))
        {
            self.list.next();
            self.next += 1;
            run += size;
        }
        let run = run.min(self.left);
        self.left -= run;
        Some(Run { addr: first.checked_add(within)?, len: run })
    }

    /// Looks up the list with the next page.
    #[cold]
    fn enter(&mut self) -> Option<&AtomicU64> {
        self.list = self.mtt.list(&self.table, self.next)?.iter();
        self.list.next()
    }
}

const LIST_MASK: u64 = (1 << LIST) - 1;

/// Returns the page address in a stored word. Page addresses are aligned, so their lowest bit is
/// used to show that the place is in use.
#[inline]
fn page(stored: u64) -> Option<GuestAddr> {
    (stored & 1 != 0).then_some(GuestAddr::new(stored & !1))
}

/// Returns the number of levels for this number of pages.
fn depth_of(count: u64) -> Option<u8> {
    let fits = [LINE, LIST, 2 * LIST, 3 * LIST].iter().position(|log| count <= 1 << log)?;
    u8::try_from(fits + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_leave_keys_to_others() {
        let mtt = Mtt::new(&Arc::default());
        let store = || mtt.store_segments(std::iter::empty(), true);
        assert_eq!(std::iter::from_fn(|| store().ok()).count() as u64, MAX_COMMANDS);
        assert_eq!(store(), Err(PagesError::TooMany));
    }

    #[test]
    fn all_depths_resolve_and_give_back() {
        let mtt = Mtt::new(&Arc::default());
        for (count, depth) in
            [(1, 1), (8, 1), (9, 2), (512, 2), (513, 3), (1 << 18, 3), ((1 << 18) + 1, 4)]
        {
            assert_eq!(depth_of(count), Some(depth));
            let table = Table { shift: 12, depth, root: mtt.block(depth).expect("room") };
            // Pairs of neighbours: a run ends after each second page.
            let page = |index: u64| GuestAddr::new((index / 2 * 5 + index % 2) << 12);
            (0..count).for_each(|index| mtt.store(&table, index, page(index)).expect("room"));
            for index in [0, count / 2, count - 1] {
                let pages = if index % 2 == 0 && index + 1 < count { 2 } else { 1 };
                let expected = Run { addr: page(index).wrapping_add(5), len: (pages << 12) - 5 };
                assert_eq!(mtt.resolve(&table, (index << 12) + 5, 1 << 20), Some(expected));
            }
            assert_eq!(mtt.resolve(&table, count << 12, 1), None);
            let mut walk = mtt.walk(&table, 5, count << 12);
            let mut done = 5;
            while let Some(run) = walk.run() {
                assert_eq!(run, mtt.resolve(&table, done, count << 12).expect("a run"));
                done += run.len;
            }
            assert_eq!(done, count << 12);
            assert_eq!(mtt.store(&table, 0, GuestAddr::new(1 << 11)), Err(PagesError::Malformed));
            mtt.free(&table);
        }
        // Everything was given back, and came back empty.
        assert_eq!(mtt.used(), 0);
        let list = mtt.block(2).expect("room");
        assert!((0..512).all(|at| mtt.lists.load(list, at) == Some(0)));
    }
}
