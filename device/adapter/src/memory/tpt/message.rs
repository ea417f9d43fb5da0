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
