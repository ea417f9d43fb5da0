// SPDX-License-Identifier: GPL-2.0
//! Memory regions.

use abi::{
    Key,
    admin::{AllocMr, DeviceFeatures, MrFlags, RegMr, Rereg, ReregMr, command},
    qp::Access,
    uverbs::{ACCESS_HINTS, MrReq, Payload},
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

use crate::rdma::{
    self, Device,
    memory::mr::{Advice, MrOperations, NewMr, RegionChange, UserRegion},
    memory::page_list::PageList,
    memory::umem::{DmabufPart, Umem},
    user::udata::Udata,
};
use crate::verbs::{
    Ctx, Verbs,
    context::Pd,
    memory::dmabuf::Revoker,
    memory::paged::{self, Region},
    memory::pages::PageTable,
};

/// The adapter's part of a region.
pub(crate) struct Mr {
    state: Pin<KBox<Mutex<State>>>,
    /// The region's memory, if that is not pinned.
    paged: Option<Arc<Region>>,
    /// The object that ends the access to its memory, if its memory is a DMA buffer that the
    /// exporter may take back.
    revoker: Option<Arc<Revoker>>,
}

struct State {
    key: Key,
    /// Rights, for memory that takes the place of this.
    access: u32,
    /// The pinned memory, which is unpinned after the adapter has removed the region.
    memory: Option<Umem>,
}

impl Mr {
    /// Returns the key of the region.
    pub(in crate::verbs) fn key(&self) -> Key {
        self.state.lock().key
    }

    /// Registers with the adapter.
    pub(in crate::verbs) fn new(
        ctx: &Ctx<'_>,
        params: &RegMr,
        memory: Option<Umem>,
    ) -> Result<NewMr<Self>> {
        // This comes before the command, because nothing may fail after it.
        let place = KBox::<Mutex<State>>::new_uninit(GFP_KERNEL)?;
        let key = ctx.execute::<command::RegMr>(params)?;
        // The mutex is not locked here, because the caller may hold the lock of a DMA buffer.
        let state = State { key, access: params.access.get(), memory };
        let Ok(state) = place.write_pin_init(new_mutex!(state, "vrnic::Mr"));
        let driver = Self { state, paged: None, revoker: None };
        Ok(NewMr { lkey: key.get(), rkey: key.get(), pages: None, driver })
    }

    /// Registers a DMA buffer that its exporter may take back. It cannot do so before the adapter
    /// has the region and the exporter knows how to end the access to it.
    fn revocable(
        ctx: &Ctx<'_>,
        device: &Device<Verbs>,
        pd: &Pd,
        region: &UserRegion,
        fd: i32,
    ) -> Result<NewMr<Self>> {
        let revoker = Revoker::new(ctx.adapter.liveness())?;
        let mut locked = Umem::lock_dmabuf(device, &part(region, fd))?;
        let table = describe(ctx, locked.umem(), region.iova)?;
        let mut new = Self::new(ctx, &params(pd, region, &table, MrFlags::PRESENT)?, None)?;
        revoker.begin(Key::new(new.lkey));
        new.driver.state.lock().memory = Some(locked.unlock(revoker.clone()));
        new.driver.revoker = Some(revoker);
        Ok(new)
    }

    /// Returns the key before a change and the rights after it, if the memory allows the change.
    fn begin_change(&self, change: &RegionChange<'_, Verbs>) -> Result<(Key, u32)> {
        let state = self.state.lock();
        let access = match change.access {
            Some(access) => rights(access)?.bits(),
            None => state.access,
        };
        if let Some(memory) = &state.memory {
            memory.check_change(access, change.memory.is_some())?;
        }
        Ok((state.key, access))
    }

    /// Records a change.
    fn change(&self, key: Key, access: u32) {
        let mut state = self.state.lock();
        (state.key, state.access) = (key, access);
    }

    /// Registers memory that is not pinned.
    fn paged(
        ctx: &Ctx<'_>,
        device: &Device<Verbs>,
        pd: &Pd,
        wanted: &UserRegion,
        flags: MrFlags,
    ) -> Result<NewMr<Self>> {
        let region = Region::new(ctx, device, pd.pdn, wanted)?;
        let mut params = region.params(rights(wanted.access & !paged::ON_DEMAND)?.bits());
        params.flags = (flags | MrFlags::PAGED).bits().into();
        let mut new = Self::new(ctx, &params, None)?;
        if let Err(error) = region.start(ctx, new.driver.key()) {
            // The process does not know the key.
            ctx.destroy::<command::DeregMr>(&new.driver.key())?;
            return Err(error);
        }
        new.driver.paged = Some(region);
        Ok(new)
    }
}

/// Returns the rights, if the adapter has all of them.
pub(in crate::verbs) fn rights(access: u32) -> Result<Access> {
    Access::from_bits(access & !ACCESS_HINTS).ok_or(EOPNOTSUPP)
}

#[vtable]
impl MrOperations for Verbs {
    fn get_dma_mr(ctx: &Ctx<'_>, pd: &rdma::pd::Pd<Self>, access: u32) -> Result<NewMr<Mr>> {
        Mr::new(ctx, &RegMr::all_memory(pd.pdn, rights(access)?.bits()), None)
    }

    fn reg_user_mr(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        pd: &rdma::pd::Pd<Self>,
        region: &UserRegion,
        udata: Option<&Udata<'_>>,
    ) -> Result<NewMr<Mr>> {
        let flags = match udata {
            Some(udata) => asked(&udata.request(MrReq::REQUIRED)?)?,
            None => MrFlags::empty(),
        };
        if region.access & paged::ON_DEMAND != 0 {
            if let Some(udata) = udata {
                udata.clear()?;
            }
            return Mr::paged(ctx, device, pd, region, flags);
        }
        check(ctx, region)?;
        let umem = Umem::pin_for(device, region.start, region.length, region.access)?;
        if let Some(udata) = udata {
            // This comes before the command: after the command the process may use the key, and the
            // adapter refuses to remove a region that a window is bound to.
            udata.clear()?;
        }
        register(ctx, pd, region, umem, flags)
    }

    fn reg_user_mr_dmabuf(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        pd: &rdma::pd::Pd<Self>,
        region: &UserRegion,
        fd: i32,
    ) -> Result<NewMr<Mr>> {
        check(ctx, region)?;
        if ctx.adapter.caps().has(DeviceFeatures::REVOKES) {
            return Mr::revocable(ctx, device, pd, region, fd);
        }
        let umem = Umem::pin_dmabuf(device, &part(region, fd))?;
        // The buffer may be another device's memory, which the adapter need not reach.
        register(ctx, pd, region, umem, MrFlags::PRESENT)
    }

    fn rereg_user_mr(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        mr: &Mr,
        change: &RegionChange<'_, Self>,
    ) -> Result<u32> {
        if mr.paged.is_some() || change.access.is_some_and(|access| access & paged::ON_DEMAND != 0)
        {
            return Err(EOPNOTSUPP);
        }
        // The core lets no other call change the region meanwhile. The lock is not held: a process
        // may let its memory wait for any time, and programs that show all regions take the lock.
        let (key, access) = mr.begin_change(change)?;
        let mut what = Rereg::empty();
        what.set(Rereg::TRANSLATION, change.memory.is_some());
        what.set(Rereg::PD, change.pd.is_some());
        what.set(Rereg::ACCESS, change.access.is_some());
        let mut params = ReregMr::new(key, what);
        if change.access.is_some() {
            params.access = access.into();
        }
        if let Some(pd) = change.pd {
            params.pdn = pd.pdn;
        }
        let Some(region) = &change.memory else {
            let key = ctx.execute::<command::ReregMr>(&params)?;
            mr.change(key, access);
            return Ok(key.get());
        };
        let region = UserRegion { access, ..*region };
        check(ctx, &region)?;
        let mut umem = Umem::pin_for(device, region.start, region.length, access)?;
        let table = describe(ctx, &mut umem, region.iova)?;
        params.pages = table.pages();
        params.iova = region.iova.into();
        params.length = region.length.into();
        let key = ctx.execute::<command::ReregMr>(&params)?;
        mr.change(key, access);
        // The adapter no longer uses the old memory, which is unpinned here.
        let old = mr.state.lock().memory.replace(umem);
        drop(old);
        Ok(key.get())
    }

    fn alloc_mr(ctx: &Ctx<'_>, pd: &rdma::pd::Pd<Self>, max_pages: u32) -> Result<NewMr<Mr>> {
        if max_pages == 0 || max_pages > ctx.adapter.caps().max_fast_reg_pages.get() {
            return Err(EINVAL);
        }
        let pages = PageList::new(ctx.dma(), max_pages)?;
        let state = State { key: Key::default(), access: 0, memory: None };
        let state = KBox::pin_init(new_mutex!(state, "vrnic::Mr"), GFP_KERNEL)?;
        let key = ctx.execute::<command::AllocMr>(&AllocMr::new(pd.pdn, max_pages))?;
        state.lock().key = key;
        Ok(NewMr {
            lkey: key.get(),
            rkey: key.get(),
            pages: Some(pages),
            driver: Mr { state, paged: None, revoker: None },
        })
    }

    fn dereg_mr(ctx: &Ctx<'_>, mr: &Mr) -> Result {
        let key = mr.key();
        let remove = || ctx.destroy::<command::DeregMr>(&key);
        match (&mr.paged, &mr.revoker) {
            (Some(region), _) => region.end(ctx, key, remove),
            (None, Some(revoker)) => revoker.end(remove),
            (None, None) => remove(),
        }
    }

    fn advise_mr(ctx: &Ctx<'_>, pd: &rdma::pd::Pd<Self>, advice: &Advice) -> Result {
        paged::prefetch(ctx, pd.pdn, advice)
    }
}

/// Returns the pages of a region's memory.
fn describe(ctx: &Ctx<'_>, umem: &mut Umem, iova: u64) -> Result<PageTable> {
    PageTable::of_umem(ctx.dma(), umem, ctx.adapter.caps().page_sizes.get(), iova)
}

/// Registers memory that has been pinned for `region`.
fn register(
    ctx: &Ctx<'_>,
    pd: &Pd,
    region: &UserRegion,
    mut umem: Umem,
    flags: MrFlags,
) -> Result<NewMr<Mr>> {
    let table = describe(ctx, &mut umem, region.iova)?;
    Mr::new(ctx, &params(pd, region, &table, flags)?, Some(umem))
}

/// Returns the part of the DMA buffer `fd` that is the memory of a region.
fn part(region: &UserRegion, fd: i32) -> DmabufPart {
    let UserRegion { start, length, access, .. } = *region;
    DmabufPart { fd, offset: start, length, access }
}

/// Returns the parameters with which the adapter registers a region of these pages.
fn params(pd: &Pd, region: &UserRegion, table: &PageTable, flags: MrFlags) -> Result<RegMr> {
    let rights = rights(region.access)?;
    let mut params = RegMr::new(pd.pdn, rights.bits(), region.iova, region.length, table.pages());
    params.flags = flags.bits().into();
    Ok(params)
}

/// Checks what can be checked before memory is pinned.
fn check(ctx: &Ctx<'_>, region: &UserRegion) -> Result {
    rights(region.access)?;
    if region.length > ctx.adapter.caps().max_mr_size.get() {
        return Err(EINVAL);
    }
    Ok(())
}

/// The flags that only the driver sets.
const OF_DRIVER: MrFlags = MrFlags::ALL_MEMORY.union(MrFlags::PRESENT).union(MrFlags::PAGED);

/// Returns the flags that a provider asks for, if it may.
fn asked(request: &MrReq) -> Result<MrFlags> {
    let flags = MrFlags::from_bits(request.flags.get()).ok_or(EOPNOTSUPP)?;
    if request.reserved.get() != 0 || flags.intersects(OF_DRIVER) {
        return Err(EINVAL);
    }
    Ok(flags)
}
