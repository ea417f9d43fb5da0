//! A range of guest memory, as a VMM maps it.

use std::fs::File;

/// A range to map.
#[derive(Debug)]
pub struct DmaRange {
    /// First guest address.
    pub iova: u64,
    /// Length in bytes.
    pub size: u64,
    /// True if the device may read.
    pub readable: bool,
    /// True if the device may write.
    pub writable: bool,
    /// Offset in `file`.
    pub offset: u64,
    /// The memory. A range without memory (a ROM, or a BAR of another device) cannot be accessed.
    pub file: Option<File>,
}
