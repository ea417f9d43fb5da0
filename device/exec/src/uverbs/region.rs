//! Protection domains, memory regions and windows.

use rustix::io::Errno;
use vrnic_abi::admin::{self, MrFlags, MwType, Pages, Rereg, command};
use vrnic_abi::qp::Access;
use vrnic_abi::uverbs::{ACCESS_HINTS, MrReq, PdResp};

use super::file::{OpenFile, RegionMemory};
use super::objects::{Object, Region, RegionKind};
use super::request::Request;
use super::wire::device::CORE_OUT;
use super::wire::{UHW_IN, UHW_OUT, mr};
use super::write::{AllocMw, RegMr, RegMrResp, ReregMr};
use crate::memory::spaces::Placement;
use crate::memory::{PAGE, PAGE_SHIFT};

/// Rights by which the adapter writes (`ib_access_writable` in rdma/ib_verbs.h).
const WRITING: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND);

/// Allocates a protection domain (`ib_uverbs_alloc_pd`).
///
/// # Errors
/// The adapter's refusal.
pub fn alloc_pd(file: &mut OpenFile, request: &Request<'_>) -> Result<(), Errno> {
    let context = file.context()?;
    file.objects.check_room()?;
    let pdn = file.device().driver().command::<command::AllocPd>(&context)?;
    let object = Object::Pd(pdn);
    let handle = file.objects.insert(object);
    let told = request
        .respond_or_zero(UHW_OUT, &PdResp { pdn, ..PdResp::default() })
        .and_then(|()| request.respond_or_zero(CORE_OUT, &handle));
    told.inspect_err(|_| forget(file, handle, &object))
}

/// Destroys an object whose handle the program has not got. If the adapter refuses that, the object
/// stays until the file ends.
pub fn forget(file: &mut OpenFile, handle: u32, object: &Object) {
    if file.destroy(object).is_ok() {
        file.objects.remove(handle);
    }
}

/// `IB_ACCESS_ON_DEMAND`: the memory need not be there when the region is registered. No memory is
/// pinned, so such a region differs in nothing else.
const ON_DEMAND: u32 = 1 << 6;

/// Advices (`enum ib_uverbs_advise_mr_advice`): to write, and the highest one.
const PREFETCH_WRITE: u64 = 1;
const PREFETCH_NO_FAULT: u64 = 2;
/// Maximum number of parts of an advice. The thread that answers all programs looks at each.
const MAX_PARTS: usize = 128;
/// `IB_UVERBS_ADVISE_MR_FLAG_FLUSH`: the program waits.
const FLUSH: u64 = 1;

/// A part of a region (`struct ib_uverbs_sge`).
#[derive(zerocopy_derive::FromBytes)]
#[repr(C)]
struct Part {
    addr: u64,
    length: u32,
    lkey: u32,
}

/// Length in bytes of a part.
const PART_LEN: usize = size_of::<Part>();

/// Checks rights as `ib_check_mr_access` does, and returns those that the adapter has.
///
/// # Errors
/// `EINVAL` for rights of a peer that the program itself does not have, `EOPNOTSUPP` for rights
/// that the adapter does not know.
pub fn rights(flags: u32) -> Result<Access, Errno> {
    // The peer may write only where the program itself may.
    let of_peer = (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC).bits();
    if flags & of_peer != 0 && flags & Access::LOCAL_WRITE.bits() == 0 {
        return Err(Errno::INVAL);
    }
    Access::from_bits(flags & !ACCESS_HINTS).ok_or(Errno::OPNOTSUPP)
}

/// Returns the rights of a region without those for operations that the device of a profile lacks.
fn granted(file: &OpenFile, access: Access) -> Access {
    let lacks = !file.device().driver().profile().atomics;
    if lacks { access.difference(Access::REMOTE_ATOMIC) } else { access }
}

