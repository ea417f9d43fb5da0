//! The reasons for which guest memory cannot be mapped or accessed.

use thiserror::Error;

/// The reason for which a DMA_MAP or DMA_UNMAP was refused.
#[derive(Debug, Error)]
pub enum MapError {
    /// The range is empty or wraps.
    #[error("DMA range {iova:#x}+{size:#x} is empty or wraps around")]
    BadRange {
        /// First guest address.
        iova: u64,
        /// Length in bytes.
        size: u64,
    },
    /// Part of the range is mapped already.
    #[error("DMA range {iova:#x}+{size:#x} overlaps a range that is already mapped")]
    Overlap {
        /// First guest address.
        iova: u64,
        /// Length in bytes.
        size: u64,
    },
    /// There are too many ranges.
    #[error("the VMM may map at most {limit} separate DMA ranges")]
    TooMany {
        /// The largest number of ranges.
        limit: usize,
    },
    /// There are too many mappings of files.
    #[error("the files of the DMA ranges would need more than {limit} mappings")]
    TooManyFiles {
        /// The largest number of files.
        limit: usize,
    },
    /// The VMM would map more memory than the limit.
    #[error(
        "DMA range {iova:#x}+{size:#x} exceeds the {limit:#x} bytes that a VMM may map (see --guest-memory)"
    )]
    TooMuch {
        /// First guest address.
        iova: u64,
        /// Length in bytes.
        size: u64,
        /// The total limit.
        limit: u64,
    },
    /// The file is on a file system that could delay a worker.
    #[error(
        "the file of DMA range {iova:#x} is neither a memfd nor on tmpfs or hugetlbfs \
         (see --allow-any-file)"
    )]
    NotMemory {
        /// First guest address.
        iova: u64,
    },
    /// The file cannot be shared memory of a guest.
    #[error("the file descriptor of DMA range {iova:#x} is not a shared memory file")]
    NotShared {
        /// First guest address.
        iova: u64,
    },
    /// The file ends before the range does.
    #[error("DMA range {iova:#x}+{size:#x} reaches beyond the end of its file ({len:#x} bytes)")]
    BeyondFile {
        /// First guest address.
        iova: u64,
        /// Length in bytes.
        size: u64,
        /// Length of the file.
        len: u64,
    },
    /// The kernel returned an error.
    #[error("DMA range {iova:#x}+{size:#x} cannot be mapped: {error}")]
    Os {
        /// First guest address.
        iova: u64,
        /// Length in bytes.
        size: u64,
        /// The kernel's error.
        error: std::io::Error,
    },
}

/// An access to guest memory that failed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("guest address {addr:#x} cannot be accessed: {}", why.text())]
pub struct Fault {
    /// The first address that cannot be accessed.
    pub addr: u64,
    /// The reason.
    pub why: FaultKind,
}

/// Reasons of a [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Nothing is mapped there.
    Unmapped,
    /// The VMM gave no file descriptor.
    NoFile,
    /// The file was truncated, or its pages cannot be allocated.
    Lost,
    /// Read-only for the device.
    ReadOnly,
    /// Write-only for the device.
    WriteOnly,
    /// An atomic on an unaligned address.
    Unaligned,
    /// The bus-master bit of the command register is clear.
    NotBusMaster,
}

impl FaultKind {
    /// Returns the text for logs.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Unmapped => "the VMM has not mapped it",
            Self::NoFile => {
                "the VMM mapped it without a file descriptor \
                 (guest RAM needs memory-backend-memfd,share=on)"
            }
            Self::Lost => {
                "its memory is lost: the file was truncated, or the system ran out of pages"
            }
            Self::ReadOnly => "it is read-only for the device",
            Self::WriteOnly => "it is write-only for the device",
            Self::Unaligned => "it is not aligned for an atomic access",
            Self::NotBusMaster => "bus mastering is off",
        }
    }
}

impl Fault {
    /// Returns the fault for an address that is not mapped.
    #[must_use]
    pub const fn unmapped(addr: u64) -> Self {
        Self { addr, why: FaultKind::Unmapped }
    }
}

/// The side of a copy that failed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum CopyFault {
    /// The memory read.
    #[error("the source cannot be read: {0}")]
    Source(Fault),
    /// The memory written.
    #[error("the target cannot be written: {0}")]
    Target(Fault),
}
