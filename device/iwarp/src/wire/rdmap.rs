//! Messages of RDMAP (RFC 5040, section 4; RFC 7306) in DDP segments.

use vrnic_packet::{Reader, Short};

use super::ddp::{Header, Model, Msn, Queue, Stag, Tagged};
use super::fields::Fields;
use super::terminate::{Cause, Report};

/// Maximum number of octets of a request's header after the DDP header. Atomics have the longest
/// header.
pub const REQUEST_MAX: usize = 52;
/// Number of octets of immediate data on the wire (RFC 7306, section 6).
pub const IMMEDIATE: usize = 8;

const VERSION_MASK: u8 = 0xc0;
const VERSION: u8 = 0x40;
const OPCODE_MASK: u8 = 0x0f;

/// Opcodes (RFC 5040, section 4.3; RFC 7306, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA WRITE.
    Write = 0,
    /// The request of an RDMA READ.
    ReadRequest = 1,
    /// The response of an RDMA READ.
    ReadResponse = 2,
    /// SEND.
    Send = 3,
    /// SEND with invalidate.
    SendInvalidate = 4,
    /// SEND with solicited event.
    SendSolicited = 5,
    /// SEND with solicited event and invalidate.
    SendSolicitedInvalidate = 6,
    /// Terminate.
    Terminate = 7,
    /// Immediate data.
    Immediate = 8,
    /// Immediate data with solicited event.
    ImmediateSolicited = 9,
    /// The request of an atomic.
    AtomicRequest = 10,
    /// The response of an atomic.
    AtomicResponse = 11,
}

/// Properties of a SEND besides its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendKind {
    /// True if it asks for a solicited event.
    pub solicited: bool,
    /// The STag that it invalidates.
    pub invalidate: Option<Stag>,
}

/// The request of a READ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadRequest {
    /// The destination at the requester.
    pub sink: Tagged,
    /// Number of octets to read.
    pub size: u32,
    /// The source at the responder.
    pub source: Tagged,
}

/// An atomic operation (RFC 7306, section 5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Adds to fields of the word. Each bit of the mask is the highest bit of a field.
    FetchAdd {
        /// The numbers to add.
        add: u64,
        /// The highest bits of fields. A carry out of these is dropped.
        mask: u64,
    },
    /// Replaces bits of the word if other bits have expected values.
    CompareSwap {
        /// The expected values of bits.
        compare: u64,
        /// The bits that are compared.
        compare_mask: u64,
        /// The new bits.
        swap: u64,
        /// The bits that are replaced.
        swap_mask: u64,
    },
}

/// The request of an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// The operation.
    pub op: AtomicOp,
    /// The number that the response returns.
    pub id: u32,
    /// The word at the responder.
    pub word: Tagged,
}

/// A received segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// True if it is the last segment of its message.
    pub last: bool,
    /// The contents of the segment.
    pub body: Body<'a>,
}

