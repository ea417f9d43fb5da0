//! Protection domains and memory regions.

use rustix::io::Errno;
use vrnic_abi::admin::{self, MrFlags, Pages, command};
use vrnic_abi::qp::Access;
use vrnic_abi::uverbs::{ACCESS_HINTS, MrReq, PdResp};

use super::file::OpenFile;
use super::objects::Object;
use super::request::Request;
use super::wire::device::CORE_OUT;
use super::wire::{UHW_IN, UHW_OUT};
use super::write::{RegMr, RegMrResp};
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

/// Registers a region (`ib_uverbs_reg_mr`, and `reg_user_mr` of the driver).
///
/// # Errors
/// `EINVAL`, `EFAULT` or `EOPNOTSUPP`, as the kernel's; and the adapter's refusal.
pub fn register(file: &mut OpenFile, request: &Request<'_>, command: &RegMr) -> Result<(), Errno> {
    let RegMr { start, length, hca_va, pd_handle, access_flags, .. } = *command;
    let page = PAGE - 1;
    if start & page != hca_va & page {
        return Err(Errno::INVAL);
    }
    let access = Access::from_bits(access_flags & !ACCESS_HINTS).ok_or(Errno::OPNOTSUPP)?;
    // The peer may write only where the program itself may (`ib_check_mr_access`).
    let remote = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    if access.intersects(remote) && !access.contains(Access::LOCAL_WRITE) {
        return Err(Errno::INVAL);
    }
    if length == 0 || hca_va.checked_add(length).is_none() || start.checked_add(length).is_none() {
        return Err(Errno::INVAL);
    }
    let asked: MrReq = request.value(UHW_IN);
    let flags = MrFlags::from_bits(asked.flags.get()).ok_or(Errno::OPNOTSUPP)?;
    let of_users = MrFlags::ONE_TOUCH | MrFlags::NO_LOCAL_READ;
    if asked.reserved.get() != 0 || !of_users.contains(flags) {
        return Err(Errno::INVAL);
    }
    let pdn = file.objects.pd(pd_handle)?;
    file.objects.check_room()?;
    let driver = file.device().driver();
    if length > driver.caps().max_mr_size.get() {
        return Err(Errno::INVAL);
    }
    let place = request.process().place(start, length, access.intersects(WRITING))?;
    let table = Pages::new(place.addr().get() & !page, PAGE_SHIFT, 0);
    let mut params = admin::RegMr::new(pdn, access.bits(), hca_va, length, table);
    params.flags = flags.bits().into();
    let key = driver.command::<command::RegMr>(&params)?;
    file.keep_region(key, place);
    let object = Object::Mr(key);
    let handle = file.objects.insert(object);
    let answer = RegMrResp { mr_handle: handle, lkey: key.get(), rkey: key.get() };
    request.respond_or_zero(CORE_OUT, &answer).inspect_err(|_| forget(file, handle, &object))
}
