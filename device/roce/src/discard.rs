//! Reasons for which a packet is dropped without an answer, and their counters.

use vrnic_packet::Short;
use vrnic_packet::discards::Reason;
use vrnic_packet::ip::Fault;

/// The reason for which a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Discard {
    /// The packet ends within its headers, or is shorter than its IP header states.
    Truncated,
    /// The IP header has options, a wrong checksum or a wrong version.
    IpHeader,
    /// The packet is a fragment. Senders of RoCE do not fragment.
    Fragment,
    /// The length in the UDP header does not match the length of the IP packet.
    UdpLength,
    /// The packet has a UDP checksum, and the checksum is wrong.
    UdpChecksum,
    /// The invariant CRC is wrong.
    Icrc,
    /// The transport header's version is not 0.
    Version,
    /// The opcode is reserved, or does not exist in its transport.
    Opcode,
    /// The length of its payload is not valid for its opcode.
    PayloadLength,
    /// The syndrome is reserved.
    Syndrome,
    /// The partition key does not match that of the QP.
    PartitionKey,
    /// The QP uses another transport.
    Transport,
    /// The addresses do not match the QP's address vector.
    Address,
    /// The queue key differs from that of the QP.
    QueueKey,
    /// The QP has failed, or is in a state in which it does not receive packets.
    State,
    /// A request that follows a missing packet, and that the responder does not hold.
    Early,
    /// A request that follows a request that was answered with "receiver not ready".
    BehindNotReady,
    /// A duplicate of a READ or atomic whose answer is no longer stored, or differs from the
    /// original.
    UnknownDuplicate,
    /// A request that arrived while the caller was executing another request.
    Busy,
    /// An answer to a packet that was already answered.
    StaleAnswer,
    /// An answer to a packet that was not sent.
    UnsentAnswer,
    /// An answer that shows that an earlier answer was lost.
    AnswerGap,
    /// An answer that arrived while the requester waits to send again.
    AnswerInWait,
    /// The packet belongs to an unreliable message of which a packet is missing.
    BrokenMessage,
    /// The packet belongs to an unreliable message that the responder has no room for, or does not
    /// allow.
    Refused,
}

impl From<Short> for Discard {
    fn from(Short: Short) -> Self {
        Self::Truncated
    }
}

impl From<Fault> for Discard {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Version | Fault::HeaderLength | Fault::Options | Fault::Checksum => {
                Self::IpHeader
            }
            Fault::Fragment => Self::Fragment,
            Fault::Truncated => Self::Truncated,
        }
    }
}

impl Discard {
    /// The number of reasons.
    pub const COUNT: usize = Self::Refused as usize + 1;
}

impl Reason for Discard {
    fn number(self) -> usize {
        self as usize
    }
}

/// Packets that were dropped, by reason.
pub type Discards = vrnic_packet::discards::Discards<Discard, { Discard::COUNT }>;
