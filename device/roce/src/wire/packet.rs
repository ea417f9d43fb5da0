//! A packet from the base transport header (BTH) to the padding.

use vrnic_packet::{NoRoom, Reader, Writer};

use super::body::{Body, Request};
use super::numbers::{Qpn, Srqn};
use super::opcode::{Opcode, Transport};
use crate::discard::Discard;
use crate::psn::Psn;

/// Bytes of a base transport header.
pub const BTH_LEN: usize = 12;

/// The partition key of the default partition, with full membership. RoCE uses no other.
pub const DEFAULT_PKEY: u16 = 0xffff;

const SOLICITED: u8 = 1 << 7;
const MIGRATED: u8 = 1 << 6;
const PAD_SHIFT: u8 = 4;
const VERSION: u8 = 0x0f;
const FORWARD: u8 = 1 << 7;
const BACKWARD: u8 = 1 << 6;
const ACK_REQUEST: u32 = 1 << 31;

/// The base transport header, without opcode and padding, which follow from the rest of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The transport that the first bits of the opcode name.
    pub transport: Transport,
    /// Asks for a solicited event at the receiver.
    pub solicited: bool,
    /// State of path migration: true for "migrated", as sent by adapters without migration.
    pub migrated: bool,
    /// The partition key.
    pub pkey: u16,
    /// True if a switch has marked the packet (FECN).
    pub forward_congestion: bool,
    /// True if the packet notifies its receiver of congestion (BECN).
    pub backward_congestion: bool,
    /// The destination QP.
    pub destination: Qpn,
    /// Asks for an acknowledgement.
    pub ack_request: bool,
    /// The sequence number.
    pub psn: Psn,
    /// The SRQ of the target for a request of XRC.
    pub srqn: Srqn,
}

impl Head {
    /// Returns a header with only transport, destination and number.
    #[must_use]
    pub const fn new(transport: Transport, destination: Qpn, psn: Psn) -> Self {
        Self {
            transport,
            solicited: false,
            migrated: true,
            pkey: DEFAULT_PKEY,
            forward_congestion: false,
            backward_congestion: false,
            destination,
            ack_request: false,
            psn,
            srqn: Srqn::new(0),
        }
    }

    /// Returns the header of a congestion notification to a QP (A17.9).
    #[must_use]
    pub const fn congestion(destination: Qpn) -> Self {
        let head = Self::new(Transport::Cnp, destination, Psn::new(0));
        Self { migrated: false, backward_congestion: true, ..head }
    }

    /// Writes the base transport header, the extension headers of `body`, and no payload.
    ///
    /// # Errors
    /// [`NoRoom`] if they do not fit, or the transport does not have the operation.
    pub fn write(&self, body: &Body, payload: usize, to: &mut Writer<'_>) -> Result<(), NoRoom> {
        let opcode = match body {
            Body::Congestion => Some(Opcode::CNP),
            _ => Opcode::new(self.transport, body.operation()),
        };
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        to.put(&[
            opcode.ok_or(NoRoom)?.number(),
            flag(self.solicited, SOLICITED)
                | flag(self.migrated, MIGRATED)
                | padding(payload) << PAD_SHIFT,
        ])?;
        to.u16(self.pkey)?;
        let congestion =
            flag(self.forward_congestion, FORWARD) | flag(self.backward_congestion, BACKWARD);
        to.u32(u32::from(congestion) << 24 | self.destination.get())?;
        to.u32(if self.ack_request { ACK_REQUEST } else { 0 } | self.psn.get())?;
        if has_xrc_header(self.transport, body) {
            to.u32(self.srqn.get())?;
        }
        body.write(to)
    }
}

/// Returns the number of bytes that fill a payload up to a multiple of four.
#[must_use]
pub const fn padding(payload: usize) -> u8 {
    // CAST: the value is below 4.
    (payload.wrapping_neg() % 4) as u8
}

/// Returns whether a packet has the XRC header with the SRQ: requests of XRC have it, answers do
/// not (A14).
const fn has_xrc_header(transport: Transport, body: &Body) -> bool {
    matches!(transport, Transport::Xrc) && matches!(body, Body::Request(_))
}

/// A received packet whose headers have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The base transport header.
    pub head: Head,
    /// The operation.
    pub body: Body,
    /// The payload without its padding.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses a packet. `bytes` begin with the base transport header and end before the ICRC.
    ///
    /// # Errors
    /// The reason for which the packet is dropped. Its destination QP is not checked.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Discard> {
        let mut from = Reader::new(bytes);
        let [number, flags] = from.take()?;
        let pkey = from.u16()?;
        let (destination, sequence) = (from.u32()?, from.u32()?);
        let [congestion, ..] = destination.to_be_bytes();
        if flags & VERSION != 0 {
            return Err(Discard::Version);
        }
        let opcode = Opcode::from_number(number).ok_or(Discard::Opcode)?;
        let transport = opcode.transport();
        let (srqn, body) = body(opcode, &mut from)?;
        let pad = usize::from(flags >> PAD_SHIFT & 3);
        let rest = from.rest();
        let length = rest.len().checked_sub(pad).ok_or(Discard::Truncated)?;
        let payload = rest.get(..length).ok_or(Discard::Truncated)?;
        if !body.allows(length) || usize::from(padding(length)) != pad {
            return Err(Discard::PayloadLength);
        }
        let head = Head {
            transport,
            solicited: flags & SOLICITED != 0,
            migrated: flags & MIGRATED != 0,
            pkey,
            forward_congestion: congestion & FORWARD != 0,
            backward_congestion: congestion & BACKWARD != 0,
            destination: Qpn::new(destination),
            ack_request: sequence & ACK_REQUEST != 0,
            psn: Psn::new(sequence),
            srqn,
        };
        Ok(Self { head, body, payload })
    }
}

/// Parses the headers between base transport header and payload.
fn body(opcode: Opcode, from: &mut Reader<'_>) -> Result<(Srqn, Body), Discard> {
    let operation = opcode.operation();
    match opcode.transport() {
        Transport::Ud => Ok((Srqn::default(), Body::read_datagram(operation, from)?)),
        Transport::Xrc if is_request(operation) => {
            let srqn = Srqn::new(from.u32()?);
            Ok((srqn, Body::read(operation, from)?))
        }
        _ => Ok((Srqn::default(), Body::read(operation, from)?)),
    }
}

/// Returns whether an operation is a request. The answers are consecutive in the table.
const fn is_request(operation: super::opcode::Operation) -> bool {
    use super::opcode::Operation as O;
    !matches!(
        operation,
        O::ReadResponseFirst
            | O::ReadResponseMiddle
            | O::ReadResponseLast
            | O::ReadResponseOnly
            | O::Acknowledge
            | O::AtomicAcknowledge
    )
}

impl Packet<'_> {
    /// Returns the request, if the packet is a request of a connected QP.
    #[must_use]
    pub const fn request(&self) -> Option<Request> {
        match self.body {
            Body::Request(request) => Some(request),
            _ => None,
        }
    }
}
