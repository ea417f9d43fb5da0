// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Device memory: a part of the adapter's BAR2, which the process maps. Copies are plain stores and
//! loads.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use vrnic_abi::uverbs::device_memory_mmap;
use vrnic_queues::device_memory::DeviceMemory;
use vrnic_queues::mapping::Mapping;

use super::mr::Mr;
use crate::ffi::bindings as c;
use crate::ffi::context::Context;
use crate::ffi::object::{NewObject, Object};
use crate::ffi::{check, ioctl, pointer, status};

type Dm = Object<c::verbs_dm, DeviceMemory>;

/// The mapping has whole pages.
const PAGE: usize = 4096;

/// Held while memory is allocated or freed. A handle is free before the mapping of its memory has
/// gone, and other memory gets one of the few spare offsets until then.
static CHANGES: Mutex<()> = Mutex::new(());

/// Implements `alloc_dm`.
pub(in crate::ffi) unsafe extern "C" fn alloc(
    context: *mut c::ibv_context,
    attr: *mut c::ibv_alloc_dm_attr,
) -> *mut c::ibv_dm {
    // SAFETY: libibverbs' arguments.
    pointer(unsafe { try_alloc(context, &*attr) })
}

/// # Safety
/// `context` must be live.
unsafe fn try_alloc(
    context: *mut c::ibv_context,
    attr: &c::ibv_alloc_dm_attr,
) -> Result<*mut c::ibv_dm, Errno> {
    if attr.comp_mask != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    // SAFETY: the caller passes a live context, which is one of this plugin.
    let own = unsafe { Context::of(context) }?;
    let pages = pages(attr.length)?;
    let memory = Dm::begin()?;
    let _alone = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    let base = memory.base();
    // SAFETY: `context` is live, `base` is ours.
    check(unsafe { c::ibv_cmd_alloc_dm(context, attr, base, ptr::null_mut()) })?;
    // SAFETY: filled in just now.
    let handle = unsafe { (*base).handle };
    // SAFETY: the caller passes a live context.
    let mapping = unsafe { map_new(context, own, handle, pages) }.inspect_err(|_| {
        // SAFETY: the kernel has just allocated it, and the program does not know it.
        unsafe { c::ibv_cmd_free_dm(base) };
    })?;
    Ok(complete(memory, DeviceMemory::new(mapping, attr.length)))
}

/// Returns the length of the pages that contain `length` bytes.
fn pages(length: usize) -> Result<u32, Errno> {
    let pages = length.checked_next_multiple_of(PAGE).ok_or(Errno::NOMEM)?;
    u32::try_from(pages).map_err(|_| Errno::NOMEM)
}

/// Maps memory that was just allocated.
///
/// # Safety
/// `context` must be live.
unsafe fn map_new(
    context: *mut c::ibv_context,
    own: &Context,
    handle: u32,
    length: u32,
) -> Result<Mapping, Errno> {
    match map(own, own_offset(handle)?, length) {
        // Another process still maps memory that was freed and had this handle.
        Err(Errno::INVAL) => {
            // SAFETY: the caller passes a live context.
            let (offset, _) = unsafe { ask(context, handle) }?;
            map(own, offset, length)
        }
        result => result,
    }
}

/// Asks for the offset of device memory, and for its length.
///
/// # Safety
/// `context` must be live.
unsafe fn ask(context: *mut c::ibv_context, handle: u32) -> Result<(u64, u64), Errno> {
    // SAFETY: the caller passes a live context.
    let answer = unsafe { ioctl::query_dm(context, handle) }?;
    let offset = match answer.mmap.get() {
        0 => own_offset(handle)?,
        offset => offset,
    };
    Ok((offset, answer.length.get()))
}

fn own_offset(handle: u32) -> Result<u64, Errno> {
    device_memory_mmap(handle).ok_or(Errno::NOSPC)
}

fn map(context: &Context, offset: u64, length: u32) -> Result<Mapping, Errno> {
    let mapping = context.map(offset, length)?;
    // A child would keep the offset, too.
    mapping.keep_from_children()?;
    Ok(mapping)
}

