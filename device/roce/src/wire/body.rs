//! The body of a packet: its opcode, with the extension headers of this opcode.
//!
//! The opcode determines the headers, so one type contains both. For example, this type has no
//! value for the first packet of a WRITE without the header of the message.

use vrnic_packet::{NoRoom, Reader, Writer};

use super::headers::{AtomicEth, Deth, Feth, Imm, Reth};
use super::numbers::Rkey;
use super::opcode::Operation;
use super::syndrome::Aeth;
use crate::discard::Discard;

/// The opcode of a packet and its extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A request of a connected QP, for the responder.
    Request(Request),
    /// An answer, for the requester.
    Response(Response),
    /// A message of a datagram QP.
    Datagram(Datagram),
    /// A congestion notification, for the requester.
    Congestion,
}

/// A packet's position in its message. `S` is the header of the first packet, `E` is the header of
/// the last packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<S, E> {
    /// The first of several.
    First(S),
    /// Between first and last.
    Middle,
    /// The last of several.
    Last(E),
    /// The only packet of the message.
    Only(S, E),
}

impl<S: Copy, E: Copy> Part<S, E> {
    /// Returns the position of a packet that begins a message or not, and ends it or not.
    pub fn new(start: Option<S>, end: Option<E>) -> Self {
        match (start, end) {
            (Some(start), Some(end)) => Self::Only(start, end),
            (Some(start), None) => Self::First(start),
            (None, Some(end)) => Self::Last(end),
            (None, None) => Self::Middle,
        }
    }

    /// Returns the header of the message's first packet, if this is the first one.
    pub const fn start(&self) -> Option<S> {
        match self {
            Self::First(start) | Self::Only(start, _) => Some(*start),
            Self::Middle | Self::Last(_) => None,
        }
    }

    /// Returns the header of the message's last packet, if this is the last one.
    pub const fn end(&self) -> Option<E> {
        match self {
            Self::Last(end) | Self::Only(_, end) => Some(*end),
            Self::First(_) | Self::Middle => None,
        }
    }
}

/// The end of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendEnd {
    /// No further header.
    Plain,
    /// Immediate data for the receive's completion.
    Imm(Imm),
    /// A key of the responder that the message invalidates.
    Invalidate(Rkey),
}

/// A request of a connected QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Bytes for the responder's next receive.
    Send(Part<(), SendEnd>),
    /// Bytes for the memory that the first packet names.
    Write(Part<Reth, Option<Imm>>),
    /// Asks for the content of memory.
    Read(Reth),
    /// COMPARE & SWAP on a word.
    CompareSwap(AtomicEth),
    /// FETCH & ADD on a word.
    FetchAdd(AtomicEth),
    /// Makes memory visible or persistent (A19).
    Flush(Feth, Reth),
    /// Writes 8 bytes atomically (A19).
    AtomicWrite(Reth),
}

/// An answer of a responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// The content of memory that a READ asked for.
    Read(ReadPart),
    /// Positive or negative, without payload.
    Acknowledge(Aeth),
    /// The old value of an atomic's word.
    Atomic(Aeth, u64),
}

/// A packet's position in the answer to a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPart {
    /// The first of several.
    First(Aeth),
    /// Between first and last, without a header of its own.
    Middle,
    /// The last of several.
    Last(Aeth),
    /// The only packet of the answer.
    Only(Aeth),
}

impl Response {
    /// Returns whether no packet of the same answer follows.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        !matches!(self, Self::Read(ReadPart::First(_) | ReadPart::Middle))
    }
}

impl ReadPart {
    /// Returns the acknowledgement in the packet, if it has one.
    #[must_use]
    pub const fn aeth(&self) -> Option<Aeth> {
        match self {
            Self::First(aeth) | Self::Last(aeth) | Self::Only(aeth) => Some(*aeth),
            Self::Middle => None,
        }
    }
}

/// A message of a datagram QP, which is always one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Queue key and sender.
    pub deth: Deth,
    /// Immediate data.
    pub imm: Option<Imm>,
}

