//! A message as it comes to a responder, which does not know who brings it or how.

use vrnic_abi::{Key, Qpn, Srqn};

/// A message of a connected QP, or the part of it that comes now.
#[derive(Clone, Copy, Debug)]
pub struct Inbound {
    /// The operation, with what it needs of the responder.
    pub operation: Operation,
    /// Bytes of the whole message.
    pub length: u64,
    /// Bytes of it that came earlier.
    pub from: u64,
    /// Immediate data.
    pub imm: Option<[u8; 4]>,
    /// True if the sender asks for a solicited event.
    pub solicited: bool,
    /// The sender's QP.
    pub src_qpn: Qpn,
    /// The SRQ that a message to an XRC target is for; else zero.
    pub srqn: Srqn,
    /// The number of the message, by which keys that are good for one message know it.
    pub number: u64,
}

/// An operation on the responder's memory or receives (IBTA volume 1, 9.4).
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// SEND, with or without immediate data.
    Send,
    /// SEND with invalidate, of this key.
    SendInvalidate(Key),
    /// RDMA WRITE, with or without immediate data.
    Write(Remote),
    /// RDMA READ.
    Read(Remote),
    /// FETCH & ADD.
    FetchAdd {
        /// The word.
        word: Remote,
        /// The number to add.
        add: u64,
    },
    /// COMPARE & SWAP.
    CompareSwap {
        /// The word.
        word: Remote,
        /// The value that the word must have.
        compare: u64,
        /// Its new value.
        swap: u64,
    },
}

/// Memory of the responder that a message names.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    /// The first address.
    pub addr: u64,
    /// The key.
    pub key: Key,
}
