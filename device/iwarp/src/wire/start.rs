//! MPA's start frames (RFC 5044, section 7.1.1; RFC 6581, sections 6 and 9).
//!
//! ```text
//! key (16) │ flags (1) │ revision (1) │ length of the private data (2) │ private data
//! ```
//!
//! The private data of an enhanced frame begins with two control words: IRD and ORD, and four flags
//! for the peer-to-peer model.

use vrnic_packet::Reader;

use super::fields::Fields;

/// Number of octets before the private data.
pub const HEADER: usize = 20;
/// Maximum number of octets of private data, including the control words (RFC 5044, section 7.1.1).
pub const PRIVATE_MAX: usize = 512;
/// Maximum number of octets of a frame.
pub const FRAME_MAX: usize = HEADER + PRIVATE_MAX;
/// Number of octets of the control words.
pub const CONTROL: usize = 4;
/// The value of IRD or ORD that means that it is not negotiated (RFC 6581, section 9.1).
pub const NOT_NEGOTIATED: u16 = 0x3fff;

const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;

const UPPER: u16 = 0x8000;
const LOWER: u16 = 0x4000;

/// The two types of start frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The initiator's frame.
    Request,
    /// The responder's frame.
    Reply,
}

/// Types of messages that may be the initiator's first one (RFC 6581, section 9.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rtr {
    /// A SEND without payload (flag B).
    pub send: bool,
    /// A WRITE without payload (flag C).
    pub write: bool,
    /// A READ without payload (flag D).
    pub read: bool,
}

/// The control words of an enhanced frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Peer-to-peer model: the initiator sends a first message on its own (flag A).
    pub peer_to_peer: bool,
    /// The types of this message: offered in the request, chosen in the reply.
    pub rtr: Rtr,
    /// Number of READs that the sender of the frame serves at a time, 14 bits.
    pub ird: u16,
    /// Number of READs that it wants to have outstanding, 14 bits.
    pub ord: u16,
}

/// A start frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start<'a> {
    /// Request or reply.
    pub kind: Kind,
    /// True if the sender wants to receive markers.
    pub markers: bool,
    /// True if the sender wants CRCs.
    pub crc: bool,
    /// True if the connection is rejected; only in a reply.
    pub reject: bool,
    /// The revision: 1 or 2.
    pub revision: u8,
    /// The control words of an enhanced frame.
    pub control: Option<Control>,
    /// The private data of the program.
    pub private: &'a [u8],
}

/// The reason for which octets are not a start frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The key is neither the key of a request nor the key of a reply.
    Key,
    /// The revision is neither 1 nor 2.
    Revision,
    /// The length of the private data exceeds the maximum.
    Length,
    /// The frame is an enhanced one, but lacks the control words.
    Control,
}

/// Returns the number of octets of a start frame, or `None` if more octets are needed to know it.
///
/// # Errors
/// The reason for which it cannot be a start frame.
pub fn length(octets: &[u8]) -> Result<Option<usize>, Malformed> {
    let known = octets.len().min(REQUEST_KEY.len());
    let head = octets.get(..known).unwrap_or_default();
    if !REQUEST_KEY.starts_with(head) && !REPLY_KEY.starts_with(head) {
        return Err(Malformed::Key);
    }
    match octets.get(18..HEADER) {
        Some(&[high, low]) => {
            let private = usize::from(u16::from_be_bytes([high, low]));
            if private > PRIVATE_MAX { Err(Malformed::Length) } else { Ok(Some(HEADER + private)) }
        }
        _ => Ok(None),
    }
}

impl<'a> Start<'a> {
    /// Parses a frame that consists of exactly these octets.
    ///
    /// # Errors
    /// The reason for which it is not a start frame.
    pub fn parse(octets: &'a [u8]) -> Result<Self, Malformed> {
        let short = |_| Malformed::Length;
        if length(octets)? != Some(octets.len()) {
            return Err(Malformed::Length);
        }
        let mut reader = Reader::new(octets);
        let key: [u8; 16] = reader.take().map_err(short)?;
        let [flags, revision] = reader.take().map_err(short)?;
        let _length = reader.u16().map_err(short)?;
        let kind = if key == *REQUEST_KEY { Kind::Request } else { Kind::Reply };
        if !matches!(revision, 1 | 2) {
            return Err(Malformed::Revision);
        }
        // Revision 2 introduced the enhanced form. A reject may lack it.
        let reject = kind == Kind::Reply && flags & REJECT != 0;
        let mut control = None;
        if revision == 2 && flags & ENHANCED != 0 {
            match Control::parse(&mut reader) {
                None if !reject => return Err(Malformed::Control),
                parsed => control = parsed,
            }
        }
        Ok(Self {
            kind,
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            reject,
            revision,
            control,
            private: reader.rest(),
        })
    }

    /// Returns the octets. Private data beyond the limit is cut off.
    #[must_use]
    pub fn octets(&self) -> Fields<FRAME_MAX> {
        let key = match self.kind {
            Kind::Request => REQUEST_KEY,
            Kind::Reply => REPLY_KEY,
        };
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(self.markers, MARKERS)
            | flag(self.crc, CRC)
            | flag(self.reject, REJECT)
            | flag(self.control.is_some(), ENHANCED);
        let control = if self.control.is_some() { CONTROL } else { 0 };
        let len = self.private.len().min(PRIVATE_MAX - control);
        let private = self.private.get(..len).unwrap_or_default();
        let length = u16::try_from(control + private.len()).unwrap_or_default();
        let fields = Fields::default().put(key).put(&[flags, self.revision]).u16(length);
        match self.control {
            Some(control) => control.put(fields).put(private),
            None => fields.put(private),
        }
    }
}

impl Control {
    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        // Nothing is read if there are fewer octets.
        let [a, b, c, d] = reader.take().ok()?;
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Some(Self {
            peer_to_peer: first & UPPER != 0,
            rtr: Rtr {
                send: first & LOWER != 0,
                write: second & UPPER != 0,
                read: second & LOWER != 0,
            },
            ird: first & NOT_NEGOTIATED,
            ord: second & NOT_NEGOTIATED,
        })
    }

    fn put(&self, fields: Fields<FRAME_MAX>) -> Fields<FRAME_MAX> {
        let word = |upper, lower, number: u16| {
            let flag = |set, flag| if set { flag } else { 0 };
            flag(upper, UPPER) | flag(lower, LOWER) | (number & NOT_NEGOTIATED)
        };
        fields.u16(word(self.peer_to_peer, self.rtr.send, self.ird)).u16(word(
            self.rtr.write,
            self.rtr.read,
            self.ord,
        ))
    }
}
