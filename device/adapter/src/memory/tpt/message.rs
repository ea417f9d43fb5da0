//! The message that a key is good for, if it is good for one alone.

use vrnic_abi::Qpn;

/// A message of a peer: the QP that receives it, and its number, which no other message to that QP
/// ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The QP.
    pub qpn: Qpn,
    /// The number.
    pub number: u64,
}

/// The message that has touched an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) by: Option<Message>,
    /// Sequence number at which the message is complete, once that is known.
    pub(super) end: Option<u32>,
}
