//! Work requests and their outcomes.

use crate::wire::ddp::Tagged;
use crate::wire::rdmap::{AtomicOp, SendKind};

/// The longest message, in octets: the size of a READ has 32 bits, and verbs have this limit.
pub const MESSAGE_MAX: u32 = 1 << 31;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// SEND.
    Send(SendKind),
    /// RDMA WRITE.
    Write(Tagged),
    /// RDMA WRITE with immediate data: on the wire two messages (RFC 7306, section 6).
    WriteImmediate(Tagged, [u8; 4]),
    /// RDMA READ.
    Read {
        /// The place that the responses name. It has to be unlike those of other READs that are
        /// outstanding, and it need not be a key: responses are checked against the request.
        sink: Tagged,
        /// The place at the peer.
        source: Tagged,
    },
    /// An atomic on a word of the peer.
    Atomic(Tagged, AtomicOp),
}

impl Work {
    /// Whether the operation has an answer of its own.
    #[must_use]
    pub const fn has_answer(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Atomic(..))
    }

    /// Whether RFC 7306 brought it.
    #[must_use]
    pub const fn is_extension(&self) -> bool {
        matches!(self, Self::WriteImmediate(..) | Self::Atomic(..))
    }
}

/// A work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    /// The caller's name for it, unique among those that are not completed.
    pub id: u64,
    /// The operation.
    pub work: Work,
    /// Octets of the message; of atomics 8.
    pub length: u32,
    /// Its success is reported.
    pub signaled: bool,
    /// It starts only when all READs and atomics before it have ended.
    pub fence: bool,
}

/// The reason for which a work request is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The queue is full.
    Full,
    /// The message is too long, or not 8 octets for an atomic.
    Length,
    /// The operation is not configured, or no READ may be outstanding.
    Operation,
    /// The stream closes, or has ended.
    Closed,
}

/// The outcome of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was executed.
    Success,
    /// The stream has ended before.
    Flushed,
    /// Its own memory could not be read or written.
    Local,
    /// The response was not one to the request.
    BadResponse,
    /// The peer refused the access to its memory.
    RemoteAccess,
    /// The peer had no receive for it.
    RnrRetryExceeded,
    /// The peer took it for an invalid request.
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
    /// Its outcome.
    pub outcome: Outcome,
    /// As the work request says.
    pub signaled: bool,
}