/// The contents of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Octets of a WRITE.
    Write(Tagged, &'a [u8]),
    /// Octets of the response of a READ.
    ReadResponse(Tagged, &'a [u8]),
    /// Octets of a SEND: the message, and their offset in it.
    Send(SendKind, Msn, u32, &'a [u8]),
    /// Immediate data. `true` if it asks for a solicited event.
    Immediate(bool, Msn, [u8; IMMEDIATE]),
    /// The request of a READ.
    ReadRequest(Msn, ReadRequest),
    /// The request of an atomic.
    AtomicRequest(Msn, AtomicRequest),
    /// The response of an atomic: the number of the request, and the old value of the word.
    AtomicResponse(Msn, u32, u64),
    /// The peer has terminated the stream.
    Terminate(Report),
}

impl Opcode {
    /// Returns the opcode in a control octet, if there is one with this number.
    #[must_use]
    pub const fn of(control: u8) -> Option<Self> {
        Some(match control & OPCODE_MASK {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3 => Self::Send,
            4 => Self::SendInvalidate,
            5 => Self::SendSolicited,
            6 => Self::SendSolicitedInvalidate,
            7 => Self::Terminate,
            8 => Self::Immediate,
            9 => Self::ImmediateSolicited,
            10 => Self::AtomicRequest,
            11 => Self::AtomicResponse,
            _ => return None,
        })
    }

    /// Returns the control octet with this opcode and the version of RDMAP.
    #[must_use]
    pub const fn control(self) -> u8 {
        VERSION | self as u8
    }

    /// Returns the queue of its messages, or `None` if they are tagged.
    #[must_use]
    pub const fn queue(self) -> Option<Queue> {
        Some(match self {
            Self::Write | Self::ReadResponse => return None,
            Self::Send
            | Self::SendInvalidate
            | Self::SendSolicited
            | Self::SendSolicitedInvalidate
            | Self::Immediate
            | Self::ImmediateSolicited => Queue::Send,
            Self::ReadRequest | Self::AtomicRequest => Queue::Request,
            Self::Terminate => Queue::Terminate,
            Self::AtomicResponse => Queue::AtomicResponse,
        })
    }

    /// Returns whether it is an opcode of RFC 7306. These are not negotiated, so they must be
    /// configured.
    #[must_use]
    pub const fn is_extension(self) -> bool {
        self as u8 >= Self::Immediate as u8
    }
}

impl SendKind {
    /// Returns the opcode.
    #[must_use]
    pub const fn opcode(self) -> Opcode {
        match (self.solicited, self.invalidate.is_some()) {
            (false, false) => Opcode::Send,
            (false, true) => Opcode::SendInvalidate,
            (true, false) => Opcode::SendSolicited,
            (true, true) => Opcode::SendSolicitedInvalidate,
        }
    }
}

impl<'a> Segment<'a> {
    /// Parses a ULPDU. `extensions` is true if messages of RFC 7306 are accepted.
    ///
    /// # Errors
    /// The cause for a Terminate.
    pub fn parse(ulpdu: &'a [u8], extensions: bool) -> Result<Self, Cause> {
        let (header, payload) = Header::parse(ulpdu)?;
        if header.control & VERSION_MASK != VERSION {
            return Err(Cause::RdmapVersion);
        }
        let opcode = Opcode::of(header.control).ok_or(Cause::Opcode)?;
        if opcode.is_extension() && !extensions {
            return Err(Cause::Opcode);
        }
        let body = match header.model {
            Model::Tagged(at) => match opcode {
                Opcode::Write => Body::Write(at, payload),
                Opcode::ReadResponse => Body::ReadResponse(at, payload),
                _ => return Err(Cause::Opcode),
            },
            Model::Untagged { invalidate, queue, msn, mo } => {
                if opcode.queue() != Some(queue) {
                    return Err(Cause::Opcode);
                }
                let kind = send_kind(opcode, invalidate);
                match kind {
                    Some(kind) => Body::Send(kind, msn, mo, payload),
                    None if mo != 0 => return Err(Cause::MessageOffset),
                    None => whole(opcode, header.last, msn, payload)?,
                }
            }
        };
        Ok(Self { last: header.last, body })
    }
}

/// Returns the kind of a SEND, or `None` for other messages.
fn send_kind(opcode: Opcode, stag: Stag) -> Option<SendKind> {
    let kind = |solicited, invalidate| Some(SendKind { solicited, invalidate });
    match opcode {
        Opcode::Send => kind(false, None),
        Opcode::SendInvalidate => kind(false, Some(stag)),
        Opcode::SendSolicited => kind(true, None),
        Opcode::SendSolicitedInvalidate => kind(true, Some(stag)),
        _ => None,
    }
}

/// Parses an untagged message that has a fixed size and must be in one segment.
fn whole(opcode: Opcode, last: bool, msn: Msn, payload: &[u8]) -> Result<Body<'_>, Cause> {
    let terminate = opcode == Opcode::Terminate;
    if !last && !terminate {
        return Err(Cause::TooLong);
    }
    let mut reader = Reader::new(payload);
    let body = fixed(opcode, msn, &mut reader);
    match body {
        Ok(Some(body)) if terminate || reader.rest().is_empty() => Ok(body),
        Ok(Some(_)) => Err(Cause::TooLong),
        // The atomic operation does not exist.
        Ok(None) => Err(Cause::Opcode),
        Err(Short) => Err(Cause::MarkerOrLength),
    }
}

fn fixed<'a>(opcode: Opcode, msn: Msn, reader: &mut Reader<'a>) -> Result<Option<Body<'a>>, Short> {
    Ok(Some(match opcode {
        Opcode::Immediate | Opcode::ImmediateSolicited => {
            Body::Immediate(opcode == Opcode::ImmediateSolicited, msn, reader.take()?)
        }
        Opcode::ReadRequest => {
            let sink = Tagged { stag: Stag(reader.u32()?), to: reader.u64()? };
            let size = reader.u32()?;
            let source = Tagged { stag: Stag(reader.u32()?), to: reader.u64()? };
            Body::ReadRequest(msn, ReadRequest { sink, size, source })
        }
        Opcode::AtomicRequest => match AtomicRequest::read(reader)? {
            Some(request) => Body::AtomicRequest(msn, request),
            None => return Ok(None),
        },
        Opcode::AtomicResponse => Body::AtomicResponse(msn, reader.u32()?, reader.u64()?),
        Opcode::Terminate => Body::Terminate(Report::parse(reader.rest()).ok_or(Short)?),
        _ => return Ok(None),
    }))
}