impl Request {
    fn operation(&self) -> Operation {
        use Operation as O;
        match self {
            Self::Send(Part::First(())) => O::SendFirst,
            Self::Send(Part::Middle) => O::SendMiddle,
            Self::Send(Part::Last(SendEnd::Plain)) => O::SendLast,
            Self::Send(Part::Last(SendEnd::Imm(_))) => O::SendLastImm,
            Self::Send(Part::Last(SendEnd::Invalidate(_))) => O::SendLastInvalidate,
            Self::Send(Part::Only((), SendEnd::Plain)) => O::SendOnly,
            Self::Send(Part::Only((), SendEnd::Imm(_))) => O::SendOnlyImm,
            Self::Send(Part::Only((), SendEnd::Invalidate(_))) => O::SendOnlyInvalidate,
            Self::Write(Part::First(_)) => O::WriteFirst,
            Self::Write(Part::Middle) => O::WriteMiddle,
            Self::Write(Part::Last(None)) => O::WriteLast,
            Self::Write(Part::Last(Some(_))) => O::WriteLastImm,
            Self::Write(Part::Only(_, None)) => O::WriteOnly,
            Self::Write(Part::Only(_, Some(_))) => O::WriteOnlyImm,
            Self::Read(_) => O::ReadRequest,
            Self::CompareSwap(_) => O::CompareSwap,
            Self::FetchAdd(_) => O::FetchAdd,
            Self::Flush(..) => O::Flush,
            Self::AtomicWrite(_) => O::AtomicWrite,
        }
    }

    fn write(&self, to: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Send(part) => match part.end() {
                Some(SendEnd::Imm(imm)) => to.put(&imm),
                Some(SendEnd::Invalidate(key)) => to.u32(key.0),
                Some(SendEnd::Plain) | None => Ok(()),
            },
            Self::Write(part) => {
                part.start().map_or(Ok(()), |reth| reth.write(to))?;
                part.end().flatten().map_or(Ok(()), |imm| to.put(&imm))
            }
            Self::Read(reth) | Self::AtomicWrite(reth) => reth.write(to),
            Self::CompareSwap(atomic) | Self::FetchAdd(atomic) => atomic.write(to),
            Self::Flush(feth, reth) => {
                to.u32(feth.0)?;
                reth.write(to)
            }
        }
    }
}

impl Response {
    const fn operation(&self) -> Operation {
        match self {
            Self::Read(ReadPart::First(_)) => Operation::ReadResponseFirst,
            Self::Read(ReadPart::Middle) => Operation::ReadResponseMiddle,
            Self::Read(ReadPart::Last(_)) => Operation::ReadResponseLast,
            Self::Read(ReadPart::Only(_)) => Operation::ReadResponseOnly,
            Self::Acknowledge(_) => Operation::Acknowledge,
            Self::Atomic(..) => Operation::AtomicAcknowledge,
        }
    }

    fn write(&self, to: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Read(part) => part.aeth().map_or(Ok(()), |aeth| aeth.write(to)),
            Self::Acknowledge(aeth) => aeth.write(to),
            Self::Atomic(aeth, old) => {
                aeth.write(to)?;
                to.u64(*old)
            }
        }
    }
}

