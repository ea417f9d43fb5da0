//! Opcodes of packets: the opcodes of RoCE, and the opcodes of the iWARP messages in TCP segments.

use std::fmt;
use std::str::FromStr;

use vrnic_iwarp::wire::ddp::{Header, Model};
use vrnic_iwarp::wire::fpdu::LENGTH;
use vrnic_iwarp::wire::rdmap;
use vrnic_roce::wire::opcode::{Opcode as Roce, UnknownOpcode};

/// The opcode of a packet, by which rules select it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// A packet of RoCE.
    Roce(Roce),
    /// A TCP segment that begins with an FPDU of a message with this opcode. Others may follow.
    Fpdu(rdmap::Opcode),
    /// A TCP segment with other data: a start frame, the second part of an FPDU, or an FPDU behind
    /// a marker.
    TcpData,
    /// A TCP segment without data: an acknowledgement, a FIN, or a reset.
    TcpEmpty,
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