fn complete(memory: NewObject<c::verbs_dm, DeviceMemory>, own: DeviceMemory) -> *mut c::ibv_dm {
    // SAFETY: ours, and the program does not know it yet.
    let public = unsafe { &mut (*memory.base()).dm };
    public.memcpy_to_dm = Some(copy_to);
    public.memcpy_from_dm = Some(copy_from);
    // The public struct is the first part of the private one.
    memory.complete(own).cast()
}

/// Implements `import_dm`.
pub(in crate::ffi) unsafe extern "C" fn import(
    context: *mut c::ibv_context,
    handle: u32,
) -> *mut c::ibv_dm {
    // SAFETY: libibverbs' arguments.
    pointer(unsafe { try_import(context, handle) })
}

/// # Safety
/// `context` must be live.
unsafe fn try_import(context: *mut c::ibv_context, handle: u32) -> Result<*mut c::ibv_dm, Errno> {
    // SAFETY: the caller passes a live context, which is one of this plugin.
    let own = unsafe { Context::of(context) }?;
    // SAFETY: the caller passes a live context.
    let (offset, length) = unsafe { ask(context, handle) }?;
    let length = usize::try_from(length).map_err(|_| Errno::NOMEM)?;
    let mapping = map(own, offset, pages(length)?)?;
    let memory = Dm::begin()?;
    // SAFETY: ours, and the program does not know it yet.
    let private = unsafe { &mut *memory.base() };
    (private.dm.context, private.handle) = (context, handle);
    private.dm.handle = handle;
    Ok(complete(memory, DeviceMemory::new(mapping, length)))
}

/// Implements `unimport_dm`.
pub(in crate::ffi) unsafe extern "C" fn unimport(memory: *mut c::ibv_dm) {
    // SAFETY: made by `import`, and given up by the caller. The public struct is the first part of
    // the private one.
    unsafe { Dm::free(memory.cast()) };
}

/// Implements `free_dm`.
pub(in crate::ffi) unsafe extern "C" fn free(memory: *mut c::ibv_dm) -> c_int {
    let _alone = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: made by `alloc`, live, and given up by the caller if this succeeds.
    unsafe { Dm::destroy(memory.cast(), c::ibv_cmd_free_dm) }
}

/// Implements `reg_dm_mr`.
pub(in crate::ffi) unsafe extern "C" fn register(
    pd: *mut c::ibv_pd,
    memory: *mut c::ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut c::ibv_mr {
    pointer(Mr::begin().and_then(|region| {
        let base = region.base();
        // SAFETY: PD and device memory are live, `region` is ours; the kernel checks the range.
        check(unsafe {
            let memory = memory.cast();
            c::ibv_cmd_reg_dm_mr(pd, memory, offset, length, access, base, ptr::null_mut())
        })?;
        Ok(region.complete(()).cast())
    }))
}

/// Returns the place of `length` bytes at `offset`.
///
/// # Errors
/// `EINVAL` if these are not whole words of the memory.
///
/// # Safety
/// `memory` must be device memory of this plugin.
unsafe fn place(memory: *mut c::ibv_dm, offset: u64, length: usize) -> Result<*mut u8, Errno> {
    // SAFETY: the caller passes live device memory. The public struct is the first part of ours.
    unsafe { Dm::own(memory.cast()) }.ok_or(Errno::INVAL)?.words(offset, length)
}

/// Implements `memcpy_to_dm`.
unsafe extern "C" fn copy_to(
    memory: *mut c::ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the device memory is live by the program's promise.
    status(unsafe { place(memory, offset, length) }.map(|to| {
        // SAFETY: `place` has checked the target; the program promises that there is a source.
        unsafe { ptr::copy(from.cast(), to, length) };
    }))
}

/// Implements `memcpy_from_dm`.
unsafe extern "C" fn copy_from(
    to: *mut c_void,
    memory: *mut c::ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: the device memory is live by the program's promise.
    status(unsafe { place(memory, offset, length) }.map(|from| {
        // SAFETY: `place` has checked the source; the program promises that there is a target.
        unsafe { ptr::copy(from.cast_const(), to.cast(), length) };
    }))
}
