// SPDX-License-Identifier: GPL-2.0
//! Hardware counters: `hw_counters` in sysfs, `rdma statistic`.

use kernel::str::CStr;

use super::bindings;

/// The name of a counter.
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
        // INVARIANT: the name is static, and a `CStr` has a terminator.
        Self(bindings::rdma_stat_desc {
            name: name.as_ptr().cast(),
            flags: 0,
            priv_: core::ptr::null(),
        })
    }
}
