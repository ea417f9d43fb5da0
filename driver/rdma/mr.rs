// SPDX-License-Identifier: GPL-2.0
//! Memory regions. These the driver allocates, not the core.

use kernel::{prelude::*, types::Opaque};

use super::bindings;

/// A new region.
pub(crate) struct NewMr<D> {
    /// Key for local access.
    pub(crate) lkey: u32,
    /// Key for the peers.
    pub(crate) rkey: u32,
    /// The driver's part.
    pub(crate) driver: D,
}

/// What a process wants to register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserRegion {
    /// First byte in the process.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// First byte as work requests will name it.
    pub(crate) iova: u64,
    /// Rights (`enum ib_access_flags`); the optional ones may be ignored.
    pub(crate) access: u32,
}

/// A region as it is allocated: the core's struct first.
#[repr(C)]
pub(super) struct Mr<D> {
    core: Opaque<bindings::ib_mr>,
    driver: D,
}

impl<D> Mr<D> {
    /// Allocates a region for the core; [`Self::free`] takes it back. Returns `new` when there is
    /// no memory.
    pub(super) fn allocate(new: NewMr<D>) -> Result<*mut bindings::ib_mr, (Error, NewMr<D>)> {
        let Ok(memory) = KBox::<Self>::new_uninit(GFP_KERNEL) else {
            return Err((ENOMEM, new));
        };
        // SAFETY: a plain C struct, for which zero is a valid value.
        let mut core: bindings::ib_mr = unsafe { core::mem::zeroed() };
        core.lkey = new.lkey;
        core.rkey = new.rkey;
        let mr = KBox::write(memory, Self { core: Opaque::new(core), driver: new.driver });
        Ok(KBox::into_raw(mr).cast())
    }

    /// The driver's part of a region.
    ///
    /// # Safety
    ///
    /// `raw` must come from [`Self::allocate`] and live for `'a`.
    pub(super) unsafe fn driver<'a>(raw: *mut bindings::ib_mr) -> &'a D {
        // SAFETY: by the caller's promise and the layout.
        unsafe { &(*raw.cast::<Self>()).driver }
    }

    /// Frees a region.
    ///
    /// # Safety
    ///
    /// `raw` must come from [`Self::allocate`], and nobody may use it afterwards.
    pub(super) unsafe fn free(raw: *mut bindings::ib_mr) {
        // SAFETY: by the caller's promise.
        drop(unsafe { KBox::from_raw(raw.cast::<Self>()) });
    }
}
