//! The memory of the two ends, as the caller reaches it.
//!
//! A segment passes [`Memory::place`] or [`Memory::place_ahead`], once with success. The last one
//! of a message then passes [`Memory::end`], when the stream has no gap before its end. These are
//! the responder's primitives of the adapter: `place` is its `begin` with the copy, `end` is its
//! `end`.

use crate::tcp::{Gone, StreamPos};
use crate::wire::ddp::{Stag, Tagged};
use crate::wire::rdmap::{AtomicOp, IMMEDIATE};

/// An operation of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// SEND; with invalidate, of this STag.
    Send(Option<Stag>),
    /// RDMA WRITE to the place of this segment's first octet.
    Write(Tagged),
    /// RDMA READ of this place.
    Read(Tagged),
    /// An atomic on this word.
    Atomic(Tagged, AtomicOp),
    /// Immediate data, which takes a receive of its own.
    Immediate([u8; IMMEDIATE]),
}

/// A segment of a message of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// The operation.
    pub operation: Operation,
    /// Octets of the message that came earlier.
    pub at: u32,
    /// Octets of this segment; of a READ, the octets that are to be read.
    pub len: u32,
    /// No segment of the message follows.
    pub last: bool,
    /// It asks for a solicited event.
    pub solicited: bool,
    /// The number of the message among all that have begun, by which keys that are good for one
    /// message know it.
    pub number: u64,
    /// The position behind the segment in the stream.
    pub end: StreamPos,
}

/// Memory that a READ of the peer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSource {
    /// The place.
    pub at: Tagged,
    /// Its octets.
    pub len: u32,
    /// The number of the message, as in [`Inbound::number`].
    pub number: u64,
}

/// The reason for which an operation of the peer is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No receive is posted. The segment waits, and comes again.
    NotReady,
    /// The operation is not enabled for the QP.
    Disabled,
    /// The STag names nothing that is valid.
    Invalid,
    /// The STag belongs to another protection domain, or to another stream.
    Foreign,
    /// The range leaves the buffer.
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

/// The place of a segment that is ahead of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Octets of a WRITE.
    Write(Tagged),
    /// Octets of a SEND.
    Send {
        /// Its receive, counted from that of the oldest SEND that has not ended, which is 0.
        receive: u32,
        /// Octets of the message before them.
        at: u32,
    },
}

/// A segment ahead of its turn: octets of the stream before it are missing. Messages may begin in
/// these, so the number that its message will have is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Early {
    /// The place of its first octet.
    pub destination: Destination,
    /// No segment of the message follows.
    pub last: bool,
    /// The position behind the segment in the stream.
    pub end: StreamPos,
}

/// The state of a message whose last segment has been placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is complete.
    Now,
    /// The caller has to wait before it completes it, for uses of a key that has ended. Nothing is
    /// delivered until the caller resumes the connection.
    Later,
}

/// The memory of the two ends.
pub trait Memory {
    /// Copies octets of a work request's message, from `at` on.
    ///
    /// # Errors
    /// [`Gone`] if they cannot be read.
    fn read(&mut self, work: u64, at: u32, into: &mut [u8]) -> Result<(), Gone>;

    /// Writes octets of the answer of a READ or atomic into the memory of its work request. The old
    /// value of an atomic is a number of 64 bits in the order of this machine.
    ///
    /// # Errors
    /// [`Gone`] if they cannot be written.
    fn store(&mut self, work: u64, at: u32, octets: &[u8]) -> Result<(), Gone>;

    /// Copies octets for the answer of the peer's READ, from `at` on. The STag is checked again.
    ///
    /// # Errors
    /// [`Gone`] if they cannot be read any more.
    fn read_source(&mut self, source: &ReadSource, at: u32, into: &mut [u8]) -> Result<(), Gone>;

    /// The peer has acknowledged the answer of its READ, so it is not read again: a key that is
    /// good for one message ends.
    fn answered(&mut self, source: &ReadSource) {
        let _ = source;
    }

    /// Checks a segment and places its octets; of a READ it checks the memory alone.
    ///
    /// # Errors
    /// The reason for which nothing was placed.
    fn place(&mut self, inbound: &Inbound, octets: &[u8]) -> Result<(), Refused>;

    /// Checks a segment ahead of its turn, and places its octets. Nothing else happens before
    /// [`Self::end`], which tells the message's number and the same [`Early::end`]. A SEND needs
    /// the receive that it names, and all before that one; from then on they belong to this
    /// stream. A key that is good for one message ends with the position of its last segment:
    /// until then no other last segment may name it.
    ///
    /// Returns whether it has been placed. If not, nothing has changed, and the segment passes
    /// [`Self::place`] in its turn, where a fault is reported.
    fn place_ahead(&mut self, early: &Early, octets: &[u8]) -> bool {
        let _ = (early, octets);
        false
    }

    /// Ends a message whose segments have all been placed.
    ///
    /// # Errors
    /// When an STag may not be invalidated, or the receive cannot be completed.
    fn end(&mut self, inbound: &Inbound) -> Result<Ended, Refused>;

    /// Whether the turn of the caller is over. Octets that are acknowledged already wait for the
    /// next one then.
    fn is_over(&self) -> bool {
        false
    }

    /// Executes an atomic; returns the old value of the word.
    ///
    /// # Errors
    /// The reason for which it was not executed.
    fn atomic(&mut self, inbound: &Inbound) -> Result<u64, Refused>;
}