/// Checks a range of memory, and its address for work requests.
fn check(file: &OpenFile, start: u64, length: u64, iova: u64) -> Result<(), Errno> {
    if length == 0 || iova.checked_add(length).is_none() || start.checked_add(length).is_none() {
        return Err(Errno::INVAL);
    }
    if length > file.device().driver().caps().max_mr_size.get() {
        return Err(Errno::INVAL);
    }
    Ok(())
}

/// Returns the pages of a range of memory that the adapter has got.
fn pages(place: &Placement) -> Pages {
    Pages::new(place.addr().get() & !(PAGE - 1), PAGE_SHIFT, 0)
}

/// Registers a region (`ib_uverbs_reg_mr`, and `reg_user_mr` of the driver).
///
/// # Errors
/// `EINVAL`, `EFAULT` or `EOPNOTSUPP`, as the kernel's; and the adapter's refusal.
pub fn register(file: &mut OpenFile, request: &Request<'_>, command: &RegMr) -> Result<(), Errno> {
    let RegMr { start, length, hca_va, pd_handle, access_flags, .. } = *command;
    if start % PAGE != hca_va % PAGE {
        return Err(Errno::INVAL);
    }
    let access = granted(file, rights(access_flags & !ON_DEMAND)?);
    let asked: MrReq = request.value(UHW_IN);
    let flags = MrFlags::from_bits(asked.flags.get()).ok_or(Errno::OPNOTSUPP)?;
    let of_users = MrFlags::ONE_TOUCH | MrFlags::NO_LOCAL_READ;
    if asked.reserved.get() != 0 || !of_users.contains(flags) {
        return Err(Errno::INVAL);
    }
    let pdn = file.objects.pd(pd_handle)?;
    file.objects.check_room()?;
    check(file, start, length, hca_va)?;
    let process = request.process();
    let (place, kind) = match access_flags & ON_DEMAND {
        0 => (process.place(start, length, access.intersects(WRITING))?, RegionKind::Present),
        _ => (process.place_later(start, length)?, RegionKind::OnDemand),
    };
    let mut params = admin::RegMr::new(pdn, access.bits(), hca_va, length, pages(&place));
    params.flags = flags.bits().into();
    let key = file.device().driver().command::<command::RegMr>(&params)?;
    file.keep_region(key, RegionMemory::Process(place));
    let object = Object::Mr(Region { key, pdn, access, start, length, iova: hca_va, kind });
    let handle = file.objects.insert(object);
    let answer = RegMrResp { mr_handle: handle, lkey: key.get(), rkey: key.get() };
    request.respond_or_zero(CORE_OUT, &answer).inspect_err(|_| forget(file, handle, &object))
}

/// Changes memory, PD and rights of a region (`ib_uverbs_rereg_mr`, and `rereg_user_mr` of the
/// driver).
///
/// # Errors
/// `EINVAL`, `EFAULT`, `EACCES` or `EOPNOTSUPP`, as the kernel's; and the adapter's refusal.
pub fn change(file: &mut OpenFile, request: &Request<'_>, command: &ReregMr) -> Result<(), Errno> {
    let ReregMr { mr_handle, flags, start, length, hca_va, pd_handle, access_flags, .. } = *command;
    if flags == 0 {
        return Err(Errno::INVAL);
    }
    let what = Rereg::from_bits(flags).ok_or(Errno::OPNOTSUPP)?;
    let moves = what.contains(Rereg::TRANSLATION);
    if moves && start % PAGE != hca_va % PAGE {
        return Err(Errno::INVAL);
    }
    let mut region = file.objects.region(mr_handle)?;
    match region.kind {
        RegionKind::Device => return Err(Errno::INVAL),
        RegionKind::OnDemand => return Err(Errno::OPNOTSUPP),
        RegionKind::Present => {}
    }
    let mut params = admin::ReregMr::new(region.key, what);
    if what.contains(Rereg::ACCESS) {
        region.access = granted(file, rights(access_flags)?);
        params.access = region.access.bits().into();
    }
    if what.contains(Rereg::PD) {
        region.pdn = file.objects.pd(pd_handle)?;
        params.pdn = region.pdn;
    }
    let writes = region.access.intersects(WRITING);
    let mut memory = None;
    if moves {
        check(file, start, length, hca_va)?;
        let place = request.process().place(start, length, writes)?;
        params.pages = pages(&place);
        (params.iova, params.length) = (hca_va.into(), length.into());
        (region.start, region.length, region.iova) = (start, length, hca_va);
        memory = Some(RegionMemory::Process(place));
    } else if what.contains(Rereg::ACCESS) && writes {
        // Memory that was registered for reading may not be written to.
        let place = request.process().place(region.start, region.length, true);
        drop(place.map_err(|_| Errno::ACCESS)?);
    }
    let key = file.device().driver().command::<command::ReregMr>(&params)?;
    // The adapter does not use the old memory any more.
    file.rekey_region(region.key, key, memory);
    region.key = key;
    file.objects.replace(mr_handle, Object::Mr(region));
    request.respond_or_zero(CORE_OUT, &[key.get(); 2])
}

