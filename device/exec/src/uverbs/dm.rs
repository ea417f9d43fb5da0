//! Device memory: a part of the device file, which the program maps as the rings. Programs that use
//! the device memory of a network card run with it; it is no nearer to the adapter than other
//! memory.

use std::sync::Arc;

use rustix::io::Errno;
use vrnic_abi::admin::{self, Pages, command};
use vrnic_abi::qp::Access;
use vrnic_abi::uverbs::device_memory_mmap;

use super::device::DEVICE_MEMORY_MAX;
use super::file::{OpenFile, RegionMemory};
use super::objects::{Object, Region, RegionKind};
use super::region::{forget, rights};
use super::request::Request;
use super::wire::{HANDLE, dm, mr};
use crate::memory::{PAGE, PAGE_SHIFT};

/// Number of handles that have an offset in the file.
const HANDLES: u32 = 1 << 16;

/// Allocates device memory (`UVERBS_METHOD_DM_ALLOC`, and `alloc_dm` of the driver).
///
/// # Errors
/// `EINVAL` for a length or an alignment that cannot be had, `ENOMEM` or `ENOSPC` for too much.
pub fn alloc(file: &mut OpenFile, request: &Request<'_>) -> Result<(), Errno> {
    let _exists = file.context()?;
    file.objects.check_room()?;
    let length: u64 = request.value(dm::LENGTH);
    let log_alignment: u32 = request.value(dm::ALIGNMENT);
    if length == 0 || log_alignment > PAGE_SHIFT.into() {
        return Err(Errno::INVAL);
    }
    let pages = length.checked_next_multiple_of(PAGE).ok_or(Errno::NOMEM)?;
    if pages > DEVICE_MEMORY_MAX.saturating_sub(file.device_memory()) {
        return Err(Errno::NOMEM);
    }
    let object = Object::Dm(length);
    let handle = file.objects.insert_below(HANDLES, object).ok_or(Errno::NOSPC)?;
    let start = device_memory_mmap(handle).ok_or(Errno::NOSPC);
    let memory =
        start.and_then(|start| file.ring(file.id(), start..start + pages).ok_or(Errno::NOMEM));
    let memory = memory.inspect_err(|_| file.objects.remove(handle))?;
    file.keep_device_memory(handle, memory);
    request.respond_handle(HANDLE, handle.into()).inspect_err(|_| {
        let _unused = free(file, handle);
        file.objects.remove(handle);
    })
}

/// Frees device memory (`UVERBS_METHOD_DM_FREE`).
///
/// # Errors
/// `EBUSY` if a region is in it.
pub fn free(file: &mut OpenFile, handle: u32) -> Result<(), Errno> {
    file.drop_device_memory(handle)
}

/// Registers a part of device memory (`UVERBS_METHOD_DM_MR_REG`, and `reg_dm_mr` of the driver).
///
/// # Errors
/// `EINVAL` for a part that is not inside, and the adapter's refusal.
pub fn register(file: &mut OpenFile, request: &Request<'_>) -> Result<(), Errno> {
    file.objects.check_room()?;
    let pd = request.handle(mr::PD)?.ok_or(Errno::INVAL)?;
    let dm = request.handle(mr::DM)?.ok_or(Errno::INVAL)?;
    let (offset, length): (u64, u64) = (request.value(mr::OFFSET), request.value(mr::LENGTH));
    let flags: u64 = request.value(mr::ACCESS);
    let pdn = file.objects.pd(pd)?;
    let whole = file.objects.device_memory(dm)?;
    let flags = u32::try_from(flags).map_err(|_| Errno::INVAL)?;
    if flags & Access::ZERO_BASED.bits() == 0 {
        return Err(Errno::INVAL);
    }
    let access = rights(flags)?;
    if offset > whole || length > whole - offset {
        return Err(Errno::INVAL);
    }
    let memory = file.shared_device_memory(dm).ok_or(Errno::INVAL)?;
    let first = memory.number().place(offset)?.get();
    let pages = Pages::new(first & !(PAGE - 1), PAGE_SHIFT, 0);
    let params = admin::RegMr::new(pdn, access.bits(), first, length, pages);
    let key = file.device().driver().command::<command::RegMr>(&params)?;
    file.keep_region(key, RegionMemory::Device(Arc::clone(&memory)));
    let kind = RegionKind::Device;
    let region = Region { key, pdn, access, start: 0, length, iova: 0, kind };
    let object = Object::Mr(region);
    let handle = file.objects.insert(object);
    request
        .respond(mr::RESP_LKEY, &key.get())
        .and_then(|()| request.respond(mr::RESP_RKEY, &key.get()))
        .and_then(|()| request.respond_handle(HANDLE, handle.into()))
        .inspect_err(|_| forget(file, handle, &object))
}
