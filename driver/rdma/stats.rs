// SPDX-License-Identifier: GPL-2.0
//! Hardware counters: `hw_counters` in sysfs, `rdma statistic`.

use kernel::str::CStr;

use super::bindings;

/// The name of a counter.
///
/// C: `struct rdma_stat_desc`.
#[repr(transparent)]
pub(crate) struct StatDesc(bindings::rdma_stat_desc);

// SAFETY: read only, and its pointer is to a static string.
unsafe impl Sync for StatDesc {}

// SAFETY: it is read only, and its pointer is to a static string.
unsafe impl Send for StatDesc {}

impl StatDesc {
    /// Creates a counter of this name.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self(bindings::rdma_stat_desc {
            name: name.as_ptr().cast(),
            flags: 0,
            priv_: core::ptr::null(),
        })
    }
}
