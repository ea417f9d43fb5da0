// SPDX-License-Identifier: GPL-2.0
//! Device memory of processes: pieces of the memory that the kernel gives out for all devices.

use abi::{
    admin::{Pages, RegMr},
    qp::Access,
    uverbs::{DmResp, device_memory_mmap, spare_memory_mmap},
};
use kernel::{
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
    sync::Arc,
};

use crate::verbs::{
    Ctx, Verbs,
    memory::mr::{Mr, rights},
};
use crate::{
    direct::quota::Counted,
    hw::p2p::PeerMemory,
    rdma::{
        self,
        memory::dm::{DmOperations, DmRegion, DmRequest},
        memory::mr::NewMr,
        user::mmap::{IoArea, Keeps},
        user::ucontext::{Ucontext, User},
    },
};

/// The driver's part of a process's device memory. The memory itself stays until this and the last
/// mapping have gone, and no address range has its packet memory there.
pub(crate) struct Dm {
    pub(in crate::verbs) memory: Arc<Counted<PeerMemory>>,
    /// Bytes that the process asked for.
    pub(in crate::verbs) length: u64,
    /// mmap offset.
    mmap: u64,
}

#[vtable]
impl DmOperations for Verbs {
    fn alloc_dm(ctx: &Ctx<'_>, context: &Ucontext<Self>, wanted: &DmRequest) -> Result<Dm> {
        // CAST: a small number.
        if wanted.length == 0 || wanted.log_alignment > PAGE_SHIFT as u32 {
            return Err(EINVAL);
        }
        let own = device_memory_mmap(wanted.handle).ok_or(ENOSPC)?;
        let length = usize::try_from(wanted.length)?;
        let length = length.checked_next_multiple_of(PAGE_SIZE).ok_or(ENOMEM)?;
        // CAST: to a type that is as wide.
        let share = context.quotas.memory.take(length as u64).ok_or(ENOMEM)?;
        let (memory, area) = ctx.adapter.take_device_memory(length)?;
        let memory = Arc::new(Counted::new(memory, share), GFP_KERNEL)?;
        let mmap = add_mapping(context, own, area, &memory)?;
        Ok(Dm { memory, length: wanted.length, mmap })
    }

    fn dealloc_dm(_ctx: &Ctx<'_>, context: &Ucontext<Self>, dm: &Dm) {
        context.remove_mapping(dm.mmap);
    }

    fn reg_dm_mr(
        ctx: &Ctx<'_>,
        pd: &rdma::pd::Pd<Self>,
        dm: &Dm,
        region: &DmRegion,
    ) -> Result<NewMr<Mr>> {
        let rights = rights(region.access)? | Access::ZERO_BASED;
        let first = dm.memory.bus_address().checked_add(region.offset).ok_or(EINVAL)?;
        // The memory has consecutive addresses.
        // CAST: a small number.
        let pages = Pages::new(first & !(PAGE_SIZE as u64 - 1), PAGE_SHIFT as u8, 0);
        Mr::new(ctx, &RegMr::new(pd.pdn, rights.bits(), first, region.length, pages), None)
    }
}

/// Dropping the memory gives pages back to the pool of the device, under a spin lock, and adds to a
/// number.
impl Keeps for Arc<Counted<PeerMemory>> {}

/// Lets the process map device memory; returns the offset for that. It is not its `own` one if that
/// is still taken: a handle is free before the last mapping of its memory has gone, which another
/// process may have (`ibv_import_dm(3)`). Such a mapping keeps its memory and its offset.
fn add_mapping(
    context: &Ucontext<Verbs>,
    own: u64,
    area: IoArea<'_>,
    memory: &Arc<Counted<PeerMemory>>,
) -> Result<u64> {
    let spare = (0..).map_while(spare_memory_mmap);
    for offset in Iterator::chain(core::iter::once(own), spare) {
        let owner = KBox::new(memory.clone(), GFP_KERNEL)?;
        if context.add_mapping_at(offset, area, owner).is_ok() {
            return Ok(offset);
        }
    }
    Err(ENOMEM)
}

/// Tells a process how long device memory is that it imports, and where to map it.
pub(crate) fn query(dm: &Dm, user: &User<'_, Verbs>) -> Result {
    user.data.no_request()?;
    user.data.respond(&DmResp { length: dm.length.into(), mmap: dm.mmap.into() })
}