impl Body {
    /// Returns the operation.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self {
            Self::Request(request) => request.operation(),
            Self::Response(response) => response.operation(),
            Self::Datagram(Datagram { imm: None, .. }) => Operation::SendOnly,
            Self::Datagram(Datagram { imm: Some(_), .. }) => Operation::SendOnlyImm,
            Self::Congestion => Operation::Congestion,
        }
    }

    /// Writes the extension headers.
    ///
    /// # Errors
    /// [`NoRoom`] if they do not fit.
    pub fn write(&self, to: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Request(request) => request.write(to),
            Self::Response(response) => response.write(to),
            Self::Datagram(datagram) => {
                datagram.deth.write(to)?;
                datagram.imm.map_or(Ok(()), |imm| to.put(&imm))
            }
            Self::Congestion => to.put(&[0; 16]),
        }
    }

    /// Parses the extension headers of a datagram.
    ///
    /// # Errors
    /// [`Discard::Truncated`] if the packet ends before them.
    pub fn read_datagram(operation: Operation, from: &mut Reader<'_>) -> Result<Self, Discard> {
        let deth = Deth::read(from)?;
        let imm = (operation == Operation::SendOnlyImm).then(|| from.take()).transpose()?;
        Ok(Self::Datagram(Datagram { deth, imm }))
    }

    /// Parses the extension headers of an operation, after the XRC header if there is one.
    ///
    /// # Errors
    /// [`Discard::Truncated`] if the packet ends before them, [`Discard::Syndrome`] if a header has
    /// a reserved syndrome.
    pub fn read(operation: Operation, from: &mut Reader<'_>) -> Result<Self, Discard> {
        use Operation as O;
        let invalidate =
            |from: &mut Reader<'_>| from.u32().map(|key| SendEnd::Invalidate(Rkey(key)));
        let send = |part| Ok(Self::Request(Request::Send(part)));
        let write = |part| Ok(Self::Request(Request::Write(part)));
        let read = |part| Ok(Self::Response(Response::Read(part)));
        match operation {
            O::SendFirst => send(Part::First(())),
            O::SendMiddle => send(Part::Middle),
            O::SendLast => send(Part::Last(SendEnd::Plain)),
            O::SendLastImm => send(Part::Last(SendEnd::Imm(from.take()?))),
            O::SendOnly => send(Part::Only((), SendEnd::Plain)),
            O::SendOnlyImm => send(Part::Only((), SendEnd::Imm(from.take()?))),
            O::SendLastInvalidate => send(Part::Last(invalidate(from)?)),
            O::SendOnlyInvalidate => send(Part::Only((), invalidate(from)?)),
            O::WriteFirst => write(Part::First(Reth::read(from)?)),
            O::WriteMiddle => write(Part::Middle),
            O::WriteLast => write(Part::Last(None)),
            O::WriteLastImm => write(Part::Last(Some(from.take()?))),
            O::WriteOnly => write(Part::Only(Reth::read(from)?, None)),
            O::WriteOnlyImm => write(Part::Only(Reth::read(from)?, Some(from.take()?))),
            O::ReadRequest => Ok(Self::Request(Request::Read(Reth::read(from)?))),
            O::CompareSwap => Ok(Self::Request(Request::CompareSwap(AtomicEth::read(from)?))),
            O::FetchAdd => Ok(Self::Request(Request::FetchAdd(AtomicEth::read(from)?))),
            O::Flush => Ok(Self::Request(Request::Flush(Feth(from.u32()?), Reth::read(from)?))),
            O::AtomicWrite => Ok(Self::Request(Request::AtomicWrite(Reth::read(from)?))),
            O::ReadResponseFirst => read(ReadPart::First(Aeth::read(from)?)),
            O::ReadResponseMiddle => read(ReadPart::Middle),
            O::ReadResponseLast => read(ReadPart::Last(Aeth::read(from)?)),
            O::ReadResponseOnly => read(ReadPart::Only(Aeth::read(from)?)),
            O::Acknowledge => Ok(Self::Response(Response::Acknowledge(Aeth::read(from)?))),
            O::AtomicAcknowledge => {
                Ok(Self::Response(Response::Atomic(Aeth::read(from)?, from.u64()?)))
            }
            O::Congestion => {
                let _reserved: [u8; 16] = from.take()?;
                Ok(Self::Congestion)
            }
        }
    }

    /// Returns whether the operation may have `length` bytes of payload. The path MTU, which
    /// belongs to the QP, is not checked.
    #[must_use]
    pub const fn allows(&self, length: usize) -> bool {
        match self {
            Self::Request(Request::Send(_) | Request::Write(_))
            | Self::Response(Response::Read(_))
            | Self::Datagram(_) => true,
            Self::Request(Request::AtomicWrite(_)) => length == 8,
            Self::Request(_) | Self::Response(_) | Self::Congestion => length == 0,
        }
    }
}
