// SPDX-License-Identifier: GPL-2.0
//! Device memory of processes: pieces of the memory that the kernel gives out for all devices.

use abi::{
    admin::{Pages, RegMr},
    qp::Access,
    uverbs::{DmResp, device_memory_mmap},
};
use kernel::{
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
    sync::Arc,
};

use super::{
    Ctx, Verbs,
    context::Pd,
    mr::{Mr, rights},
};
use crate::{
    hw::p2p::PeerMemory,
    rdma::{
        dm::{DmRegion, DmRequest},
        mr::NewMr,
        ucontext::Ucontext,
        udata::User,
    },
};

/// The driver's part of a process's device memory. The memory itself stays until this and the last
/// mapping have gone, and no address range has its packet memory there.
pub(crate) struct Dm {
    /// The memory.
    pub(super) memory: Arc<PeerMemory>,
    /// Bytes that the process asked for.
    pub(super) length: u64,
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
    let memory = Arc::new(memory, GFP_KERNEL)?;
    context.add_mapping_at(mmap, area, KBox::new(memory.clone(), GFP_KERNEL)?)?;
    Ok(Dm { memory, length: wanted.length, mmap })
}

pub(super) fn dealloc(context: &Ucontext<Verbs>, dm: &Dm) {
    context.remove_mapping(dm.mmap);
}

/// Tells a process that imports device memory how long it is.
pub(crate) fn query(dm: &Dm, user: &User<'_, Verbs>) -> Result {
    user.data.no_request()?;
    user.data.respond(&DmResp { length: dm.length.into() })
}

pub(super) fn register(ctx: &Ctx<'_>, pd: &Pd, dm: &Dm, region: &DmRegion) -> Result<NewMr<Mr>> {
    let rights = rights(region.access)? | Access::ZERO_BASED;
    let first = dm.memory.bus_address().checked_add(region.offset).ok_or(EINVAL)?;
    // The memory has consecutive addresses.
    // CAST: a small number.
    let pages = Pages::new(first & !(PAGE_SIZE as u64 - 1), PAGE_SHIFT as u8, 0);
    Mr::new(ctx, &RegMr::new(pd.pdn, rights.bits(), first, region.length, pages), None)
}
