//! Tables whose pages come and go. A page that is absent has no address, and may have no list.

use std::ops::Range;
use std::sync::atomic::Ordering;

use vrnic_abi::GuestAddr;

use super::{LIST, LIST_MASK, Mtt, Table, page};
use crate::memory::pages::PagesError;
use crate::sync::AtomicU64;

/// The word of a page that the driver cannot provide. Look-ups take it for an absent page.
const FAILED: u64 = 2;

/// The entry of a table for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// The page has no address.
    Absent,
    /// The page has an address.
    Present,
    /// The page has no address, and the driver cannot provide it.
    Failed,
}

impl Mtt {
    /// Creates a table for `count` pages of `1 << shift` bytes, all of which are absent.
    ///
    /// # Errors
    /// [`PagesError::TooMany`]. Nothing is allocated then.
    pub fn sparse(&self, shift: u8, count: u64) -> Result<Table, PagesError> {
        let depth = match count {
            0 => return Err(PagesError::TooMany),
            _ if count <= 1 << LIST => 2,
            _ if count <= 1 << (2 * LIST) => 3,
            _ if count <= 1 << (3 * LIST) => 4,
            _ if count <= 1 << (4 * LIST) => 5,
            _ => return Err(PagesError::TooMany),
        };
        Ok(Table { shift, depth, root: self.block(depth)? })
    }

    /// Makes a page of a sparse table present, and allocates its list.
    ///
    /// # Errors
    /// [`PagesError::TooMany`], or [`PagesError::Malformed`] for an address that is not aligned.
    pub fn add_page(&self, table: &Table, index: u64, page: GuestAddr) -> Result<(), PagesError> {
        self.store(table, index, page)
    }

    /// Marks a page, if it is absent, as one that the driver cannot provide.
    ///
    /// # Errors
    /// [`PagesError::TooMany`].
    pub fn fail_page(&self, table: &Table, index: u64) -> Result<(), PagesError> {
        if self.page_state(table, index) != PageState::Absent {
            return Ok(());
        }
        let (arena, block, at) = self.path(table, index)?;
        arena.store(block, at, FAILED).ok_or(PagesError::TooMany)
    }

