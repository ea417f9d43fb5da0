//! The single message for which a key is valid.

use vrnic_abi::Qpn;

/// A message of a peer: the QP that receives it, and its number, which no other message to that QP
/// has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The QP.
    pub qpn: Qpn,
    /// The number.
    pub number: u64,
}

/// The message that has used an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) by: Option<Message>,
    /// The sequence number at which the message is complete, if it is known.
    pub(super) end: Option<u32>,
}
