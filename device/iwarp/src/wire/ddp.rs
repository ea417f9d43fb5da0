//! Headers of DDP segments (RFC 5041, section 4), including the control octet of RDMAP.
//!
//! ```text
//! tagged    control (2) │ STag (4) │ TO (8) │ payload
//! untagged  control (2) │ STag to invalidate (4) │ QN (4) │ MSN (4) │ MO (4) │ payload
//! ```

use vrnic_packet::{Reader, Short};

use super::cause::Cause;
use super::fields::Fields;

/// Octets of the header of a tagged segment.
pub const TAGGED: usize = 14;
/// Octets of the header of an untagged segment.
pub const UNTAGGED: usize = 18;

const TAGGED_FLAG: u8 = 0x80;
const LAST_FLAG: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;
const VERSION: u8 = 0x01;

/// The name of a buffer (steering tag).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stag(pub u32);

/// A position in a tagged buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tagged {
    /// The buffer.
    pub stag: Stag,
    /// The tagged offset of the first octet.
    pub to: u64,
}

/// A message sequence number of a queue. The first is 1; numbers wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Msn(pub u32);

impl Msn {
    /// The number of the first message.
    pub const FIRST: Self = Self(1);

    /// Returns the next number.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// The queues of untagged messages (RFC 5040, section 4.3; RFC 7306, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Queue {
    /// SENDs and immediate data.
    Send = 0,
    /// Requests of READs and atomics.
    Request = 1,
    /// The queue of Terminates.
    Terminate = 2,
    /// Responses of atomics.
    AtomicResponse = 3,
}

/// The buffer model of a segment, and the header fields of this model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The segment names its destination.
    Tagged(Tagged),
    /// The segment names a queue, a message, and its offset in the message.
    Untagged {
        /// The STag that the message invalidates, or zero.
        invalidate: Stag,
        /// The queue of the peer that receives the message.
        queue: Queue,
        /// The message.
        msn: Msn,
        /// The offset of the first octet in the message.
        mo: u32,
    },
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// True if it is the last segment of the message.
    pub last: bool,
    /// The control octet of RDMAP: version and opcode.
    pub control: u8,
    /// The buffer model.
    pub model: Model,
}

impl Header {
    /// Parses the header of a ULPDU. Returns it and the payload.
    ///
    /// # Errors
    /// The cause for a Terminate.
    pub fn parse(ulpdu: &[u8]) -> Result<(Self, &[u8]), Cause> {
        let short = |Short| Cause::MarkerOrLength;
        let mut reader = Reader::new(ulpdu);
        let [flags, control] = reader.take().map_err(short)?;
        let tagged = flags & TAGGED_FLAG != 0;
        if flags & VERSION_MASK != VERSION {
            return Err(if tagged { Cause::TaggedVersion } else { Cause::UntaggedVersion });
        }
        let stag = Stag(reader.u32().map_err(short)?);
        let model = if tagged {
            Model::Tagged(Tagged { stag, to: reader.u64().map_err(short)? })
        } else {
            let queue = reader.u32().map_err(short)?;
            let msn = Msn(reader.u32().map_err(short)?);
            let mo = reader.u32().map_err(short)?;
            let queue = Queue::of(queue).ok_or(Cause::QueueNumber)?;
            Model::Untagged { invalidate: stag, queue, msn, mo }
        };
        Ok((Self { last: flags & LAST_FLAG != 0, control, model }, reader.rest()))
    }

    /// Returns the octets of the header.
    #[must_use]
    pub fn octets(&self) -> Fields<UNTAGGED> {
        let last = if self.last { LAST_FLAG } else { 0 };
        let start = |tagged| Fields::default().put(&[tagged | last | VERSION, self.control]);
        match self.model {
            Model::Tagged(at) => start(TAGGED_FLAG).u32(at.stag.0).u64(at.to),
            Model::Untagged { invalidate, queue, msn, mo } => {
                start(0).u32(invalidate.0).u32(queue as u32).u32(msn.0).u32(mo)
            }
        }
    }
}

impl Queue {
    /// Returns the queue with this number.
    #[must_use]
    pub const fn of(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Send),
            1 => Some(Self::Request),
            2 => Some(Self::Terminate),
            3 => Some(Self::AtomicResponse),
            _ => None,
        }
    }
}

/// Returns the octets of the header of a ULPDU, even of a malformed one, for a Terminate.
#[must_use]
pub fn header_of(ulpdu: &[u8]) -> Option<&[u8]> {
    let tagged = ulpdu.first()? & TAGGED_FLAG != 0;
    ulpdu.get(..if tagged { TAGGED } else { UNTAGGED })
}
