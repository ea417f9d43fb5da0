// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Protection domains and memory regions. The kernel keeps all there is to know of them; our
//! parts are empty.

use std::ffi::{c_int, c_void};

use super::bindings as c;
use super::object::Object;
use super::{check, commands, pointer, status};

type Pd = Object<c::ibv_pd, ()>;
type Mr = Object<c::verbs_mr, ()>;

/// `alloc_pd`.
pub(super) unsafe extern "C" fn alloc(context: *mut c::ibv_context) -> *mut c::ibv_pd {
    let pd = Pd::begin();
    // SAFETY: `context` is libibverbs' own, `pd` is ours.
    let allocated = unsafe { commands::alloc_pd(context, pd.base()) };
    pointer(allocated.map(|_| pd.complete(())))
}

/// `dealloc_pd`.
pub(super) unsafe extern "C" fn dealloc(pd: *mut c::ibv_pd) -> c_int {
    // SAFETY: made by `alloc`, live.
    let result = check(unsafe { c::ibv_cmd_dealloc_pd(pd) });
    if result.is_ok() {
        // SAFETY: as above, and given up by the caller.
        unsafe { Pd::free(pd) };
    }
    status(result)
}

/// `reg_mr`.
pub(super) unsafe extern "C" fn reg_mr(
    pd: *mut c::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut c::ibv_mr {
    let region = Mr::begin();
    // SAFETY: `pd` is live, `region` is ours.
    let registered = unsafe { commands::reg_mr(pd, addr, length, iova, access, region.base()) };
    // The public struct is the first part of the private one.
    pointer(registered.map(|()| region.complete(()).cast()))
}

/// `dereg_mr`.
pub(super) unsafe extern "C" fn dereg_mr(region: *mut c::verbs_mr) -> c_int {
    // SAFETY: made by `reg_mr`, live.
    let result = check(unsafe { c::ibv_cmd_dereg_mr(region) });
    if result.is_ok() {
        // SAFETY: as above, and given up by the caller.
        unsafe { Mr::free(region) };
    }
    status(result)
}

const _: () = assert!(std::mem::offset_of!(c::verbs_mr, ibv_mr) == 0);
