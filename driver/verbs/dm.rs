// SPDX-License-Identifier: GPL-2.0
//! Device memory of processes: pieces of the memory that the kernel gives out for all devices.

use abi::{
    admin::{Pages, RegMr},
    qp::Access,
    uverbs::device_memory_mmap,
};
use kernel::{
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
};

use super::{
    Ctx, Verbs,
    context::Pd,
    mr::{Mr, rights},
};
use crate::rdma::{
    dm::{DmRegion, DmRequest},
    mr::NewMr,
    ucontext::Ucontext,
};

/// The driver's part of a process's device memory. The memory itself belongs to the permission to
/// map it, and so stays until the last mapping has gone.
pub(crate) struct Dm {
    /// Its address on the bus, at which the adapter reaches it, too.
    bus_address: u64,
    /// mmap offset.
    mmap: u64,
}

pub(super) fn alloc(ctx: &Ctx<'_>, context: &Ucontext<Verbs>, wanted: &DmRequest) -> Result<Dm> {
    // CAST: a small number.
    if wanted.length == 0 || wanted.log_alignment > PAGE_SHIFT as u32 {
        return Err(EINVAL);
    }
    if wanted.length > ctx.adapter.device_memory() {
        return Err(ENOMEM);
    }
    let mmap = device_memory_mmap(wanted.handle).ok_or(ENOSPC)?;
    let length = usize::try_from(wanted.length)?.next_multiple_of(PAGE_SIZE);
    let (memory, area) = ctx.adapter.take_device_memory(length)?;
    let bus_address = memory.bus_address();
    context.add_mapping_at(mmap, area, KBox::new(memory, GFP_KERNEL)?)?;
    Ok(Dm { bus_address, mmap })
}

pub(super) fn dealloc(context: &Ucontext<Verbs>, dm: &Dm) {
    context.remove_mapping(dm.mmap);
}

pub(super) fn register(ctx: &Ctx<'_>, pd: &Pd, dm: &Dm, region: &DmRegion) -> Result<NewMr<Mr>> {
    let rights = rights(region.access)? | Access::ZERO_BASED;
    let first = dm.bus_address.checked_add(region.offset).ok_or(EINVAL)?;
    // The memory has consecutive addresses.
    // CAST: a small number.
    let pages = Pages::new(first & !(PAGE_SIZE as u64 - 1), PAGE_SHIFT as u8, 0);
    Mr::new(ctx, &RegMr::new(pd.pdn, rights.bits(), first, region.length, pages), None)
}
