//! Reasons for which a packet is dropped without an answer, and their counters.

/// The reason for which a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Discard {
    /// It ends before its headers do, or before the end that its IP header claims.
    Truncated,
    /// Its IP header has options, a wrong checksum or a wrong version.
    IpHeader,
    /// It is a fragment: no sender of RoCE makes them.
    Fragment,
    /// The UDP length is not that of the IP packet.
    UdpLength,
    /// It has a UDP checksum, and a wrong one.
    UdpChecksum,
    /// The invariant CRC is wrong.
    Icrc,
    /// The transport header's version is not 0.
    Version,
    /// The opcode is reserved, or none of its transport's.
    Opcode,
    /// Its payload has a length that its opcode never has.
    PayloadLength,
    /// Its syndrome is reserved.
    Syndrome,
    /// Its partition key is not that of the QP.
    PartitionKey,
    /// Its transport is not that of the QP.
    Transport,
    /// It comes from, or is for, another address than those of the QP's address vector.
    Address,
    /// Its queue key is not that of the QP.
    QueueKey,
    /// The QP does not receive in its state, or has failed.
    State,
    /// A request whose number is ahead of the expected one, and that is not held.
    Early,
    /// A request behind one that was answered with "receiver not ready".
    BehindNotReady,
    /// A duplicate of a READ or atomic whose answer is not kept any more, or that does not fit the
    /// original.
    UnknownDuplicate,
    /// A request that arrived while another was being executed.
    Busy,
    /// An answer to a packet that has been answered before.
    StaleAnswer,
    /// An answer to a packet that was not sent.
    UnsentAnswer,
    /// An answer that shows that an earlier one has been lost.
    AnswerGap,
    /// An answer while the requester waits to send again.
    AnswerInWait,
    /// An unreliable message, or the rest of one, of which a packet is missing.
    BrokenMessage,
    /// An unreliable message that the responder has no room for or does not allow.
    Refused,
}

impl Discard {
    /// The number of reasons.
    pub const COUNT: usize = Self::Refused as usize + 1;
}

/// Packets that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discards([u64; Discard::COUNT]);

impl Discards {
    /// Counts a packet.
    pub fn count(&mut self, reason: Discard) {
        if let Some(counter) = self.0.get_mut(reason as usize) {
            *counter = counter.wrapping_add(1);
        }
    }

    /// The number of packets that were dropped for a reason.
    #[must_use]
    pub fn of(&self, reason: Discard) -> u64 {
        self.0.get(reason as usize).copied().unwrap_or_default()
    }

    /// The number of packets that were dropped.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_counter() {
        let mut discards = Discards::default();
        discards.count(Discard::Truncated);
        discards.count(Discard::Refused);
        discards.count(Discard::Refused);
        assert_eq!((discards.of(Discard::Truncated), discards.of(Discard::Refused)), (1, 2));
        assert_eq!((discards.of(Discard::Icrc), discards.total()), (0, 3));
    }
}
