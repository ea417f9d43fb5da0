//! Work requests and their outcomes.

use crate::wire::headers::{AtomicEth, Feth, Imm, Reth};
use crate::wire::numbers::{Rkey, Srqn};
use crate::wire::{Part, Request, SendEnd};

/// Maximum length of a message in bytes (IBTA volume 1, 9.7.7.1).
pub const MESSAGE_MAX: u32 = 1 << 31;

/// Memory of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// The first address.
    pub addr: u64,
    /// The peer's key of the region or window with the memory.
    pub key: Rkey,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// SEND, with the header of its last packet.
    Send(SendEnd),
    /// RDMA WRITE, with or without immediate data.
    Write(Remote, Option<Imm>),
    /// RDMA READ.
    Read(Remote),
    /// Replaces a word of the peer if it has a given value (COMPARE & SWAP).
    CompareSwap {
        /// The place of the 8 bytes.
        word: Remote,
        /// The value that the word must have.
        compare: u64,
        /// The new value of the word.
        swap: u64,
    },
    /// Adds to a word of the peer (FETCH & ADD).
    FetchAdd {
        /// The place of the 8 bytes.
        word: Remote,
        /// The number to add.
        add: u64,
    },
    /// ATOMIC WRITE of 8 bytes.
    AtomicWrite(Remote),
    /// FLUSH of as many bytes of memory as the request is long, which has no data.
    Flush(Feth, Remote),
}

impl Work {
    /// Returns whether the operation has an answer of its own.
    #[must_use]
    pub const fn has_answer(&self) -> bool {
        !matches!(self, Self::Send(_) | Self::Write(..))
    }

    /// Returns whether it is a READ.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        matches!(self, Self::Read(_))
    }

    /// Returns whether its answer is the old value of a word.
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Returns whether its requests have a payload.
    pub(super) const fn has_payload(&self) -> bool {
        matches!(self, Self::Send(_) | Self::Write(..) | Self::AtomicWrite(_))
    }

    /// Returns whether its last packet may ask for a solicited event, because it completes a
    /// receive (rxe_req.c, `init_req_packet`).
    pub(super) const fn completes_a_receive(&self) -> bool {
        matches!(self, Self::Send(_) | Self::Write(_, Some(_)))
    }

    /// Returns the request of the packet at `offset`. `length` is the length of the message, and
    /// `last` is true if no packet follows.
    pub(super) fn request(&self, length: u32, offset: u32, last: bool) -> Request {
        let first = offset == 0;
        match *self {
            Self::Send(end) => Request::Send(Part::new(first.then_some(()), last.then_some(end))),
            Self::Write(Remote { addr, key }, imm) => {
                let reth = Reth { addr, key, length };
                Request::Write(Part::new(first.then_some(reth), last.then_some(imm)))
            }
            Self::Read(Remote { addr, key }) => {
                let addr = addr.wrapping_add(u64::from(offset));
                Request::Read(Reth { addr, key, length: length.saturating_sub(offset) })
            }
            Self::CompareSwap { word: Remote { addr, key }, compare, swap } => {
                Request::CompareSwap(AtomicEth { addr, key, swap_or_add: swap, compare })
            }
            Self::FetchAdd { word: Remote { addr, key }, add } => {
                Request::FetchAdd(AtomicEth { addr, key, swap_or_add: add, compare: 0 })
            }
            Self::AtomicWrite(Remote { addr, key }) => {
                Request::AtomicWrite(Reth { addr, key, length })
            }
            Self::Flush(feth, Remote { addr, key }) => {
                Request::Flush(feth, Reth { addr, key, length })
            }
        }
    }
}

/// A work request of the send queue, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    /// The caller's identifier, which no other work request in the ledger has.
    pub id: u64,
    /// The operation.
    pub work: Work,
    /// Length of the message in bytes; 8 for atomics and ATOMIC WRITEs.
    pub length: u32,
    /// True if it asks for a solicited event at the receiver.
    pub solicited: bool,
    /// True if its success is reported, so that it must be acknowledged soon.
    pub signaled: bool,
    /// True if it starts only after all READs and atomics before it have ended.
    pub fence: bool,
    /// The SRQ for the message, with XRC.
    pub srqn: Srqn,
}

/// The reason for which a work request is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The ledger is full.
    Full,
    /// The message is too long (a FLUSH, which has no data, may have any length), or an atomic or
    /// ATOMIC WRITE does not have 8 bytes.
    Length,
    /// The transport does not have the operation.
    Operation,
    /// The requester has failed.
    Failed,
}

/// The outcome of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The work request was executed.
    Success,
    /// The work request was flushed, because the requester has failed.
    Flushed,
    /// The caller could not read or write its own memory ([`super::Requester::refuse`]).
    Local,
    /// The length of an answer was wrong.
    LocalLength,
    /// An answer did not match the request.
    BadResponse,
    /// NAK "invalid request".
    RemoteInvalidRequest,
    /// NAK "remote access error".
    RemoteAccess,
    /// NAK "remote operational error".
    RemoteOperational,
    /// There was no answer, and no retry is left.
    RetryExceeded,
    /// The responder was not ready, and no retry is left.
    RnrRetryExceeded,
}

/// The end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The caller's identifier of the work request.
    pub id: u64,
    /// The outcome of the work request.
    pub outcome: Outcome,
    /// True if the work request was signaled.
    pub signaled: bool,
}
