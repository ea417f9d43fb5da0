// SPDX-License-Identifier: GPL-2.0
//! Trampolines of XRC domains.

use super::*;
use crate::rdma::queues::xrcd::Xrcd;

impl<T: Operations> VTable<T> {
    /// The operations of this file.
    pub(super) const XRCD: bindings::ib_device_ops = bindings::ib_device_ops {
        size_ib_xrcd: Xrcd::<T>::SIZE,
        alloc_xrcd: optional!(HAS_ALLOC_XRCD => alloc_xrcd),
        dealloc_xrcd: optional!(HAS_ALLOC_XRCD => dealloc_xrcd),
        ..EMPTY
    };

    unsafe extern "C" fn alloc_xrcd(
        xrcd: *mut bindings::ib_xrcd,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes the payload of the command, or null.
            unsafe { Udata::expect_none(udata) }?;
            // SAFETY: the core calls this as an operation of the domain's device.
            let driver = unsafe { Self::with_device_of(xrcd, |_, data| T::alloc_xrcd(data)) }?;
            // SAFETY: the core has allocated the domain with the size in the table, and only this
            // call knows it.
            unsafe { Object::init(xrcd, driver) };
            Ok(0)
        })
    }

    unsafe extern "C" fn dealloc_xrcd(
        xrcd: *mut bindings::ib_xrcd,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: this destroys a domain that `alloc_xrcd` has set up.
        unsafe { Self::destroy(xrcd, T::dealloc_xrcd) }
    }
}
