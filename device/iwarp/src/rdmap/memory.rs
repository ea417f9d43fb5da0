//! The interface to the memory of the two ends.
//!
//! Each segment is passed to [`Memory::place`] or [`Memory::place_ahead`] until one call succeeds.
//! [`Memory::end`] is then called for the last segment of a message, when all octets before its end
//! have arrived. In the adapter's responder, `place` is its `find` with the copy, and `end` is its
//! `end`.

use crate::tcp::{StreamPos, Undone};
use crate::wire::ddp::{Stag, Tagged};
use crate::wire::rdmap::{AtomicOp, IMMEDIATE};

/// An operation of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// SEND. With an STag, it invalidates this STag.
    Send(Option<Stag>),
    /// RDMA WRITE. The address is the destination of this segment's first octet.
    Write(Tagged),
    /// RDMA READ of this address.
    Read(Tagged),
    /// An atomic on this word.
    Atomic(Tagged, AtomicOp),
    /// Immediate data, which consumes a receive of its own. [`Inbound::len`] is the length of the
    /// WRITE before it.
    Immediate([u8; IMMEDIATE]),
}

/// A segment of a message of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// What the message does at this end.
    pub operation: Operation,
    /// Number of octets of the message before this segment.
    pub at: u32,
    /// Number of octets of this segment. For a READ, the number of octets to read.
    pub len: u32,
    /// True if it is the last segment of the message.
    pub last: bool,
    /// True if it asks for a solicited event.
    pub solicited: bool,
    /// The number of the message among all that have begun. It identifies the message to keys that
    /// are valid for one message.
    pub number: u64,
    /// The position after the segment in the stream.
    pub end: StreamPos,
}

/// Memory that a READ of the peer refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSource {
    /// The address of the source.
    pub at: Tagged,
    /// The number of octets to read.
    pub len: u32,
    /// The number of the message, as in [`Inbound::number`].
    pub number: u64,
}

/// The reason for which an operation of the peer is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No receive is posted. The segment waits, and is passed again.
    NotReady,
    /// Octets of the message are on their way to the memory, or wait for room. The segment waits,
    /// and is passed again.
    Later,
    /// The operation is not enabled for the QP.
    Disabled,
    /// The STag does not refer to anything valid.
    Invalid,
    /// The STag belongs to another protection domain, or to another stream.
    Foreign,
    /// The range exceeds the buffer.
    Bounds,
    /// The range wraps around the end of the address space.
    Wrap,
    /// The STag does not grant the right, or another message has used it up.
    Rights,
    /// The word of an atomic is not at a multiple of eight.
    Unaligned,
    /// The message is longer than its receive.
    TooLong,
    /// The STag cannot be invalidated.
    NotInvalidated,
    /// The memory, or the queue of the QP itself, is faulty.
    Gone,
}

/// The destination of a segment that has arrived out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Octets of a WRITE.
    Write(Tagged),
    /// Octets of a SEND.
    Send {
        /// The index of its receive. The receive of the oldest SEND that has not ended has index 0.
        receive: u32,
        /// Number of octets of the message before them.
        at: u32,
    },
}

/// A segment that has arrived out of order: octets of the stream before it are missing. Messages
/// may begin in these octets, so the number of its message is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Early {
    /// The destination of its first octet.
    pub destination: Destination,
    /// True if it is the last segment of its message.
    pub last: bool,
    /// The position after the segment in the stream.
    pub end: StreamPos,
}

/// The state of a message whose last segment has been placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The message is complete.
    Now,
    /// The caller must wait for uses of an invalidated key before it completes the message. Nothing
    /// is delivered until the caller resumes the connection.
    Later,
}

/// The memory of the two ends.
pub trait Memory {
    /// Copies octets of a work request's message, from `at` on.
    ///
    /// # Errors
    /// [`Undone::Gone`] if they cannot be read, [`Undone::Later`] if they cannot be read yet.
    fn read(&mut self, work: u64, at: u32, into: &mut [u8]) -> Result<(), Undone>;

    /// Writes octets of the answer of a READ or atomic into the memory of its work request. The old
    /// value of an atomic is a 64-bit number in native byte order.
    ///
    /// # Errors
    /// [`Undone::Gone`] if they cannot be written. [`Undone::Later`] if the segment waits, and is
    /// passed again.
    fn store(&mut self, work: u64, at: u32, octets: &[u8]) -> Result<(), Undone>;

    /// Writes octets as [`Self::store`] does that have arrived before octets in front of them.
    /// Returns whether they have been written. If not, they are passed to [`Self::store`] in order.
    fn store_ahead(&mut self, work: u64, at: u32, octets: &[u8]) -> bool {
        self.store(work, at, octets).is_ok()
    }

    /// Copies octets for the answer of the peer's READ, from `at` on. The STag is checked again.
    ///
    /// # Errors
    /// [`Undone::Gone`] if they cannot be read any more, [`Undone::Later`] if they cannot be read
    /// yet.
    fn read_source(&mut self, source: &ReadSource, at: u32, into: &mut [u8]) -> Result<(), Undone>;

    /// Reports that the peer has acknowledged the answer of its READ. The memory is not read again,
    /// and a key that is valid for one message ends.
    fn answered(&mut self, source: &ReadSource) {
        let _ = source;
    }

    /// Checks a segment and places its octets. For a READ, it only checks the memory.
    ///
    /// # Errors
    /// The reason for which nothing was placed.
    fn place(&mut self, inbound: &Inbound, octets: &[u8]) -> Result<(), Refused>;

    /// Checks a segment that has arrived out of order, and places its octets. It has no other
    /// effect before [`Self::end`], which gets the message's number and the same [`Early::end`]. A
    /// SEND needs the receive that it refers to and all before that one, which belong to this
    /// stream from then on. A key that is valid for one message is bound to the position of the
    /// message's last segment. Until the stream reaches that position, no other last segment may
    /// use the key. A last segment of a WRITE without octets has the address of the segment in
    /// front of it.
    ///
    /// Returns whether the octets have been placed. If not, nothing has changed, and the segment is
    /// passed to [`Self::place`] in order, which reports any error.
    fn place_ahead(&mut self, early: &Early, octets: &[u8]) -> bool {
        let _ = (early, octets);
        false
    }

    /// Returns whether octets of the message with this number are on their way to the memory. Its
    /// last segment, if it has no octets, then waits and is passed again.
    fn is_moving(&self, number: u64) -> bool {
        let _ = number;
        false
    }

    /// Ends a message whose segments have all been placed.
    ///
    /// # Errors
    /// An STag must not be invalidated, or the receive cannot be completed.
    fn end(&mut self, inbound: &Inbound) -> Result<Ended, Refused>;

    /// Returns whether the turn of the caller is over. Further octets then wait for the next turn.
    /// The stream calls it after each FPDU.
    fn is_over(&self) -> bool {
        false
    }

    /// Executes an atomic. Returns the old value of the word.
    ///
    /// # Errors
    /// The reason for which it was not executed.
    fn atomic(&mut self, inbound: &Inbound) -> Result<u64, Refused>;
}
