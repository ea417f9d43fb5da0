// SPDX-License-Identifier: GPL-2.0 OR MIT
//! QP types, states and attributes, as MODIFY_QP and QUERY_QP carry them.

use core::ffi::CStr;

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Qpn;

wire_enum! {
    /// QP types, numbered as `enum ib_qp_type`.
    pub enum Type: u8 {
        /// General services: the datagram QP of the management agents, number [`GSI_QPN`].
        Gsi = 1,
        /// Reliable connection.
        Rc = 2,
        /// Unreliable connection.
        Uc = 3,
        /// Unreliable datagram.
        Ud = 4,
        /// Raw packets: each send is an Ethernet frame, and flow rules ([`crate::flow`]) select the
        /// frames that it receives.
        RawPacket = 8,
        /// XRC initiator: sends to SRQs behind an XRC target, over a reliable connection (IBTA
        /// annex A14).
        XrcIni = 9,
        /// XRC target: receives for all SRQs of an XRC domain.
        XrcTgt = 10,
        /// TCP stream (TOE): the adapter runs a TCP connection whose bytes go from sends to
        /// receives, without messages. Verbs have no number for it, so it is `IB_QPT_DRIVER`.
        Toe = 255,
    }
}

/// The service of a QP type (IBTA volume 1, 9.2.1, and what other networks add).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Messages between two QPs, each of which is acknowledged.
    Reliable,
    /// Messages between two QPs, which may be lost.
    Unreliable,
    /// Datagrams: each send names its destination ([`crate::sq::DatagramSeg`]), and each receive
    /// begins with the network header ([`GRH_LEN`]).
    Datagram,
    /// Ethernet frames.
    RawPacket,
    /// The bytes of a TCP connection.
    Bytes,
}

/// The segment in front of the data of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// None: the QP has one destination, or the frame names it.
    None,
    /// [`crate::sq::DatagramSeg`].
    Address,
    /// [`crate::sq::XrcSeg`].
    Srq,
}

/// The properties of a QP type; [`Type::info`] has a row for each type.
#[derive(Clone, Copy, Debug)]
pub struct TypeInfo {
    /// The name in views of the adapter's objects.
    pub name: &'static CStr,
    /// The service of its QPs.
    pub service: Service,
    /// The type of the QP at the other end of a connection.
    pub peer: Type,
    /// The destination in its sends.
    pub destination: Destination,
    /// True if its QPs have a send queue.
    pub sends: bool,
    /// True if they have receives of their own or of one SRQ.
    pub receives: bool,
    /// True if RoCE adapters have QPs of this type.
    pub roce: bool,
    /// True if iWARP adapters do.
    pub iwarp: bool,
    /// True if its receives ring the doorbell, too, because they open a window.
    pub rings_receives: bool,
}

impl TypeInfo {
    /// Returns whether messages go between two QPs.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        matches!(self.service, Service::Reliable | Service::Unreliable)
    }
}

impl Type {
    /// Returns the properties of the type.
    #[inline]
    #[must_use]
    pub const fn info(self) -> TypeInfo {
        let connected = TypeInfo {
            name: c"RC",
            service: Service::Reliable,
            peer: self,
            destination: Destination::None,
            sends: true,
            receives: true,
            roce: true,
            iwarp: false,
            rings_receives: false,
        };
        let datagram =
            TypeInfo { service: Service::Datagram, destination: Destination::Address, ..connected };
        let xrc = TypeInfo { destination: Destination::Srq, receives: false, ..connected };
        match self {
            Self::Gsi => TypeInfo { name: c"GSI", ..datagram },
            Self::Ud => TypeInfo { name: c"UD", ..datagram },
            Self::Rc => TypeInfo { iwarp: true, ..connected },
            Self::Uc => TypeInfo { name: c"UC", service: Service::Unreliable, ..connected },
            Self::RawPacket => TypeInfo {
                name: c"RAW_PACKET",
                service: Service::RawPacket,
                iwarp: true,
                ..connected
            },
            Self::XrcIni => TypeInfo { name: c"XRC_INI", peer: Self::XrcTgt, ..xrc },
            Self::XrcTgt => TypeInfo { name: c"XRC_TGT", peer: Self::XrcIni, sends: false, ..xrc },
            Self::Toe => TypeInfo {
                name: c"TOE",
                service: Service::Bytes,
                roce: false,
                iwarp: true,
                rings_receives: true,
                ..connected
            },
        }
    }

