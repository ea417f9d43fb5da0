// SPDX-License-Identifier: GPL-2.0
//! The permission that the file of faults demands.

use kernel::prelude::*;

use crate::bindings;

/// Checks that the calling process has CAP_SYS_ADMIN.
///
/// # Errors
///
/// `EPERM` if it has not.
pub(super) fn check() -> Result {
    // CAST: a small number.
    // SAFETY: A plain call, which looks at the credentials of the calling process.
    if unsafe { bindings::capable(bindings::CAP_SYS_ADMIN as i32) } { Ok(()) } else { Err(EPERM) }
}
