//! Opcodes of what rules look at: of packets, which are those of RoCE and of the iWARP messages in
//! TCP segments, and of work requests, completions, events and admin commands.

use std::fmt;
use std::str::FromStr;

use vrnic_abi::{admin, cq, eq, sq};
use vrnic_iwarp::wire::ddp::{Header, Model};
use vrnic_iwarp::wire::fpdu::LENGTH;
use vrnic_iwarp::wire::rdmap;
use vrnic_roce::Psn;
use vrnic_roce::wire::Frame as RoceFrame;
use vrnic_roce::wire::opcode::{Opcode as Roce, UnknownOpcode};
use vrnic_tcp::wire::Frame as TcpFrame;

use crate::action::Site;
use crate::names::{self, name_of};

/// The opcode by which rules select packets and other things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A packet of RoCE.
    Roce(Roce),
    /// A TCP segment that begins with an FPDU of a message with this opcode. Others may follow.
    Fpdu(rdmap::Opcode),
    /// A TCP segment with other data: a start frame, the second part of an FPDU, or an FPDU after
    /// a marker.
    TcpData,
    /// A TCP segment without data: an acknowledgement, a FIN, or a reset.
    TcpEmpty,
    /// A work request of a send queue.
    Request(sq::Opcode),
    /// A completion of a work request with this opcode.
    Completion(cq::Opcode),
    /// An event of this kind in an event queue.
    Event(eq::Kind),
    /// An admin command.
    Command(admin::Opcode),
}

/// Messages of iWARP with their names.
const MESSAGES: [(rdmap::Opcode, &str); 12] = [
    (rdmap::Opcode::Write, "iwarp-write"),
    (rdmap::Opcode::ReadRequest, "iwarp-read-request"),
    (rdmap::Opcode::ReadResponse, "iwarp-read-response"),
    (rdmap::Opcode::Send, "iwarp-send"),
    (rdmap::Opcode::SendInvalidate, "iwarp-send-invalidate"),
    (rdmap::Opcode::SendSolicited, "iwarp-send-solicited"),
    (rdmap::Opcode::SendSolicitedInvalidate, "iwarp-send-solicited-invalidate"),
    (rdmap::Opcode::Terminate, "iwarp-terminate"),
    (rdmap::Opcode::Immediate, "iwarp-immediate"),
    (rdmap::Opcode::ImmediateSolicited, "iwarp-immediate-solicited"),
    (rdmap::Opcode::AtomicRequest, "iwarp-atomic-request"),
    (rdmap::Opcode::AtomicResponse, "iwarp-atomic-response"),
];
const TCP_DATA: &str = "tcp-data";
const TCP_EMPTY: &str = "tcp-empty";

impl Opcode {
    /// Returns the opcode with this name at the place `site`.
    pub(crate) fn named(site: Site, name: &str) -> Option<Self> {
        match site {
            Site::Packet => name.parse().ok(),
            Site::Request | Site::Message | Site::Copy => names::request(name).map(Self::Request),
            Site::Completion | Site::Entry => names::completion(name).map(Self::Completion),
            Site::Event => names::event(name).map(Self::Event),
            Site::Command => names::command(name).map(Self::Command),
            Site::Receive | Site::Interrupt | Site::Turn | Site::State => None,
        }
    }

    /// Returns the opcode of a frame of RoCE or TCP, and the sequence number of a packet of RoCE.
    #[must_use]
    pub fn of_frame(bytes: &[u8]) -> Option<(Self, Option<Psn>)> {
        match RoceFrame::parse(bytes).ok()? {
            Some(packet) => {
                let (opcode, psn) = packet.operation()?;
                Some((Self::Roce(opcode), Some(psn)))
            }
            None => {
                let segment = TcpFrame::parse(bytes).ok()??.segment;
                Some((Self::of_segment(segment.payload), None))
            }
        }
    }

    /// Returns the opcode of a TCP segment with this data.
    #[must_use]
    pub fn of_segment(data: &[u8]) -> Self {
        match data {
            [] => Self::TcpEmpty,
            _ => message(data).map_or(Self::TcpData, Self::Fpdu),
        }
    }
}

/// Returns the opcode of the FPDU at the beginning of a segment, if there is one.
fn message(data: &[u8]) -> Option<rdmap::Opcode> {
    let (header, _) = Header::parse(data.get(LENGTH..)?).ok()?;
    let opcode = rdmap::Opcode::of(header.control)?;
    let queue = match header.model {
        Model::Tagged(_) => None,
        Model::Untagged { queue, .. } => Some(queue),
    };
    (opcode.control() == header.control && opcode.queue() == queue).then_some(opcode)
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Roce(opcode) => return opcode.fmt(f),
            Self::Fpdu(opcode) => MESSAGES.iter().find(|(of, _)| of == opcode),
            Self::TcpData => return f.write_str(TCP_DATA),
            Self::TcpEmpty => return f.write_str(TCP_EMPTY),
            Self::Request(opcode) => return f.write_str(&name_of(opcode)),
            Self::Completion(opcode) => return f.write_str(&name_of(opcode)),
            Self::Event(kind) => return f.write_str(&name_of(kind)),
            Self::Command(opcode) => return f.write_str(&name_of(opcode)),
        };
        f.write_str(name.map_or("", |(_, name)| name))
    }
}

impl FromStr for Opcode {
    type Err = UnknownOpcode;

    fn from_str(name: &str) -> Result<Self, UnknownOpcode> {
        match name {
            TCP_DATA => Ok(Self::TcpData),
            TCP_EMPTY => Ok(Self::TcpEmpty),
            _ => match MESSAGES.iter().find(|(_, of)| *of == name) {
                Some((opcode, _)) => Ok(Self::Fpdu(*opcode)),
                None => name.parse().map(Self::Roce),
            },
        }
    }
}
