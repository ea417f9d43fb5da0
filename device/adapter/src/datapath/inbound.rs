//! A message as a responder receives it, independent of the transport that delivers it.

use vrnic_abi::sq::{Class, FlushFlags, Opcode};
use vrnic_abi::{Key, Qpn, Srqn};

use crate::requests::wqe::SendWqe;
use crate::stats::Counter;

/// A message of a connected QP, or a part of it.
#[derive(Clone, Copy, Debug)]
pub struct Inbound {
    /// The operation, with its parameters for the responder.
    pub operation: Operation,
    /// Number of bytes of the whole message.
    pub length: u64,
    /// Number of bytes of the message before this part.
    pub from: u64,
    /// Immediate data.
    pub imm: Option<[u8; 4]>,
    /// True if the sender asks for a solicited event.
    pub solicited: bool,
    /// The sender's QP.
    pub src_qpn: Qpn,
    /// The SRQ for a message to an XRC target; otherwise zero.
    pub srqn: Srqn,
    /// The number of the message, which identifies it to keys that are valid for one message.
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
        /// The word to which the number is added.
        word: Remote,
        /// The number to add.
        add: u64,
    },
    /// COMPARE & SWAP.
    CompareSwap {
        /// The word that is compared.
        word: Remote,
        /// The value that the word must have.
        compare: u64,
        /// The value that the word gets if it has the expected one.
        swap: u64,
    },
    /// ATOMIC WRITE of 8 bytes.
    AtomicWrite(Remote),
    /// FLUSH.
    Flush {
        /// The memory that is flushed.
        memory: Remote,
        /// Number of its bytes.
        length: u32,
        /// The kind of FLUSH.
        flags: FlushFlags,
    },
}

impl Operation {
    /// Returns the operation that a work request performs on its peer, or `None` for a work request
    /// that concerns only local keys.
    #[must_use]
    pub fn of(send: &SendWqe) -> Option<Self> {
        let info = send.opcode.info();
        let remote = Remote { addr: send.raddr, key: send.rkey };
        Some(match info.class {
            Class::Send if info.invalidate => Self::SendInvalidate(send.rkey),
            Class::Send => Self::Send,
            Class::Write => Self::Write(remote),
            Class::Read => Self::Read(remote),
            Class::Atomic if send.opcode == Opcode::FetchAdd => {
                Self::FetchAdd { word: remote, add: send.swap_add }
            }
            Class::Atomic => {
                let (compare, swap) = (send.compare, send.swap_add);
                Self::CompareSwap { word: remote, compare, swap }
            }
            Class::AtomicWrite => Self::AtomicWrite(remote),
            Class::Flush => Self::Flush {
                memory: remote,
                length: u32::try_from(send.compare).ok()?,
                flags: FlushFlags::from_bits(send.swap_add)?,
            },
            Class::Local => return None,
        })
    }

    /// Returns whether it changes a word and returns the old value.
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Self::FetchAdd { .. } | Self::CompareSwap { .. })
    }

    /// Returns the responder's counter for such messages.
    #[must_use]
    pub const fn executed(&self) -> Counter {
        match self {
            Self::Send | Self::SendInvalidate(_) => Counter::RxSendReq,
            Self::Write(_) | Self::AtomicWrite(_) => Counter::RxWriteRequests,
            Self::Read(_) | Self::Flush { .. } => Counter::RxReadRequests,
            Self::FetchAdd { .. } | Self::CompareSwap { .. } => Counter::RxAtomicRequests,
        }
    }
}

/// Memory of the responder that a message refers to.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    /// The first address.
    pub addr: u64,
    /// The key of the memory.
    pub key: Key,
}
