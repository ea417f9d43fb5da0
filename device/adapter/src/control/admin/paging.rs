//! Regions whose pages come and go: MAP_PAGES and UNMAP_PAGES.

use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use arrayvec::ArrayVec;
use vrnic_abi::GuestAddr;
use vrnic_abi::admin::{
    MAP_PAGES_MAX, MapFlags, MapPages, MrFlags, PAGED_MAX, PageRequest, Pages, RegMr, Status,
    Transport, UnmapPages,
};
use vrnic_abi::qp::Access;

use super::{Failure, Outcome, bad, pages_failure};
use crate::adapter::Adapter;
use crate::host::{HeldMemory, Host, Lane, Transfers};
use crate::memory::pages::{PAGE_SHIFT_MAX, PAGE_SHIFT_MIN, PageList, PagesError, Run, read_list};
use crate::memory::tpt::Mr;

/// Maximum number of parts of removed memory. With more parts, all transfers are awaited, and not
/// only those to these parts.
const MAX_PARTS: usize = 1 << 16;

/// Returns a region of which no page is present.
pub(super) fn translate<H: Host>(
    adapter: &Adapter<H>,
    params: &RegMr,
    mr: Mr,
) -> Result<Mr, Failure> {
    if adapter.transport() == Transport::Iwarp {
        return Err(Status::Unsupported.into());
    }
    let others = MrFlags::PAGED | MrFlags::NO_LOCAL_READ;
    if params.flags.get() & !others.bits() != 0 {
        return Err(bad(offset_of!(RegMr, flags)));
    }
    let Pages { table, page_shift: shift, levels, reserved } = params.pages;
    if !(PAGE_SHIFT_MIN..=PAGE_SHIFT_MAX).contains(&shift) {
        return Err(bad(offset_of!(RegMr, pages) + offset_of!(Pages, page_shift)));
    }
    if table.get() != 0 || levels != 0 || reserved != [0; 6] {
        return Err(bad(offset_of!(RegMr, pages)));
    }
    let (iova, length) = (params.iova.get(), params.length.get());
    let offset = iova & ((1 << shift) - 1);
    let end = iova.checked_add(length).and(offset.checked_add(length));
    let count = end.map(|end| end.div_ceil(1 << shift)).filter(|count| *count <= PAGED_MAX);
    let count = count.filter(|count| *count > 0).ok_or(bad(offset_of!(RegMr, length)))?;
    let table = adapter.tpt().mtt().sparse(shift, count);
    let table = table.map_err(|error| pages_failure(error, offset_of!(RegMr, length)))?;
    let iova = if mr.access.contains(Access::ZERO_BASED) { 0 } else { iova };
    Ok(Mr { iova, length, offset, table, ..mr })
}

pub(super) fn map_pages<H: Host>(adapter: &Adapter<H>, params: &MapPages) -> Outcome<PageRequest> {
    let flags = MapFlags::from_bits(params.flags.get());
    let flags = flags.ok_or(bad(offset_of!(MapPages, flags)))?;
    let mr = adapter.tpt().paged(params.key).ok_or(Status::NotFound)?;
    if params.count.get() > MAP_PAGES_MAX {
        return Err(bad(offset_of!(MapPages, count)));
    }
    let first = params.first.get();
    let pages = Some(first).zip(first.checked_add(params.count.get().into()));
    let pages = pages.map(|(first, end)| first..end).filter(|pages| pages.end <= count(&mr));
    let pages = pages.ok_or(bad(offset_of!(MapPages, first)))?;
    let lists = !pages.is_empty() && !flags.contains(MapFlags::FAILED);
    if !lists && params.list.get() != 0 {
        return Err(bad(offset_of!(MapPages, list)));
    }
    let added = if flags.contains(MapFlags::FAILED) {
        pages.clone().try_for_each(|page| adapter.tpt().mtt().fail_page(&mr.table, page))
    } else if lists {
        let list = read(adapter, &mr, params)?;
        let mut both = pages.clone().zip(list);
        both.try_for_each(|(at, page)| adapter.tpt().mtt().add_page(&mr.table, at, page))
    } else {
        Ok(())
    };
    if let Err(error) = added {
        remove(adapter, &mr, pages);
        if flags.contains(MapFlags::FAILED) {
            adapter.tpt().fail_next(params.key);
        }
        return Err(pages_failure(error, offset_of!(MapPages, list)));
    }
    if !flags.contains(MapFlags::NEXT) {
        return Ok(PageRequest::default());
    }
    let next = adapter.tpt().next_request(params.key);
    Ok(next.map_or(PageRequest::default(), |span| PageRequest {
        first: span.first.into(),
        // CAST: at most `MAP_PAGES_MAX`.
        count: (span.count as u32).into(),
        ..PageRequest::default()
    }))
}

