//! The caller's tasks for packets, and their results.

use super::early_packets::Slot;
use crate::wire::headers::{AtomicEth, Feth, Imm, Reth};
use crate::wire::numbers::Srqn;
use crate::wire::syndrome::RnrTimer;
use crate::wire::{Nak, SendEnd};

/// The caller's task for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The caller must execute the packet, and call [`super::Responder::end`] before it passes
    /// another packet to the responder.
    Execute(Arrival),
    /// An earlier packet is missing. The caller may store this packet in the slot, and passes it
    /// again when [`super::Responder::next_held`] returns the slot. If the caller does not store
    /// it, it must call [`super::Responder::lose`].
    Keep(Slot),
    /// The packet was executed before. An answer may be pending.
    Duplicate,
    /// The packet violates the protocol. The connection has failed, and a NAK is pending.
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
    /// The number of the message, counted from the first message of this responder. It identifies
    /// the message if a key is valid for one message only.
    pub number: u64,
    /// The SRQ for the message, with XRC.
    pub srqn: Srqn,
}

/// An operation of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arriving {
    /// Bytes for the next receive, or for the receive that the message is filling. The last packet
    /// has `Some`. Before it arrives, the length of the message is unknown.
    Send(Option<SendEnd>),
    /// Bytes for memory, whose total length is known. The last packet has `Some`.
    Write(Reth, Option<Option<Imm>>),
    /// Memory to read. It is checked now, and read when the answers are sent.
    Read(Reth),
    /// A word to exchange.
    CompareSwap(AtomicEth),
    /// A word to add to.
    FetchAdd(AtomicEth),
    /// 8 bytes for a word, which must be stored at once.
    AtomicWrite(Reth),
    /// Memory in which all earlier writes must be visible.
    Flush(Feth, Reth),
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
    /// The memory has absent pages, which will probably be there after the time of this timer.
    /// Nothing was done, and the packet must be sent again.
    Absent(RnrTimer),
    /// The operation is not enabled for the QP, or the receive is too short.
    Invalid,
    /// The key does not allow the access.
    Access,
    /// The QP's own queue or memory is faulty.
    Operational,
}
