//! Regions whose pages come and go, and the requests for absent pages.
//!
//! A look-up of an absent page finds no address, like one beyond the end of a table. Only then, the
//! caller asks [`Tpt::missing`] for the reason, so other regions pay nothing. The driver takes the
//! requests by [`Tpt::next_request`], one at a time for each region.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;

use vrnic_abi::Key;
use vrnic_abi::admin::MAP_PAGES_MAX;

use super::entry::{Mr, Owner};
use super::{Tpt, Window};
use crate::memory::mtt::{PageState, Table};

/// Maximum number of requests of a region. What is not requested is requested when the access is
/// tried again.
const MAX_REQUESTS: usize = 64;

/// Contiguous pages of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSpan {
    /// The first page.
    pub first: u64,
    /// The number of pages.
    pub count: u64,
}

impl PageSpan {
    fn contains(&self, other: &Self) -> bool {
        let end = |span: &Self| span.first.saturating_add(span.count);
        self.first <= other.first && end(other) <= end(self)
    }
}

/// The reason for which memory could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The region has all of its pages at all times.
    NotPaged,
    /// All pages are present.
    Present,
    /// A page cannot be had.
    Failed,
    /// Pages are absent. If there is a key, its region must be reported to the driver.
    Requested(Option<Key>),
}

/// A part of a window, whose first bytes are needed now, and all of it soon.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The offset of the part in the window.
    pub at: u64,
    /// The number of bytes that are needed now.
    pub now: u64,
    /// The number of bytes.
    pub len: u64,
}

/// Maximum number of requests of all regions together.
const MAX_ALL_REQUESTS: usize = 1 << 16;

/// The regions with pages that come and go.
#[derive(Debug, Default)]
pub(super) struct Paging {
    /// The regions, by the root of their tables.
    regions: HashMap<u64, Paged>,
    /// The number of requests that wait.
    waiting: usize,
}

/// The requests of a region.
#[derive(Debug)]
pub(super) struct Paged {
    key: Key,
    waiting: VecDeque<PageSpan>,
    /// The request that the driver has taken last.
    taken: Option<PageSpan>,
    /// True if the next access to an absent page fails, because there is no room for a mark.
    fails: bool,
    /// True from the report to the driver until it has taken all requests.
    reported: bool,
}

impl Tpt {
    /// Returns whether pages of any region come and go.
    #[inline]
    #[must_use]
    pub fn has_paged(&self) -> bool {
        self.has_paged.load(Ordering::Relaxed)
    }

    /// Records that the pages of the region `key`, which nothing uses yet, come and go.
    pub fn watch_pages(&self, key: Key) {
        let Some(slot) = self.slot(key.index()) else { return };
        let mut cold = slot.back.cold.lock();
        cold.paged = true;
        self.has_paged.store(true, Ordering::Relaxed);
        let paged =
            Paged { key, waiting: VecDeque::new(), taken: None, fails: false, reported: false };
        self.paging.lock().regions.insert(cold.table.root, paged);
    }

    /// Ends the requests of the region with this table.
    pub(super) fn forget_pages(&self, table: &Table) {
        let mut paging = self.paging.lock();
        if let Some(paged) = paging.regions.remove(&table.root) {
            paging.waiting = paging.waiting.saturating_sub(paged.waiting.len());
        }
    }

    /// Returns the contents of a region whose pages come and go.
    #[must_use]
    pub fn paged(&self, key: Key) -> Option<Mr> {
        let slot = self.slot(key.index())?;
        let cold = slot.back.cold.lock();
        let is_paged = cold.paged && cold.owner == Owner::Region && cold.key == key;
        if is_paged { slot.entry.load() } else { None }
    }

    /// Returns the reason for which a part of a window could not be used, and requests the pages
    /// that are absent.
    #[cold]
    pub fn missing(&self, window: &Window<'_>, part: Part) -> Missing {
        let Window { table, offset, .. } = window;
        let Some(start) = offset.checked_add(part.at).filter(|_| part.now > 0) else {
            return Missing::NotPaged;
        };
        let paging = &mut *self.paging.lock();
        // A table that is not a list has an address in place of the root: it names no region.
        let Some(paged) = paging.regions.get_mut(&table.root).filter(|_| table.depth > 1) else {
            return Missing::NotPaged;
        };
        let index = |len: u64| start.saturating_add(len - 1) >> table.shift;
        let state = |index| self.mtt.page_state(table, index);
        let needed = start >> table.shift..=index(part.now);
        let Some(first) = needed.into_iter().find(|index| state(*index) != PageState::Present)
        else {
            return Missing::Present;
        };
        if state(first) == PageState::Failed {
            self.mtt.retry_page(table, first);
            return Missing::Failed;
        }
        if std::mem::take(&mut paged.fails) {
            return Missing::Failed;
        }
        let last = index(part.len.max(part.now)).min(first + u64::from(MAP_PAGES_MAX) - 1);
        let absent = (first..=last).take_while(|index| state(*index) == PageState::Absent);
        let span = PageSpan { first, count: absent.count() as u64 };
        Missing::Requested(paged.request(span, &mut paging.waiting))
    }

    /// Makes the next access to an absent page of a region fail, whichever page it is.
    pub fn fail_next(&self, key: Key) {
        let Some(mr) = self.paged(key) else { return };
        if let Some(paged) = self.paging.lock().regions.get_mut(&mr.table.root) {
            paged.fails = true;
        }
    }

    /// Ends the request for pages of a region that was returned last, and returns the next one.
    pub fn next_request(&self, key: Key) -> Option<PageSpan> {
        let root = self.paged(key)?.table.root;
        let paging = &mut *self.paging.lock();
        let paged = paging.regions.get_mut(&root)?;
        paged.taken = paged.waiting.pop_front();
        paging.waiting = paging.waiting.saturating_sub(paged.taken.iter().len());
        paged.reported = paged.taken.is_some();
        paged.taken
    }
}

impl Paged {
    /// Requests pages. `all` is the number of requests of all regions. Returns the key if the
    /// region must be reported to the driver.
    fn request(&mut self, span: PageSpan, all: &mut usize) -> Option<Key> {
        let known = self.taken.iter().chain(&self.waiting).any(|other| other.contains(&span));
        if !known && self.waiting.len() < MAX_REQUESTS && *all < MAX_ALL_REQUESTS {
            self.waiting.push_back(span);
            *all += 1;
        }
        let is_reported = std::mem::replace(&mut self.reported, true);
        (!is_reported).then_some(self.key)
    }
}
