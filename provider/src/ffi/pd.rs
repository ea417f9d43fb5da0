// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Protection domains. The kernel keeps all there is to know of them; our part is empty.

use std::ffi::c_int;

use super::bindings as c;
use super::object::Object;
use super::{check, commands, pointer, status};

type Pd = Object<c::ibv_pd, ()>;

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
