//! Regions and windows.

use std::mem::offset_of;
use std::sync::Arc;

use vrnic_abi::admin::{AllocMr, AllocMw, MrFlags, MwType, Pages, RegMr, Rereg, ReregMr, Status};
use vrnic_abi::qp::Access;
use vrnic_abi::{ContextId, GuestAddr, Key, Pdn};
use zerocopy::IntoBytes;

use super::{Failure, Outcome, bad, pages_failure, paging, zero};
use crate::adapter::Adapter;
use crate::host::{HeldMemory, Host, Lane};
use crate::limits;
use crate::memory::mtt::Table;
use crate::memory::pages::{PAGE_SHIFT_MAX, PAGE_SHIFT_MIN};
use crate::memory::tpt::{ByteRange, Kind, Mr, Refused};
use crate::objects::held_events::Subject;
use crate::objects::{Pd, hold, release};

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotFound => Status::NotFound.into(),
            Refused::Busy => Status::Busy.into(),
            Refused::Revoked => Status::BadState.into(),
        }
    }
}

pub(super) fn reg_mr<H: Host>(adapter: &Adapter<H>, params: &RegMr) -> Outcome<Key> {
    let flags = MrFlags::from_bits(params.flags.get()).ok_or(bad(offset_of!(RegMr, flags)))?;
    let access = access(params.access.get(), offset_of!(RegMr, access))?;
    let pd = pd(adapter, params.pdn)?;
    let make = |key| {
        let one_touch = flags.contains(MrFlags::ONE_TOUCH);
        let no_local_read = flags.contains(MrFlags::NO_LOCAL_READ);
        let (pdn, kind) = (pd.pdn, Kind::Region);
        let mr = Mr { key, pdn, one_touch, no_local_read, access, kind, ..Mr::default() };
        if flags.contains(MrFlags::ALL_MEMORY) {
            return all_memory(params, pd.context, mr);
        }
        if flags.contains(MrFlags::PAGED) {
            return paging::translate(adapter, params, mr);
        }
        let RegMr { pages, iova, length, .. } = params;
        let range = ByteRange { addr: iova.get(), len: length.get() };
        let offsets =
            Offsets { pages: offset_of!(RegMr, pages), length: offset_of!(RegMr, length) };
        let mr = translate(adapter, mr, pages, range, offsets)?;
        if flags.contains(MrFlags::PRESENT) {
            present(adapter, &mr).inspect_err(|_| adapter.tpt().mtt().free(&mr.table))?;
        }
        Ok(mr)
    };
    let key = adapter.tpt().insert(make)?.ok_or(Status::NoResource)?;
    if flags.contains(MrFlags::PAGED) {
        adapter.tpt().watch_pages(key);
    }
    hold(&pd.users);
    Ok(key)
}

fn pd<H: Host>(adapter: &Adapter<H>, pdn: Pdn) -> Result<Arc<Pd>, Failure> {
    adapter.objects.pds.get(pdn).ok_or_else(|| Status::NotFound.into())
}

/// Records that an object of a PD was destroyed.
fn leave<H: Host>(adapter: &Adapter<H>, pdn: Pdn) {
    if let Some(pd) = adapter.objects.pds.get(pdn) {
        release(&pd.users);
    }
}

/// Returns the requested rights. Remote write and atomics require local write.
fn access(bits: u32, offset: usize) -> Result<Access, Failure> {
    let access = Access::from_bits_truncate(bits);
    let writes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if writes && !access.contains(Access::LOCAL_WRITE) {
        return Err(bad(offset));
    }
    Ok(access)
}

fn all_memory(params: &RegMr, context: ContextId, mr: Mr) -> Result<Mr, Failure> {
    if context.get() != 0 {
        return Err(Status::Permission.into());
    }
    if params.pages.as_bytes() != Pages::default().as_bytes() {
        return Err(bad(offset_of!(RegMr, pages)));
    }
    Ok(Mr { iova: 0, length: u64::MAX, offset: 0, table: Table::run(GuestAddr::new(0)), ..mr })
}

/// Offsets of parameters in a command, for errors.
#[derive(Clone, Copy)]
struct Offsets {
    pages: usize,
    length: usize,
}

/// Translates a region: its range in these pages.
fn translate<H: Host>(
    adapter: &Adapter<H>,
    mr: Mr,
    pages: &Pages,
    ByteRange { addr: iova, len: length }: ByteRange,
    offsets: Offsets,
) -> Result<Mr, Failure> {
    if length > limits::MAX_MR_SIZE || iova.checked_add(length).is_none() {
        return Err(bad(offsets.length));
    }
    let shift = pages.page_shift;
    if !(PAGE_SHIFT_MIN..=PAGE_SHIFT_MAX).contains(&shift) {
        return Err(bad(offsets.pages + offset_of!(Pages, page_shift)));
    }
    let offset = iova & ((1 << shift) - 1);
    let tpt = adapter.tpt();
    let table = tpt
        .mtt()
        .load(adapter.host(), pages, offset, length)
        .map_err(|error| pages_failure(error, offsets.pages))?;
    let iova = if mr.access.contains(Access::ZERO_BASED) { 0 } else { iova };
    Ok(Mr { iova, length, offset, table, ..mr })
}