    /// Returns whether its service is [`Service::Datagram`].
    #[must_use]
    pub const fn is_datagram(self) -> bool {
        matches!(self.info().service, Service::Datagram)
    }
}

/// Number of the general services QP. A port has one; it belongs to context 0.
pub const GSI_QPN: u32 = 1;
/// Number of bytes in front of a datagram in a receive: an IPv6 header, or an IPv4 header in the
/// last 20 of them (IBTA annex A17.4.5.2).
pub const GRH_LEN: u32 = 40;
/// The bit of a queue key in a work request that selects the QP's own one (IBTA volume 1, 10.2).
pub const QKEY_OWN: u32 = 1 << 31;

wire_enum! {
    /// QP states, numbered as `enum ib_qp_state` (IBTA volume 1, 10.3.1).
    pub enum State: u8 {
        /// Reset.
        Reset = 0,
        /// Initialized: receives may be posted.
        Init = 1,
        /// Ready to receive.
        Rtr = 2,
        /// Ready to send.
        Rts = 3,
        /// Send queue drained: no new send is started.
        Sqd = 4,
        /// Send queue error: sends are flushed, and receives continue. RC QPs have this state only
        /// with [`crate::admin::QpFlags::REACTIVE`].
        Sqe = 5,
        /// Error: everything is flushed.
        Err = 6,
    }
}

/// Destination QP of datagrams to a multicast group (IBTA volume 1, 3.5.3).
pub const MULTICAST_QPN: u32 = 0x00ff_ffff;

/// The VLAN id of a frame without a VLAN tag.
pub const NO_VLAN: u16 = 0xffff;

/// The path migration state "migrated" (`IB_MIG_MIGRATED`).
pub const PATH_MIGRATED: u8 = 0;

bitflags! {
    /// The attributes that a MODIFY_QP sets; the bits of `enum ib_qp_attr_mask`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AttrMask: u32 {
        /// `IB_QP_STATE`.
        const STATE = 1 << 0;
        /// `IB_QP_CUR_STATE`.
        const CUR_STATE = 1 << 1;
        /// `IB_QP_EN_SQD_ASYNC_NOTIFY`.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// `IB_QP_ACCESS_FLAGS`.
        const ACCESS_FLAGS = 1 << 3;
        /// `IB_QP_PKEY_INDEX`.
        const PKEY_INDEX = 1 << 4;
        /// `IB_QP_PORT`.
        const PORT = 1 << 5;
        /// `IB_QP_QKEY`.
        const QKEY = 1 << 6;
        /// `IB_QP_AV`.
        const AV = 1 << 7;
        /// `IB_QP_PATH_MTU`.
        const PATH_MTU = 1 << 8;
        /// `IB_QP_TIMEOUT`.
        const TIMEOUT = 1 << 9;
        /// `IB_QP_RETRY_CNT`.
        const RETRY_CNT = 1 << 10;
        /// `IB_QP_RNR_RETRY`.
        const RNR_RETRY = 1 << 11;
        /// `IB_QP_RQ_PSN`.
        const RQ_PSN = 1 << 12;
        /// `IB_QP_MAX_QP_RD_ATOMIC`.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// `IB_QP_ALT_PATH`.
        const ALT_PATH = 1 << 14;
        /// `IB_QP_MIN_RNR_TIMER`.
        const MIN_RNR_TIMER = 1 << 15;
        /// `IB_QP_SQ_PSN`.
        const SQ_PSN = 1 << 16;
        /// `IB_QP_MAX_DEST_RD_ATOMIC`.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// `IB_QP_PATH_MIG_STATE`.
        const PATH_MIG_STATE = 1 << 18;
        /// `IB_QP_CAP`.
        const CAP = 1 << 19;
        /// `IB_QP_DEST_QPN`.
        const DEST_QPN = 1 << 20;
        /// `IB_QP_RATE_LIMIT`.
        const RATE_LIMIT = 1 << 25;
    }
}