/// Returns the number of pages of a region.
fn count(mr: &Mr) -> u64 {
    mr.offset.saturating_add(mr.length).div_ceil(1 << mr.table.shift)
}

/// Reads the list of page addresses, all of which must be memory.
fn read<H: Host>(
    adapter: &Adapter<H>,
    mr: &Mr,
    params: &MapPages,
) -> Result<ArrayVec<GuestAddr, { MAP_PAGES_MAX as usize }>, Failure> {
    let memory = adapter.host().hold(Lane::SHARED);
    let mut pages = ArrayVec::new();
    let size = 1 << mr.table.shift;
    let is_stored = mr.access.contains(Access::LOCAL_WRITE);
    let list = PageList { addr: params.list, count: params.count.get().into() };
    read_list(&memory, list, &mut |page: GuestAddr| {
        if !page.is_multiple_of(size) {
            return Err(PagesError::Malformed);
        }
        memory.check(page, size, is_stored).map_err(PagesError::Unreachable)?;
        pages.try_push(page).map_err(|_| PagesError::TooMany)
    })
    .map_err(|error| pages_failure(error, offset_of!(MapPages, list)))?;
    Ok(pages)
}

pub(super) fn unmap_pages<H: Host>(adapter: &Adapter<H>, params: &UnmapPages) -> Outcome<()> {
    let mr = adapter.tpt().paged(params.key).ok_or(Status::NotFound)?;
    let first = params.first.get();
    remove(adapter, &mr, first..first.saturating_add(params.count.get()));
    Ok(())
}

/// Makes pages of a region absent, and waits until nothing uses them any more.
fn remove<H: Host>(adapter: &Adapter<H>, mr: &Mr, pages: Range<u64>) {
    let parts = adapter.host().hold(Lane::SHARED).may_wait().then(|| parts(adapter, mr, &pages));
    adapter.tpt().mtt().remove_pages(&mr.table, pages);
    // A look-up after this finds no page.
    fence(Ordering::SeqCst);
    let each_part = |each: &mut dyn FnMut(GuestAddr, u64)| {
        let parts = parts.iter().flatten().flatten();
        parts.for_each(|part| each(part.addr, part.len));
    };
    let has_all = !matches!(parts, Some(None));
    adapter.drain(&if has_all { Transfers::In(&each_part) } else { Transfers::All });
}

/// Returns the memory of those pages of a region that are present, unless it has too many parts.
fn parts<H: Host>(adapter: &Adapter<H>, mr: &Mr, pages: &Range<u64>) -> Option<Vec<Run>> {
    let bytes = |page: u64| page.saturating_mul(1 << mr.table.shift);
    let bytes = bytes(pages.start)..bytes(pages.end);
    let (mut parts, mut is_whole) = (Vec::<Run>::new(), true);
    adapter.tpt().mtt().each_part(&mr.table, bytes, &mut |addr, len| {
        let count = parts.len();
        let before = parts.last_mut();
        match before.filter(|last| last.addr.checked_add(last.len) == Some(addr)) {
            Some(last) => last.len += len,
            None if count < MAX_PARTS => parts.push(Run { addr, len }),
            None => is_whole = false,
        }
    });
    is_whole.then_some(parts)
}
