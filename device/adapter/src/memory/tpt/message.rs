//! The single message for which a key is valid, and where it ends.

use vrnic_abi::Qpn;

/// A message of a peer: the QP that receives it, and its number, which no other message to that QP
/// has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The QP that receives the message.
    pub qpn: Qpn,
    /// The number of the message among those of the QP.
    pub number: u64,
}

impl Message {
    /// Returns the stream in which it arrives: the upper half of its number, which changes when the
    /// QP begins anew.
    #[must_use]
    pub const fn stream(self) -> Stream {
        // CAST: the upper half of 64 bits.
        Stream { qpn: self.qpn, life: (self.number >> 32) as u32 }
    }
}

/// The bytes that a QP receives from its peer until it is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The QP.
    pub qpn: Qpn,
    /// The number of the QP's life.
    pub life: u32,
}

/// A position in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The stream that has the position.
    pub stream: Stream,
    /// The number of bytes before it.
    pub at: u64,
}
