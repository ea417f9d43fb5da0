//! The caller's tasks for packets, and their results.

use super::held::Slot;
use crate::wire::headers::{AtomicEth, Imm, Reth};
use crate::wire::numbers::Srqn;
use crate::wire::{Nak, SendEnd};

/// The caller's task for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It must be executed. [`super::Responder::end`] must be called before any other packet is
    /// processed.
    Execute(Arrival),
    /// An earlier packet is missing. The caller may store the bytes in this slot, and passes them
    /// again when [`super::Responder::next_held`] returns the slot. Bytes that it does not store
    /// are lost.
    Keep(Slot),
    /// It was executed before. An answer is pending.
    Duplicate,
    /// It violates the protocol. The connection has failed, and a NAK is pending.
    Refused(Nak),
}

/// A request, or one packet of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The operation.
    pub work: Arriving,
    /// Number of bytes of the message before this packet.
    pub at: u32,
    /// Number of bytes of the message in this packet.
    pub bytes: u32,
    /// True if it asks for a solicited event.
    pub solicited: bool,
    /// The number of the message among all that this responder has begun. It identifies the message
    /// to keys that are valid for one message.
    pub number: u64,
    /// The SRQ for the message, with XRC.
    pub srqn: Srqn,
}

/// An operation of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arriving {
    /// Bytes for the next receive, or for the one that the message is filling. The length of the
    /// message is known with its last packet, which has `Some`.
    Send(Option<SendEnd>),
    /// Bytes for memory, whose total length is known. The last packet has `Some`.
    Write(Reth, Option<Option<Imm>>),
    /// Memory to read. It is checked now, and read when the answers are sent.
    Read(Reth),
    /// A word to exchange.
    CompareSwap(AtomicEth),
    /// A word to add to.
    FetchAdd(AtomicEth),
}

/// The result of the execution of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The bytes have been placed, or may be read.
    Executed,
    /// The atomic has been executed. This was the old value of its word.
    Old(u64),
    /// There is no receive. Nothing was done, and the packet must be sent again.
    NotReady,
    /// The operation is not enabled for the QP, or the receive is too short.
    Invalid,
    /// The key does not allow the access.
    Access,
    /// The QP's own queue or memory is faulty.
    Operational,
}