/// Advises that parts of regions on demand will be used (`UVERBS_METHOD_ADVISE_MR`, and `prefetch`
/// of the driver). Nothing is done but to look at the memory, if the program waits for that.
///
/// # Errors
/// `EOPNOTSUPP` for an unknown advice, `EINVAL` for a region that is none on demand of this PD,
/// `EPERM` or `EFAULT` for a part that is not one of it.
pub fn advise(file: &OpenFile, request: &Request<'_>) -> Result<(), Errno> {
    let pd = request.handle(mr::ADVISE_PD)?.ok_or(Errno::INVAL)?;
    let pdn = file.objects.pd(pd)?;
    let (advice, flags): (u64, u64) = (request.value(mr::ADVICE), request.value(mr::FLAGS));
    let (parts, rest) = request.bytes(mr::PARTS).as_chunks::<PART_LEN>();
    if flags & !FLUSH != 0 || parts.is_empty() || !rest.is_empty() || parts.len() > MAX_PARTS {
        return Err(Errno::INVAL);
    }
    if advice > PREFETCH_NO_FAULT {
        return Err(Errno::OPNOTSUPP);
    }
    for part in parts {
        let Part { addr, length, lkey } = zerocopy::transmute!(*part);
        let region = file.objects.region_of_key(lkey).ok_or(Errno::INVAL)?;
        if region.kind != RegionKind::OnDemand || region.pdn != pdn {
            return Err(Errno::INVAL);
        }
        if advice == PREFETCH_WRITE && !region.access.intersects(WRITING) {
            return Err(Errno::PERM);
        }
        let base = if region.access.contains(Access::ZERO_BASED) { 0 } else { region.iova };
        let at = addr.checked_sub(base).filter(|at| *at <= region.length).ok_or(Errno::FAULT)?;
        if u64::from(length) > region.length - at {
            return Err(Errno::FAULT);
        }
        if flags & FLUSH != 0 && length > 0 {
            let (start, writes) = (region.start + at, advice == PREFETCH_WRITE);
            drop(request.process().place(start, length.into(), writes)?);
        }
    }
    Ok(())
}

/// Allocates a memory window (`ib_uverbs_alloc_mw`, and `alloc_mw` of the driver).
///
/// # Errors
/// `EINVAL` for a type that does not exist, and the adapter's refusal.
pub fn alloc_window(
    file: &mut OpenFile,
    request: &Request<'_>,
    command: &AllocMw,
) -> Result<(), Errno> {
    file.objects.check_room()?;
    let pdn = file.objects.pd(command.pd_handle)?;
    let kind = MwType::from_raw(command.mw_type).ok_or(Errno::INVAL)?;
    let params = admin::AllocMw::new(pdn, kind);
    let key = file.device().driver().command::<command::AllocMw>(&params)?;
    let object = Object::Mw(key);
    let handle = file.objects.insert(object);
    let answer = [handle, key.get()];
    request.respond_or_zero(CORE_OUT, &answer).inspect_err(|_| forget(file, handle, &object))
}
