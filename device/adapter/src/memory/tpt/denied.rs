//! Reasons for which the table denies an access.

use vrnic_abi::cq::Status;

use crate::memory::pages::PagesError;

/// The check that failed. The variants have the order in which the table makes the checks, and the
/// numbers that docs/adapter.md lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// No valid entry has this index.
    Invalid = 1,
    /// The kind of the entry does not allow this.
    Kind = 2,
    /// The entry belongs to another PD, another QP or another function.
    Foreign = 3,
    /// The key has the index of the entry, but another instance.
    Stale = 4,
    /// The range exceeds the entry or wraps around.
    Bounds = 5,
    /// The entry does not grant the right.
    Rights = 6,
    /// The entry is valid for one message, and another message has used it.
    Touched = 7,
    /// The guest's memory is not accessible.
    Memory = 8,
    /// The region does not allow windows.
    NotBindable = 9,
    /// The entry is valid, or has windows bound, and must not for this operation.
    InUse = 10,
    /// The table is full.
    Full = 11,
    /// The controller has moved bytes beyond the length of a transfer.
    Overrun = 12,
    /// The controller has not moved all bytes of a transfer in time.
    Short = 13,
    /// The controller has read data that was not there yet.
    Early = 14,
    /// The driver has ended the transfer.
    Ended = 15,
    /// Pages of the region are absent, and have been requested. The access is tried again.
    Absent = 16,
}

impl From<PagesError> for Denied {
    fn from(error: PagesError) -> Self {
        match error {
            PagesError::Unreachable(_) => Self::Memory,
            PagesError::Malformed | PagesError::TooMany => Self::Bounds,
        }
    }
}

impl Denied {
    /// Returns the status at the requester if the segment belonged to the responder.
    #[must_use]
    pub const fn remote_status(self) -> Status {
        match self {
            Self::Memory => Status::RemOpErr,
            _ => Status::RemAccessErr,
        }
    }
}
