// SPDX-License-Identifier: GPL-2.0
//! Regions of all of the machine's memory.

use core::ptr::NonNull;

use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::Arc,
};

use crate::bindings;
use crate::pd::Pd;

/// A region of all of the machine's memory, by the driver's own operation: its key allows what no
/// domain's does.
///
/// # Invariants
///
/// `mr`, if there is one, is a region in `pd` that this type owns.
pub struct AllMemory {
    mr: Option<NonNull<bindings::ib_mr>>,
    rkey: u32,
    pd: Arc<Pd>,
}

// SAFETY: the core allows a region to be deregistered by any thread.
unsafe impl Send for AllMemory {}

impl AllMemory {
    /// Makes one with `access` (`enum ib_access_flags`).
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the driver has no such regions.
    ///
    /// # Safety
    ///
    /// With rights of peers, no peer may be given the key as long as the region exists, and no
    /// [`Remote`](crate::remote::Remote) be made of its number: the memory that such a request
    /// reaches may belong to anybody, and keys can be guessed.
    pub unsafe fn new(pd: &Arc<Pd>, access: u32) -> Result<Self> {
        let device = pd.device().as_raw().as_ptr();
        let access = i32::try_from(access)?;
        // SAFETY: the device is registered, as the domain keeps it, and its operations do not
        // change.
        let make = unsafe { (*device).ops.get_dma_mr }.ok_or(EOPNOTSUPP)?;
        // SAFETY: the domain is alive, and one of the device whose operation this is.
        let mr = from_err_ptr(unsafe { make(pd.as_raw(), access) })?;
        let mr = NonNull::new(mr).ok_or(ENOMEM)?;
        // SAFETY: the region was made just now, only for this caller.
        let region = unsafe { &mut *mr.as_ptr() };
        // The core fills these fields of regions of this kind likewise.
        (region.device, region.pd) = (device, pd.as_raw());
        // INVARIANT: the region was made above.
        Ok(Self { mr: Some(mr), rkey: region.rkey, pd: pd.clone() })
    }

    /// Returns the protection domain of the region.
    pub(crate) fn pd(&self) -> &Pd {
        &self.pd
    }

    /// Returns its key for peers.
    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Deregisters the region.
    pub fn end(mut self) -> Result {
        self.deregister()
    }

    fn deregister(&mut self) -> Result {
        let Some(mr) = self.mr.take() else { return Ok(()) };
        let device = self.pd.device().as_raw().as_ptr();
        // SAFETY: the device is registered, as the domain keeps it, and its operations do not
        // change.
        let end = unsafe { (*device).ops.dereg_mr }.ok_or(EOPNOTSUPP)?;
        // SAFETY: by the type's invariants the region is this type's own; `take` has left none, so
        // it is not used afterwards.
        to_result(unsafe { end(mr.as_ptr(), core::ptr::null_mut()) }).inspect_err(|_| {
            // The region is there still, and with it its domain.
            core::mem::forget(self.pd.clone());
        })
    }
}

impl Drop for AllMemory {
    fn drop(&mut self) {
        if let Err(error) = self.deregister() {
            pr_err!("a region of all memory could not be deregistered: {error:?}\n");
        }
    }
}