impl ReadRequest {
    /// Returns the octets after the DDP header.
    #[must_use]
    pub fn octets(&self) -> Fields<REQUEST_MAX> {
        let Self { sink, size, source } = self;
        let fields = Fields::default().u32(sink.stag.0).u64(sink.to).u32(*size);
        fields.u32(source.stag.0).u64(source.to)
    }
}

impl AtomicRequest {
    const FETCH_ADD: u32 = 0;
    const COMPARE_SWAP: u32 = 2;

    fn read(reader: &mut Reader<'_>) -> Result<Option<Self>, Short> {
        let code = reader.u32()? & u32::from(OPCODE_MASK);
        let id = reader.u32()?;
        let word = Tagged { stag: Stag(reader.u32()?), to: reader.u64()? };
        let (value, mask) = (reader.u64()?, reader.u64()?);
        let (compare, compare_mask) = (reader.u64()?, reader.u64()?);
        let op = match code {
            Self::FETCH_ADD => AtomicOp::FetchAdd { add: value, mask },
            Self::COMPARE_SWAP => {
                AtomicOp::CompareSwap { compare, compare_mask, swap: value, swap_mask: mask }
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { op, id, word }))
    }

    /// Returns the octets after the DDP header.
    #[must_use]
    pub fn octets(&self) -> Fields<REQUEST_MAX> {
        let (code, value, mask, compare, compare_mask) = match self.op {
            AtomicOp::FetchAdd { add, mask } => (Self::FETCH_ADD, add, mask, 0, u64::MAX),
            AtomicOp::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                (Self::COMPARE_SWAP, swap, swap_mask, compare, compare_mask)
            }
        };
        let fields = Fields::default().u32(code).u32(self.id).u32(self.word.stag.0);
        fields.u64(self.word.to).u64(value).u64(mask).u64(compare).u64(compare_mask)
    }
}

impl AtomicOp {
    /// Returns the value of the word after the operation, if it was `old` (RFC 7306, section 5.1).
    #[must_use]
    pub const fn apply(self, old: u64) -> u64 {
        match self {
            Self::FetchAdd { add, mask } => {
                // Without their highest bits, fields cannot carry into each other.
                (old & !mask).wrapping_add(add & !mask) ^ ((old ^ add) & mask)
            }
            Self::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                if (compare ^ old) & compare_mask == 0 {
                    (old & !swap_mask) | (swap & swap_mask)
                } else {
                    old
                }
            }
        }
    }
}