    /// Makes a page absent that the driver could not provide, after an access has failed because of
    /// it.
    pub fn retry_page(&self, table: &Table, index: u64) {
        if let Some(place) = self.list(table, index).and_then(|words| words.first()) {
            // The driver may have provided it meanwhile.
            let _other = place.compare_exchange(FAILED, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Returns the state of a page.
    #[must_use]
    pub fn page_state(&self, table: &Table, index: u64) -> PageState {
        let word = self.list(table, index).and_then(|words| words.first());
        match word.map_or(0, |word| word.load(Ordering::Relaxed)) {
            FAILED => PageState::Failed,
            word if page(word).is_some() => PageState::Present,
            _ => PageState::Absent,
        }
    }

    /// Makes pages of a sparse table absent. A thread that has looked one up may use it while it
    /// holds the guest's memory.
    pub fn remove_pages(&self, table: &Table, pages: Range<u64>) {
        let levels = u32::from(table.depth).saturating_sub(1);
        let end = pages.end.min(1 << (levels * LIST));
        if pages.start < end {
            self.remove_below(table.root, levels, pages.start..end);
        }
    }

    /// Calls `each` with the address and the length of each page of a table that is present and has
    /// some of these bytes. If the table is one run, it does so once, with these bytes.
    pub fn each_part(
        &self,
        table: &Table,
        bytes: Range<u64>,
        each: &mut dyn FnMut(GuestAddr, u64),
    ) {
        let size = 1 << table.shift;
        let mut each_page = |words: &[AtomicU64]| {
            let pages = words.iter().filter_map(|word| page(word.load(Ordering::Relaxed)));
            pages.for_each(|page| each(page, size));
        };
        let pages = bytes.start >> table.shift..bytes.end.div_ceil(size);
        match table.depth {
            0 => each(GuestAddr::new(table.root.saturating_add(bytes.start)), bytes_len(&bytes)),
            1 => self.lines.block(table.root).into_iter().for_each(|words| {
                each_page(part(words, &pages));
            }),
            2..=5 => self.each_below(table.root, table.depth.into(), pages, &mut each_page),
            // The segments of a command are not pages.
            _ => {}
        }
    }

    /// Calls `each` with the words of pages below a list, whose first page is page 0. Only lists
    /// that exist cost time.
    fn each_below(
        &self,
        list: u64,
        depth: u32,
        pages: Range<u64>,
        each: &mut dyn FnMut(&[AtomicU64]),
    ) {
        let Some(words) = self.lists.block(list).filter(|_| !pages.is_empty()) else { return };
        if depth == 2 {
            return each(part(words, &pages));
        }
        let log = (depth - 2) * LIST;
        let end = pages.end.min((words.len() as u64) << log);
        if pages.start >= end {
            return;
        }
        for at in pages.start >> log..=(end - 1) >> log {
            let Some(below) = self.lists.load(list, at).and_then(|n| n.checked_sub(1)) else {
                continue;
            };
            let base = at << log;
            let start = pages.start.max(base) - base;
            let end = end.min(base + (1 << log)) - base;
            self.each_below(below, depth - 1, start..end, each);
        }
    }

    /// Makes pages below a list absent, whose first page is page 0. Only lists that exist cost
    /// time.
    fn remove_below(&self, list: u64, levels: u32, pages: Range<u64>) {
        let Some(above) = levels.checked_sub(2) else {
            for at in pages {
                self.lists.store(list, at & LIST_MASK, 0);
            }
            return;
        };
        let log = (above + 1) * LIST;
        for at in pages.start >> log..=(pages.end - 1) >> log {
            let Some(below) = self.lists.load(list, at).and_then(|n| n.checked_sub(1)) else {
                continue;
            };
            let base = at << log;
            let start = pages.start.max(base) - base;
            let end = pages.end.min(base + (1 << log)) - base;
            self.remove_below(below, levels - 1, start..end);
        }
    }
}

/// Returns the words of these pages, as far as they exist.
fn part<'a>(words: &'a [AtomicU64], pages: &Range<u64>) -> &'a [AtomicU64] {
    let place = |page: u64| usize::try_from(page).unwrap_or(usize::MAX).min(words.len());
    words.get(place(pages.start)..place(pages.end)).unwrap_or_default()
}

const fn bytes_len(bytes: &Range<u64>) -> u64 {
    bytes.end.saturating_sub(bytes.start)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;

    /// Shows: memory: tables of regions whose pages come and go
    #[test]
    fn pages_come_and_go_in_tables_of_all_depths() {
        let mtt = Mtt::new(&Arc::default());
        for count in [1, 512, 513, 1 << 18, 1 << 20, 1 << 27, 1 << 36] {
            let table = mtt.sparse(12, count).expect("a table");
            let last = count - 1;
            for index in BTreeSet::from([0, last / 2, last]) {
                assert_eq!(mtt.page_state(&table, index), PageState::Absent);
                mtt.add_page(&table, index, GuestAddr::new(0x5000)).expect("room");
                assert_eq!(mtt.page_state(&table, index), PageState::Present);
                let run = mtt.resolve(&table, (index << 12) + 9, 1).expect("a page");
                assert_eq!(run.addr.get(), 0x5009);
                mtt.retry_page(&table, index);
                assert_eq!(mtt.page_state(&table, index), PageState::Present, "not a failed one");
            }
            let mut parts = Vec::new();
            let bytes = (last << 12) + 7..(last << 12) + 8;
            mtt.each_part(&table, bytes, &mut |addr, len| parts.push((addr.get(), len)));
            mtt.each_part(&table, 0..last << 12, &mut |addr, len| parts.push((addr.get(), len)));
            let present = BTreeSet::from([0, last / 2, last]).len();
            assert_eq!(parts, vec![(0x5000, 4096); present]);
            mtt.remove_pages(&table, last..u64::MAX);
            assert_eq!(mtt.page_state(&table, last), PageState::Absent);
            assert!(mtt.resolve(&table, last << 12, 1).is_none());
            mtt.fail_page(&table, last).expect("room");
            assert_eq!(mtt.page_state(&table, last), PageState::Failed);
            assert!(mtt.resolve(&table, last << 12, 1).is_none());
            mtt.retry_page(&table, last);
            assert_eq!(mtt.page_state(&table, last), PageState::Absent);
            if last / 2 != last {
                assert_eq!(mtt.page_state(&table, last / 2), PageState::Present);
            }
            mtt.remove_pages(&table, 0..count);
            assert_eq!(mtt.page_state(&table, last / 2), PageState::Absent);
            mtt.free(&table);
        }
        assert_eq!(mtt.used(), 0);
        assert!(mtt.sparse(12, 0).is_err() && mtt.sparse(12, (1 << 36) + 1).is_err());
    }
}