bitflags! {
    /// Access rights of regions and QPs; the bits of `enum ib_access_flags`. Bits that are not
    /// named here are hints and are ignored.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u32 {
        /// `IB_ACCESS_LOCAL_WRITE`.
        const LOCAL_WRITE = 1 << 0;
        /// `IB_ACCESS_REMOTE_WRITE`.
        const REMOTE_WRITE = 1 << 1;
        /// `IB_ACCESS_REMOTE_READ`.
        const REMOTE_READ = 1 << 2;
        /// `IB_ACCESS_REMOTE_ATOMIC`.
        const REMOTE_ATOMIC = 1 << 3;
        /// `IB_ACCESS_MW_BIND`.
        const MW_BIND = 1 << 4;
        /// `IB_ZERO_BASED`.
        const ZERO_BASED = 1 << 5;
        /// `IB_ACCESS_FLUSH_GLOBAL`.
        const FLUSH_GLOBAL = 1 << 8;
        /// `IB_ACCESS_FLUSH_PERSISTENT`: a QP can have it, but no region gives it.
        const FLUSH_PERSISTENT = 1 << 9;
        /// `IB_ACCESS_RELAXED_ORDERING`: rules for faults may select such regions. It has no other
        /// effect.
        const RELAXED_ORDERING = 1 << 20;
    }
}

/// The destination of a connected QP or of a datagram.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AddressVector {
    /// Destination GID.
    pub dgid: [u8; 16],
    /// Destination MAC, resolved by the driver.
    pub dmac: [u8; 6],
    /// VLAN id, or [`NO_VLAN`].
    pub vlan: U16,
    /// Index of the source GID.
    pub sgid_index: U16,
    /// Service level.
    pub sl: u8,
    /// Hop limit, or time to live, of packets on this path.
    pub hop_limit: u8,
    /// Traffic class, or type of service, of packets on this path.
    pub traffic_class: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// Flow label, 20 bits.
    pub flow_label: U32,
    /// Zero.
    pub reserved2: U32,
}

/// Attributes of a QP. MODIFY_QP reads those that its mask names; QUERY_QP writes all.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Attr {
    /// The state of the QP: a [`State`].
    pub state: u8,
    /// The state in which the caller believes the QP to be.
    pub cur_state: u8,
    /// `enum ib_mtu`: 1 = 256 … 5 = 4096 bytes.
    pub path_mtu: u8,
    /// Port number, 1.
    pub port: u8,
    /// [`Access`]: the rights of the peer.
    pub access: U32,
    /// Index of the partition key in the port's table.
    pub pkey_index: U16,
    /// Maximum number of outstanding READs and atomics as requester.
    pub max_rd_atomic: u8,
    /// Maximum number of READs and atomics accepted at a time as responder.
    pub max_dest_rd_atomic: u8,
    /// RNR timer code, 0–31 (IBTA volume 1, table 45).
    pub min_rnr_timer: u8,
    /// ACK timeout code: 4.096 µs · 2^n, 0 = none.
    pub timeout: u8,
    /// Transport retries, 0–7.
    pub retry_cnt: u8,
    /// RNR retries, 0–6; 7 means no limit.
    pub rnr_retry: u8,
    /// Queue key.
    pub qkey: U32,
    /// First expected PSN.
    pub rq_psn: U32,
    /// First PSN that is sent.
    pub sq_psn: U32,
    /// The peer's QP.
    pub dest_qpn: Qpn,
    /// With [`AttrMask::EN_SQD_ASYNC_NOTIFY`], asks for the drained event.
    pub en_sqd_async_notify: u8,
    /// Not zero in QUERY_QP while the send queue drains.
    pub sq_draining: u8,
    /// Path migration state: always [`PATH_MIGRATED`], as there is one path.
    pub path_mig_state: u8,
    /// Zero.
    pub reserved: u8,
    /// Maximum rate at which the send queue begins messages, in kbit/s; 0 is no limit.
    pub rate_limit: U32,
    /// Path to the peer.
    pub av: AddressVector,
}

const _: () = assert!(size_of::<AddressVector>() == 40);
const _: () = assert!(size_of::<Attr>() == 80);
