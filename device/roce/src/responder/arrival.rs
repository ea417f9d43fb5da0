//! Tasks of the caller of a responder, and their results.

use super::held::Slot;
use crate::wire::headers::{AtomicEth, Imm, Reth};
use crate::wire::numbers::Srqn;
use crate::wire::{Nak, SendEnd};

/// The task of the caller for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has to be executed; [`super::Responder::end`] is due then, before any other packet.
    Execute(Arrival),
    /// A packet before it is missing. The caller may keep its bytes in this slot, and has to offer
    /// them again when [`super::Responder::next_held`] asks for them. What it does not keep is
    /// lost.
    Keep(Slot),
    /// It was executed before; an answer is due.
    Duplicate,
    /// It breaks the rules. The connection has failed; a NAK is due.
    Refused(Nak),
}

/// A request, or one packet of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The operation.
    pub work: Arriving,
    /// Bytes of the message that came earlier.
    pub at: u32,
    /// Bytes of it in this packet.
    pub bytes: u32,
    /// Asks for a solicited event.
    pub solicited: bool,
    /// The number of the message among all that this responder has begun, by which keys that are
    /// good for one message know it.
    pub number: u64,
    /// XRC: the SRQ that the message is for.
    pub srqn: Srqn,
}

/// An operation of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arriving {
    /// Bytes for the next receive, or for the one that the message is filling. The length of the
    /// message is known with its last packet, which brings its end.
    Send(Option<SendEnd>),
    /// Bytes for memory, whose whole length is known. The last packet brings `Some`.
    Write(Reth, Option<Option<Imm>>),
    /// Memory to read: it is checked now, and read when the answers are sent.
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
    /// The atomic has been executed; its word had this value.
    Old(u64),
    /// There is no receive: nothing was done, and the packet has to come again.
    NotReady,
    /// The operation is not enabled for the QP, or the receive is too short.
    Invalid,
    /// The key does not allow it.
    Access,
    /// The QP's own queue or memory is faulty.
    Operational,
}
