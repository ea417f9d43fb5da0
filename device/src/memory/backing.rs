//! A mapping that ranges share, and what the mappings of a VMM use of its limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::mapping::Mapping;

/// A mapping of a file. It is unmapped when the last range in it is gone.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) mapping: Mapping,
    /// Offset of its first byte in the file.
    pub(super) offset: u64,
    /// Declared last, so that its part of the limits is free only when the memory is unmapped.
    _charge: Charge,
}

impl Backing {
    /// Shares a mapping of a file from `offset` on, and counts it in `usage` until it ends.
    pub(super) fn new(mapping: Mapping, offset: u64, usage: &Arc<Usage>) -> Self {
        let charge = Charge { usage: Arc::clone(usage), bytes: mapping.len() as u64 };
        usage.mappings.fetch_add(1, Ordering::Relaxed);
        usage.bytes.fetch_add(charge.bytes, Ordering::Relaxed);
        Self { mapping, offset, _charge: charge }
    }
}

/// What the mappings of a VMM use of its limits.
#[derive(Debug, Default)]
pub(super) struct Usage {
    mappings: AtomicUsize,
    bytes: AtomicU64,
}

impl Usage {
    /// Returns the number of mappings.
    pub(super) fn mappings(&self) -> usize {
        self.mappings.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes in them.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// What one mapping uses, returned on drop.
#[derive(Debug)]
struct Charge {
    usage: Arc<Usage>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.usage.mappings.fetch_sub(1, Ordering::Relaxed);
        self.usage.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
