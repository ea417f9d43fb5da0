//! Reasons for which a segment is dropped, and their counters.

use vrnic_packet::Short;
use vrnic_packet::discards::Reason;
use vrnic_packet::ip::Fault;

/// The reason for which a segment, or a part of one, was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Discard {
    /// The packet ends before its headers do, or before the end that its IP header states.
    Truncated,
    /// The IP header has options, a wrong checksum or a wrong version.
    IpHeader,
    /// The packet is a fragment. A peer that discovers the path MTU sends none.
    Fragment,
    /// The TCP checksum is wrong.
    Checksum,
    /// The header's length is less than 20 bytes, or an option's length is wrong.
    Header,
    /// The segment lies outside the window.
    Window,
    /// The timestamp is older than the newest one (RFC 7323, 5).
    OldTimestamp,
    /// The segment has no timestamp, on a connection that uses them (RFC 7323, 3.2).
    NoTimestamp,
    /// A reset whose number is not exactly the expected one (RFC 5961, 3).
    BlindReset,
    /// The segment has the flag SYN (RFC 5961, 4).
    Syn,
    /// The segment does not have the flag ACK.
    NoAck,
    /// The segment acknowledges bytes that were not sent, or a number far below the acknowledged
    /// one (RFC 5961, 5).
    Acknowledgement,
    /// All its bytes had arrived before.
    Duplicate,
    /// The bytes of the segment are after the end of the stream.
    BehindEnd,
    /// The segment arrived out of order, and the table of gaps is full.
    Panes,
    /// The segment arrived out of order, or the sink did not take it, and there is no room to store
    /// it.
    Buffer,
    /// The sink refused it.
    Refused,
    /// The connection has ended.
    Ended,
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
    pub const COUNT: usize = Self::Ended as usize + 1;
}

impl Reason for Discard {
    fn number(self) -> usize {
        self as usize
    }
}

/// Segments that were dropped, by reason.
pub type Discards = vrnic_packet::discards::Discards<Discard, { Discard::COUNT }>;
