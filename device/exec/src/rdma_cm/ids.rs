//! Communication identifiers (`struct rdma_cm_id`).

use std::net::SocketAddr;

use vrnic_cm::manager::ConnectionId;
use vrnic_cm::parameters::{Ece, Path, Transport};

use super::wire::{PS_IB, PS_IPOIB, PS_TCP, PS_UDP};
use crate::trap::task::FileId;

/// `RDMA_UDP_QKEY`: the key of all queue pairs of datagrams.
pub const UDP_QKEY: u32 = 0x0123_4567;
/// Types of queue pairs (`enum ib_qp_type`).
const RC: u8 = 2;
const UC: u8 = 3;
const UD: u8 = 4;
const XRC_INI: u8 = 9;
const XRC_TGT: u8 = 10;

/// What an identifier is used for (`enum rdma_cm_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// For nothing yet.
    Idle,
    /// An address.
    AddrBound,
    /// A way to an address, for which the network is asked.
    AddrQuery,
    /// A way to an address, whose adapter is known.
    AddrResolved,
    /// A way that is known.
    RouteResolved,
    /// A connection, or its begin.
    Connect,
    /// A connection that has ended.
    Disconnect,
    /// Requests of peers.
    Listen,
}

/// The type of queue pairs of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpKind {
    /// Queue pairs with a connection.
    Connected(Transport),
    /// Queue pairs of datagrams.
    Datagram,
    /// A number that is no type, or one that cannot be connected.
    Other,
}

/// The adapter of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The number of the adapter.
    pub adapter: usize,
    /// The index of the GID.
    pub gid_index: u8,
    /// The GID of the own address.
    pub gid: [u8; 16],
}

/// An identifier.
#[derive(Clone, Debug)]
pub struct CmId {
    /// The file that gets its events.
    pub file: FileId,
    /// The program's number for it. Zero means that it gets no events yet.
    pub uid: u64,
    /// The port space.
    pub space: u16,
    /// The type of queue pairs.
    pub kind: QpKind,
    /// What it is used for.
    pub stage: Stage,
    /// The own address.
    pub source: Option<SocketAddr>,
    /// The address of the peer.
    pub dest: Option<SocketAddr>,
    /// True if it holds the port of its own address.
    pub holds_port: bool,
    /// The adapter.
    pub attached: Option<Attached>,
    /// The way to the peer.
    pub path: Option<Path>,
    /// The connection of the adapter's connection manager.
    pub connection: Option<ConnectionId>,
    /// The adapters on which it listens, and the service there.
    pub listens: Vec<(usize, u64)>,
    /// Number of requests that may wait until the program reads them.
    pub backlog: u32,
    /// Number of events that the program has read.
    pub events_reported: u32,
    /// True if others may use the same address.
    pub reuses_address: bool,
    /// Whether it is only for addresses of one family, if the program says so.
    pub one_family: Option<bool>,
    /// The traffic class.
    pub tos: u8,
    /// The exponent of the ACK timeout, if the program has set it.
    pub ack_timeout: Option<u8>,
    /// The number of the first packet that the peer sends.
    pub psn: u32,
    /// The key of the queue pair, of datagrams.
    pub qkey: u32,
    /// Enhanced connection establishment.
    pub ece: Ece,
}

/// A membership in a multicast group.
#[derive(Clone, Copy, Debug)]
pub struct Membership {
    /// The identifier.
    pub owner: u32,
    /// Number of events that the program has read.
    pub events_reported: u32,
}

impl QpKind {
    /// Returns the type for a port space, and the program's type if the space leaves that open.
    /// `None` if there is no such port space (`ucma_get_qp_type`).
    #[must_use]
    pub fn of(space: u16, qp_type: u8) -> Option<Self> {
        match space {
            PS_TCP => Some(Self::Connected(Transport::Rc)),
            PS_UDP | PS_IPOIB => Some(Self::Datagram),
            PS_IB => Some(match qp_type {
                RC => Self::Connected(Transport::Rc),
                UC => Self::Connected(Transport::Uc),
                XRC_INI | XRC_TGT => Self::Connected(Transport::Xrc),
                UD => Self::Datagram,
                _ => Self::Other,
            }),
            _ => None,
        }
    }

    /// Returns whether the type is that of datagrams.
    #[must_use]
    pub fn is_datagram(self) -> bool {
        self == Self::Datagram
    }
}

impl CmId {
    /// Returns an identifier that is used for nothing.
    #[must_use]
    pub fn new(file: FileId, uid: u64, space: u16, kind: QpKind, psn: u32) -> Self {
        Self {
            file,
            uid,
            space,
            kind,
            stage: Stage::Idle,
            source: None,
            dest: None,
            holds_port: false,
            attached: None,
            path: None,
            connection: None,
            listens: Vec::new(),
            backlog: 0,
            events_reported: 0,
            reuses_address: false,
            one_family: None,
            tos: 0,
            ack_timeout: None,
            psn,
            qkey: 0,
            ece: Ece::default(),
        }
    }

    /// Returns whether it is only for addresses of one family. Those of IPv6 are also for IPv4 if
    /// the program does not say otherwise.
    #[must_use]
    pub fn is_one_family(&self) -> bool {
        self.one_family.unwrap_or(self.source.is_none_or(|source| source.is_ipv4()))
    }
}
