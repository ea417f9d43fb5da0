//! Why the table refuses.

use vrnic_abi::cq::Status;

/// The check that failed; the order is that of the checks, the numbers are those of
/// docs/adapter.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The key names nothing that is valid.
    Invalid = 1,
    /// The entry is of a kind that is not for this.
    Kind = 2,
    /// The entry belongs to another PD, or another QP.
    Foreign = 3,
    /// The key is of another instance.
    Stale = 4,
    /// The range leaves the entry or wraps.
    Bounds = 5,
    /// The entry does not grant the right.
    Rights = 6,
    /// Another message has touched the entry, which is good for one.
    Touched = 7,
    /// The guest's memory is not there.
    Memory = 8,
    /// The region lets no window be bound.
    NotBindable = 9,
    /// The entry is valid, or has windows, and may not be.
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
}

impl Denied {
    /// The status at the requester when the segment was the responder's.
    #[must_use]
    pub const fn remote_status(self) -> Status {
        match self {
            Self::Memory => Status::RemOpErr,
            _ => Status::RemAccessErr,
        }
    }
}
