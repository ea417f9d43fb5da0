// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory regions. The kernel keeps all state of them; the plugin's part is empty.

use std::ffi::{c_int, c_void};
use std::ptr;

use rustix::io::Errno;
use vrnic_abi::Key;
use vrnic_abi::admin::MrFlags;
use vrnic_abi::uverbs::Features;

use crate::ffi::bindings as c;
use crate::ffi::commands::{self, NewRegion, Rereg};
use crate::ffi::context::Context;
use crate::ffi::object::Object;
use crate::ffi::{check, pointer, status};

pub(in crate::ffi) type Mr = Object<c::verbs_mr, ()>;

/// Implements `reg_mr`.
pub(in crate::ffi) unsafe extern "C" fn reg_mr(
    pd: *mut c::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut c::ibv_mr {
    // SAFETY: the caller is libibverbs, which passes a live protection domain.
    pointer(unsafe {
        try_reg(pd, &NewRegion { addr, length, iova, access, flags: MrFlags::empty() })
    })
}

/// Registers memory.
///
/// # Safety
/// `pd` must be live.
pub(in crate::ffi) unsafe fn try_reg(
    pd: *mut c::ibv_pd,
    new: &NewRegion,
) -> Result<*mut c::ibv_mr, Errno> {
    if !new.flags.is_empty() {
        // SAFETY: the caller passes a live protection domain, whose context is live, and one of
        // this plugin.
        let context = unsafe { Context::of((*pd).context) }?;
        context.needs(Features::REGION_FLAGS)?;
        if new.flags.contains(MrFlags::NO_LOCAL_READ) {
            context.needs(Features::KEY_OPTIONS)?;
        }
    }
    let region = Mr::begin()?;
    let base = region.base();
    // SAFETY: `pd` is live, `region` is ours.
    unsafe { commands::reg_mr(pd, new, base) }?;
    // The public struct is the first part of the private one.
    Ok(region.complete(()).cast())
}

/// `alloc_null_mr`. The kernel does not know such a region.
pub(in crate::ffi) unsafe extern "C" fn alloc_null(pd: *mut c::ibv_pd) -> *mut c::ibv_mr {
    // SAFETY: the caller is libibverbs, which passes a live protection domain.
    pointer(unsafe { try_alloc_null(pd) })
}

/// # Safety
/// `pd` must be live.
unsafe fn try_alloc_null(pd: *mut c::ibv_pd) -> Result<*mut c::ibv_mr, Errno> {
    // SAFETY: the caller passes a live protection domain of this plugin, whose context is live.
    let base = unsafe { (*pd).context };
    // SAFETY: as above.
    unsafe { Context::of(base) }?.needs(Features::NULL_KEY)?;
    let region: *mut c::verbs_mr = Mr::begin()?.complete(());
    // SAFETY: just made, and no other code knows it.
    let public = unsafe {
        (*region).mr_type = c::IBV_MR_TYPE_NULL_MR;
        &mut (*region).ibv_mr
    };
    (public.context, public.pd, public.lkey) = (base, pd, Key::NULL.get());
    // The public struct is the first part of the private one.
    Ok(region.cast())
}

/// Implements `reg_dmabuf_mr`.
pub(in crate::ffi) unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut c::ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut c::ibv_mr {
    pointer(Mr::begin().and_then(|region| {
        let base = region.base();
        // SAFETY: `pd` is live, `region` is ours; the kernel checks the file and the range.
        // Releases before 54 do not read the last argument, which is on the stack.
        check(unsafe {
            c::ibv_cmd_reg_dmabuf_mr(pd, offset, length, iova, fd, access, base, ptr::null_mut())
        })?;
        Ok(region.complete(()).cast())
    }))
}

/// `rereg_mr`: libibverbs itself updates what the region says of address, length and PD.
pub(in crate::ffi) unsafe extern "C" fn rereg_mr(
    region: *mut c::verbs_mr,
    flags: c_int,
    pd: *mut c::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let change = Rereg { flags: flags.cast_unsigned(), addr, length, access, pd };
    // SAFETY: made by `reg_mr`, live, and so is the PD.
    status(unsafe { commands::rereg_mr(region, &change) })
}

/// Implements `dereg_mr`.
pub(in crate::ffi) unsafe extern "C" fn dereg_mr(region: *mut c::verbs_mr) -> c_int {
    // SAFETY: live by libibverbs' promise.
    if unsafe { (*region).mr_type } == c::IBV_MR_TYPE_NULL_MR {
        // SAFETY: made by `alloc_null`, and given up by the caller.
        unsafe { Mr::free(region) };
        return 0;
    }
    // SAFETY: made by `reg_mr`, live, and given up by the caller if this succeeds.
    unsafe { Mr::destroy(region, c::ibv_cmd_dereg_mr) }
}

/// `import_mr`. The region has no address in this process.
pub(in crate::ffi) unsafe extern "C" fn import(pd: *mut c::ibv_pd, handle: u32) -> *mut c::ibv_mr {
    pointer(Mr::begin().and_then(|region| {
        // SAFETY: `pd` is live, `region` is ours; the kernel checks the handle.
        check(unsafe { c::ibv_cmd_query_mr(pd, region.base(), handle) })?;
        Ok(region.complete(()).cast())
    }))
}

/// Implements `unimport_mr`.
pub(in crate::ffi) unsafe extern "C" fn unimport(region: *mut c::ibv_mr) {
    // SAFETY: made by `import`, and given up by the caller. The public struct is the first part of
    // the private one.
    unsafe { Mr::free(region.cast()) };
}

const _: () = assert!(std::mem::offset_of!(c::verbs_mr, ibv_mr) == 0);
