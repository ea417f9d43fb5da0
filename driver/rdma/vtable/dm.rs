// SPDX-License-Identifier: GPL-2.0
//! Trampolines of device memory.

use super::*;
use crate::rdma::memory::dm::{Dm, DmRegion, DmRequest};

impl<T: Operations> VTable<T> {
    /// The operations of this file.
    pub(super) const DEVICE_MEMORY: bindings::ib_device_ops = bindings::ib_device_ops {
        alloc_dm: optional!(HAS_ALLOC_DM => alloc_dm),
        dealloc_dm: optional!(HAS_ALLOC_DM => dealloc_dm),
        reg_dm_mr: optional!(HAS_ALLOC_DM => reg_dm_mr),
        ..EMPTY
    };

    unsafe extern "C" fn alloc_dm(
        _device: *mut bindings::ib_device,
        context: *mut bindings::ib_ucontext,
        attr: *mut bindings::ib_dm_alloc_attr,
        bundle: *mut bindings::uverbs_attr_bundle,
    ) -> *mut bindings::ib_dm {
        // SAFETY: the core passes a struct of its own.
        let attr = unsafe { &*attr };
        let request = DmRequest {
            length: attr.length,
            log_alignment: attr.alignment,
            // SAFETY: the bundle belongs to the method that allocates device memory.
            handle: unsafe { bindings::rdma_helper_dm_handle(bundle) },
        };
        // SAFETY: the core passes a context that `alloc_ucontext` has set up.
        let made = unsafe {
            Self::on(context, |data, _, context| {
                Dm::allocate(|| T::alloc_dm(data, context, &request))
            })
        };
        made.unwrap_or_else(|error| error.to_ptr())
    }

    unsafe extern "C" fn dealloc_dm(
        dm: *mut bindings::ib_dm,
        _bundle: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        // SAFETY: the core passes what `alloc_dm` has made, and has set its user object.
        let object = unsafe { (*dm).uobject };
        // SAFETY: the user object lives as long as the device memory, and knows its context.
        let context = unsafe { (*object).context };
        // SAFETY: the context is one that `alloc_ucontext` has set up, and outlives its objects.
        let context = unsafe { Ucontext::<T>::from_raw(context) };
        // SAFETY: the core passes what `alloc_dm` has made, and forgets it.
        unsafe {
            Self::destroy(dm, |data, dm: &Dm<T::Dm>| {
                T::dealloc_dm(data, context, dm);
                Ok(())
            })
        }
    }

    unsafe extern "C" fn reg_dm_mr(
        pd: *mut bindings::ib_pd,
        dm: *mut bindings::ib_dm,
        attr: *mut bindings::ib_dm_mr_attr,
        _bundle: *mut bindings::uverbs_attr_bundle,
    ) -> *mut bindings::ib_mr {
        // SAFETY: the core passes what `alloc_dm` has made, which outlives its regions.
        let dm = unsafe { Dm::<T::Dm>::from_raw(dm) };
        // SAFETY: the core passes a struct of its own.
        let attr = unsafe { &*attr };
        let region =
            DmRegion { offset: attr.offset, length: attr.length, access: attr.access_flags };
        // SAFETY: this is an operation, with the domain that the core has passed.
        unsafe { Self::allocate(pd, |data, _, pd| T::reg_dm_mr(data, pd, dm, &region)) }
    }
}
