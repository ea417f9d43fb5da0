// SPDX-License-Identifier: GPL-2.0
//! Regions of the memory of a process.

use core::ptr::NonNull;

use kernel::{error::from_err_ptr, prelude::*, sync::Arc};

use crate::bindings;
use crate::pd::Pd;

/// A region of memory of the calling process, for use only by the device.
///
/// # Invariants
///
/// `mr` is a region in `pd` that this type owns.
pub struct UserMemory {
    mr: NonNull<bindings::ib_mr>,
    pd: Arc<Pd>,
}

impl UserMemory {
    /// Registers `length` bytes at `address` of the calling process, for reading.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the caller is a kernel thread; otherwise the errors of the driver.
    pub fn new(pd: &Arc<Pd>, address: u64, length: u64) -> Result<Self> {
        // SAFETY: the domain is alive; the callee checks the memory.
        let mr = unsafe { bindings::ib_reg_user_mr(pd.as_raw(), address, length, address, 0) };
        let mr = NonNull::new(from_err_ptr(mr)?).ok_or(ENOMEM)?;
        // INVARIANT: the region was made just now, for this caller.
        Ok(Self { mr, pd: pd.clone() })
    }
}

impl Drop for UserMemory {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants the region is this type's own, and is not used any more.
        let status = unsafe { bindings::ib_dereg_mr_user(self.mr.as_ptr(), core::ptr::null_mut()) };
        if status != 0 {
            pr_err!("memory of a process could not be deregistered: {status}\n");
            // The region is there still, and with it its domain.
            core::mem::forget(self.pd.clone());
        }
    }
}