/// Checks that all pages of a region are memory.
fn present<H: Host>(adapter: &Adapter<H>, mr: &Mr) -> Result<(), Failure> {
    let (held, tpt) = (adapter.host().hold(Lane::SHARED), adapter.tpt());
    let mut walk = tpt.mtt().walk(&mr.table, mr.offset, mr.length);
    let mut left = mr.length;
    while left > 0 {
        let run = walk.run().ok_or(Status::BadAddress)?;
        let is_stored = mr.access.contains(Access::LOCAL_WRITE);
        held.check(run.addr, run.len, is_stored).map_err(|_| Status::BadAddress)?;
        left = left.saturating_sub(run.len);
    }
    Ok(())
}

pub(super) fn dereg_mr<H: Host>(adapter: &Adapter<H>, &key: &Key) -> Outcome<()> {
    let pdn = adapter.tpt().remove(key, adapter.drain_key(key))?;
    if let Some(queue) = adapter.core().asynchronous.read().as_ref() {
        queue.forget(Subject::Region(key));
    }
    leave(adapter, pdn);
    Ok(())
}

pub(super) fn revoke_mr<H: Host>(adapter: &Adapter<H>, &key: &Key) -> Outcome<()> {
    adapter.tpt().revoke(key, adapter.drain_key(key))?;
    Ok(())
}

pub(super) fn rereg_mr<H: Host>(adapter: &Adapter<H>, params: &ReregMr) -> Outcome<Key> {
    let what = Rereg::from_bits(params.what.get()).ok_or(bad(offset_of!(ReregMr, what)))?;
    only_named(params, what)?;
    let tpt = adapter.tpt();
    let old = tpt.region(params.key)?;
    let old_pd = pd(adapter, old.pdn)?;
    let mut new = old;
    if what.contains(Rereg::PD) {
        let pd = pd(adapter, params.pdn)?;
        if pd.context != old_pd.context {
            return Err(Status::Permission.into());
        }
        new.pdn = pd.pdn;
    }
    if what.contains(Rereg::ACCESS) {
        let zero_based = old.access & Access::ZERO_BASED;
        new.access = access(params.access.get(), offset_of!(ReregMr, access))?;
        if !what.contains(Rereg::TRANSLATION) {
            // The flag for zero-based addresses belongs to the translation.
            new.access = new.access.difference(Access::ZERO_BASED) | zero_based;
        }
    }
    if what.contains(Rereg::TRANSLATION) {
        if tpt.paged(params.key).is_some() {
            return Err(Status::BadState.into());
        }
        let ReregMr { pages, iova, length, .. } = params;
        let range = ByteRange { addr: iova.get(), len: length.get() };
        let offsets =
            Offsets { pages: offset_of!(ReregMr, pages), length: offset_of!(ReregMr, length) };
        new = translate(adapter, new, pages, range, offsets)?;
    }
    let drain = adapter.drain_key(params.key);
    let key = if what.contains(Rereg::TRANSLATION) {
        let replaced = tpt.replace(params.key, new, drain);
        replaced.inspect_err(|_| tpt.mtt().free(&new.table))?
    } else {
        tpt.amend(params.key, new, drain)?
    };
    if new.pdn != old.pdn {
        hold(&pd(adapter, new.pdn)?.users);
        release(&old_pd.users);
    }
    Ok(key)
}

/// Checks that the fields that a REREG_MR does not change are zero.
fn only_named(params: &ReregMr, what: Rereg) -> Result<(), Failure> {
    let checks = [
        (Rereg::TRANSLATION, params.pages.as_bytes(), offset_of!(ReregMr, pages)),
        (Rereg::TRANSLATION, params.iova.as_bytes(), offset_of!(ReregMr, iova)),
        (Rereg::TRANSLATION, params.length.as_bytes(), offset_of!(ReregMr, length)),
        (Rereg::PD, params.pdn.as_bytes(), offset_of!(ReregMr, pdn)),
        (Rereg::ACCESS, params.access.as_bytes(), offset_of!(ReregMr, access)),
    ];
    let unnamed = checks.into_iter().filter(|(bit, ..)| !what.contains(*bit));
    unnamed.into_iter().try_for_each(|(_, bytes, offset)| zero(bytes, offset))
}

pub(super) fn alloc_mr<H: Host>(adapter: &Adapter<H>, params: &AllocMr) -> Outcome<Key> {
    if !(1..=limits::MAX_FAST_REG_PAGES).contains(&params.max_pages.get()) {
        return Err(bad(offset_of!(AllocMr, max_pages)));
    }
    let pd = pd(adapter, params.pdn)?;
    if pd.context.get() != 0 {
        // Otherwise a REG_MR could give the process access to any guest memory.
        return Err(Status::Permission.into());
    }
    let key = adapter.tpt().insert_fast(pd.pdn, params.max_pages.get());
    let key = key.ok_or(Status::NoResource)?;
    hold(&pd.users);
    Ok(key)
}

pub(super) fn alloc_mw<H: Host>(adapter: &Adapter<H>, params: &AllocMw) -> Outcome<Key> {
    let kind = MwType::from_raw(params.mw_type).ok_or(bad(offset_of!(AllocMw, mw_type)))?;
    let pd = pd(adapter, params.pdn)?;
    let key = adapter.tpt().insert_window(pd.pdn, kind).ok_or(Status::NoResource)?;
    hold(&pd.users);
    Ok(key)
}

pub(super) fn dealloc_mw<H: Host>(adapter: &Adapter<H>, &key: &Key) -> Outcome<()> {
    let pdn = adapter.tpt().remove_window(key, adapter.drain_key(key))?;
    leave(adapter, pdn);
    Ok(())
}
