// SPDX-License-Identifier: GPL-2.0
//! Hardware counters: `hw_counters` in sysfs, `rdma statistic`.

use kernel::str::CStr;

use crate::bindings;

/// The name of a counter, and whether it is optional.
///
/// C: `struct rdma_stat_desc`.
///
/// # Invariants
///
/// `name` is a static string with a terminator, and `priv_` is null. No code writes to it.
#[repr(transparent)]
pub(crate) struct StatDesc(bindings::rdma_stat_desc);

// SAFETY: by the type's invariants it is only read, and what it points to is static and constant.
unsafe impl Sync for StatDesc {}

// SAFETY: by the type's invariants what it points to is static, and belongs to no thread.
unsafe impl Send for StatDesc {}

impl StatDesc {
    /// Creates a counter of this name.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self::with_flags(name, 0)
    }

    /// Creates a counter of this name that is off until an administrator switches it on. The core
    /// does not show it meanwhile.
    pub(crate) const fn optional(name: &'static CStr) -> Self {
        Self::with_flags(name, bindings::ib_stat_flag_IB_STAT_FLAG_OPTIONAL)
    }

    const fn with_flags(name: &'static CStr, flags: u32) -> Self {
        // INVARIANT: the name is static, and a `CStr` has a terminator.
        Self(bindings::rdma_stat_desc {
            name: name.as_ptr().cast(),
            flags,
            priv_: core::ptr::null(),
        })
    }
}
