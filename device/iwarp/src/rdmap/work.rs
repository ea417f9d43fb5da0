//! Work requests and their outcomes.

use crate::wire::ddp::Tagged;
use crate::wire::rdmap::{AtomicOp, SendKind};

/// Maximum length of a message in octets. It is a limit of verbs; the size of a READ has 32 bits.
pub const MESSAGE_MAX: u32 = 1 << 31;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A SEND, with or without invalidation.
    Send(SendKind),
    /// RDMA WRITE.
    Write(Tagged),
    /// RDMA WRITE with immediate data, which is two messages on the wire (RFC 7306, section 6).
    WriteImmediate(Tagged, Immediate),
    /// RDMA READ.
    Read {
        /// The destination that the responses name. It must differ from the destinations of other
        /// outstanding READs. It need not be a valid key, because responses are checked against the
        /// request.
        sink: Tagged,
        /// The source at the peer.
        source: Tagged,
    },
    /// An atomic on a word of the peer.
    Atomic(Tagged, AtomicOp),
}

/// Immediate data of a work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Immediate {
    /// The first octets of those on the wire. The others are zero.
    pub data: [u8; 4],
    /// True if it asks for a solicited event.
    pub solicited: bool,
}

impl Work {
    /// Returns whether the peer answers the operation.
    #[must_use]
    pub const fn has_answer(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Atomic(..))
    }

    /// Returns whether it is an operation of RFC 7306.
    #[must_use]
    pub const fn is_extension(&self) -> bool {
        matches!(self, Self::WriteImmediate(..) | Self::Atomic(..))
    }
}

/// A message that the caller wants to send, without its octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    /// The caller's name for it, unique among the work requests that are not completed.
    pub id: u64,
    /// The operation.
    pub work: Work,
    /// Length of the message in octets; 8 for atomics.
    pub length: u32,
    /// True if its success is reported.
    pub signaled: bool,
    /// True if it starts only after all READs and atomics before it have ended.
    pub fence: bool,
}

/// The reason for which a work request is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The queue is full.
    Full,
    /// The message is too long, or an atomic does not have 8 octets.
    Length,
    /// The operation is not configured, or no READ may be outstanding.
    Operation,
    /// The stream is closing or has ended.
    Closed,
}

/// The outcome of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The work request was executed.
    Success,
    /// The stream ended before it was executed.
    Flushed,
    /// The work request's own memory could not be read or written.
    Local,
    /// The response did not match the request.
    BadResponse,
    /// The peer refused the access to its memory.
    RemoteAccess,
    /// The peer had no receive for it.
    RnrRetryExceeded,
    /// The peer rejected it as an invalid request.
    RemoteInvalidRequest,
    /// The peer could not execute it.
    RemoteOperational,
    /// The peer ended the stream for another reason.
    Fatal,
}

/// The end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The caller's name for it.
    pub id: u64,
    /// The outcome of the work request.
    pub outcome: Outcome,
    /// True if the work request was signaled.
    pub signaled: bool,
}
