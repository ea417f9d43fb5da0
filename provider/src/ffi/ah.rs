// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Address handles: paths that the kernel has resolved, kept until datagrams are posted with them.

use std::ffi::c_int;

use vrnic_abi::qp::AddressVector;

use super::bindings as c;
use super::object::Object;
use super::{commands, pointer};

type Ah = Object<c::ibv_ah, AddressVector>;

/// Returns the path of an address handle; `None` for null.
///
/// # Safety
/// `ah` must be null or a handle of this plugin, live as long as the result is used.
#[inline]
pub(super) unsafe fn path<'a>(ah: *mut c::ibv_ah) -> Option<&'a AddressVector> {
    // SAFETY: the caller passes null or a live handle of this plugin.
    unsafe { Ah::own(ah) }
}

/// Implements `create_ah`.
pub(super) unsafe extern "C" fn create(
    pd: *mut c::ibv_pd,
    attr: *mut c::ibv_ah_attr,
) -> *mut c::ibv_ah {
    pointer(Ah::begin().and_then(|ah| {
        // SAFETY: the arguments are libibverbs' own, `ah` is ours.
        let response = unsafe { commands::create_ah(pd, ah.base(), attr) }?;
        Ok(ah.complete(response.av))
    }))
}

/// Implements `destroy_ah`.
pub(super) unsafe extern "C" fn destroy(ah: *mut c::ibv_ah) -> c_int {
    // SAFETY: made by `create`, live, and given up by the caller if this succeeds.
    unsafe { Ah::destroy(ah, c::ibv_cmd_destroy_ah) }
}
