// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Event queues, completion queues and QPs.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Cqn, Eqn, GuestAddr, Pdn, Qpn, SlotIndex, Srqn, UarIndex, Xrcdn};

use super::Pages;
use crate::connection::Received;

/// Parameters of CREATE_EQ: a completion event queue.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateEq {
    /// Memory of the ring.
    pub pages: Pages,
    /// MSI-X vector, 1 and up.
    pub vector: U16,
    /// log2 of the entries, 4 to [`crate::eq::LOG_SIZE_MAX`].
    pub log_size: u8,
}

impl CreateEq {
    /// Returns parameters with these values.
    #[must_use]
    pub const fn new(pages: Pages, vector: u16, log_size: u8) -> Self {
        Self { pages, vector: U16::new(vector), log_size }
    }
}

/// Result of CREATE_EQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EqResult {
    /// The EQ.
    pub eqn: Eqn,
    /// The EQ's slot in UAR 0.
    pub slot: SlotIndex,
}

impl EqResult {
    /// Returns a result with these values.
    #[must_use]
    pub const fn new(eqn: Eqn, slot: SlotIndex) -> Self {
        Self { eqn, slot }
    }
}

/// Parameters of CREATE_CQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateCq {
    /// Memory of the ring, zeroed by its owner.
    pub pages: Pages,
    /// The UAR in which the CQ gets its slot. It also determines the context.
    pub uar: UarIndex,
    /// The completion event queue for its events.
    pub eqn: Eqn,
    /// log2 of the entries, 0 to [`crate::cq::LOG_CQES_MAX`].
    pub log_size: u8,
    /// Bits of [`CqFlags`].
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// With [`CqFlags::HOLDING`], [`crate::eq::Kind::CqFew`] is raised when at most this many
    /// entries are free, fewer than the CQ has; zero for no event.
    pub few: U32,
}

impl CreateCq {
    /// Returns parameters with these values, for a CQ that fails when it is full.
    #[must_use]
    pub fn new(uar: impl Into<UarIndex>, eqn: impl Into<Eqn>, log_size: u8, pages: Pages) -> Self {
        Self { pages, uar: uar.into(), eqn: eqn.into(), log_size, ..Self::default() }
    }

    /// Returns the same parameters for a holding CQ that reports when at most `few` entries are
    /// free.
    #[must_use]
    pub fn holding(self, few: u32) -> Self {
        Self { flags: CqFlags::HOLDING.bits(), few: few.into(), ..self }
    }

    /// Returns the same parameters for a CQ that loses entries when it is full.
    #[must_use]
    pub fn ignoring_overruns(self) -> Self {
        Self { flags: CqFlags::IGNORE_OVERRUN.bits(), ..self }
    }
}

bitflags! {
    /// Bits of [`CreateCq::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CqFlags: u8 {
        /// When the CQ is full, the device holds its entries back until there is room, and the QPs
        /// that need one wait (docs/adapter.md, section 7). Otherwise the CQ fails.
        const HOLDING = 1 << 0;
        /// When the CQ is full, further entries are lost, and the CQ does not fail.
        const IGNORE_OVERRUN = 1 << 1;
    }
}

/// Parameters of MODIFY_CQ: interrupt moderation.
///
/// An event that is due waits until `count` completions have arrived, or until `period` has passed
/// since the first of them, whichever is earlier. A `count` below 2 or a `period` below 1 ends the
/// moderation.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ModifyCq {
    /// The CQ.
    pub cqn: Cqn,
    /// Number of completions.
    pub count: U16,
    /// Time in microseconds.
    pub period: U16,
}

impl ModifyCq {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(cqn: impl Into<Cqn>, count: u16, period: u16) -> Self {
        Self { cqn: cqn.into(), count: U16::new(count), period: U16::new(period) }
    }
}

/// Result of CREATE_CQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CqResult {
    /// The CQ.
    pub cqn: Cqn,
    /// The CQ's slot in the UAR.
    pub slot: SlotIndex,
}

impl CqResult {
    /// Returns a result with these values.
    #[must_use]
    pub const fn new(cqn: Cqn, slot: SlotIndex) -> Self {
        Self { cqn, slot }
    }
}

/// Parameters of RESIZE_CQ: another ring, of another size, for a CQ in use.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ResizeCq {
    /// Memory of the new ring. Its stamps must differ from those that its entries get in the first
    /// round; see docs/adapter.md.
    pub pages: Pages,
    /// The CQ.
    pub cqn: Cqn,
    /// log2 of the entries, 0 to [`crate::cq::LOG_CQES_MAX`].
    pub log_size: u8,
}

impl ResizeCq {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(cqn: impl Into<Cqn>, log_size: u8, pages: Pages) -> Self {
        Self { pages, cqn: cqn.into(), log_size }
    }
}

/// Result of RESIZE_CQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ResizeCqResult {
    /// The first index in the new ring. Entries before it are in the old ring.
    pub first: U32,
}

impl ResizeCqResult {
    /// Returns a result with these values.
    #[must_use]
    pub const fn new(first: u32) -> Self {
        Self { first: U32::new(first) }
    }
}

bitflags! {
    /// Bits of [`CreateQp::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QpFlags: u8 {
        /// The send queue is in device memory. `sq` is zero, and the device allocates the memory.
        const SQ_IN_DEVICE = 1 << 0;
        /// Every send work request is signaled.
        const SIGNAL_ALL = 1 << 1;
        /// If a REG_MR, LOCAL_INV, BIND_MW or SEND_CMD is refused, only the send queue fails: the
        /// QP moves to [`crate::qp::State::Sqe`], where sends are flushed, and receives and the
        /// peer's requests continue. MODIFY_QP moves it back to RTS. Without this flag, the QP and
        /// its peer move to the error state.
        const REACTIVE = 1 << 2;
        /// The QP, of raw packets, has no queues, and spreads the frames of its flow rules over
        /// other QPs. `rq_table` is the guest address of a [`crate::rss::Spread`], 8-byte aligned;
        /// the page shift and the levels are zero. Its CQs get no entries, and its state has no
        /// effect.
        const SPREADS = 1 << 3;
        /// A receive of a [`crate::qp::Type::Toe`] QP also completes after the last byte of a
        /// segment with the flag PSH. Without this flag, it completes when it is full, or at the
        /// end of the stream.
        const PUSH = 1 << 4;
        /// The send queue makes no keys valid: REG_MR, BIND_MW and SEND_CMD are refused. For
        /// devices with [`super::DeviceFeatures::KEY_OPTIONS`].
        const NO_SQ_KEYS = 1 << 5;
        /// The peer reaches memory by windows and command regions only, not by regions. For
        /// devices with [`super::DeviceFeatures::KEY_OPTIONS`].
        const WINDOWS_ONLY = 1 << 6;
        /// A send of a QP with a TCP connection is complete when the number of bytes that the peer
        /// has not acknowledged shows it. Without this flag, the number of its last byte does. For
        /// QPs with messages, the device must have [`super::DeviceFeatures::ACKNOWLEDGED`].
        const QUEUE_LENGTH = 1 << 7;
    }
}

bitflags! {
    /// Bits of [`CreateQp::options`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct QpOptions: u8 {
        /// The multicast datagrams of the QP are not delivered to QPs of the same function. For
        /// devices with [`super::DeviceFeatures::BLOCK_LOOPBACK`].
        const BLOCK_LOOPBACK = 1 << 0;
        /// No message of the QP, of iWARP, completes before the peer has acknowledged all of it:
        /// short ones are not copied for peers that acknowledge late. For devices with
        /// [`super::DeviceFeatures::ACKNOWLEDGED`].
        const ACKNOWLEDGED = 1 << 1;
    }
}

wire_enum! {
    /// The place of a command region's key in a command, and in its response.
    pub enum TagForm: u8 {
        /// The QP has no commands.
        None = 0,
        /// In a response, the key is at [`CreateQp::tag_offset`]. In a command, it is at
        /// [`crate::sq::CommandSeg::tag_offset`]. If it is all ones, or if the message is too short
        /// for it, the message is not a response.
        General = 1,
        /// Messages contain an iSCSI basic header segment at [`CreateQp::tag_offset`], and the key
        /// is the initiator task tag (RFC 7143, 11.2.1.8). SCSI responses, and data-in with status,
        /// end the command.
        Iscsi = 2,
    }
}

/// Parameters of CREATE_QP. Both rings must be zeroed and start at page offset 0. A ring of log
/// size 0xff does not exist.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateQp {
    /// Page table of the send queue, as [`Pages::table`].
    pub sq_table: GuestAddr,
    /// Page table of the receive queue; see also [`QpFlags::SPREADS`].
    pub rq_table: GuestAddr,
    /// Page size and levels of both, as in [`Pages`].
    pub sq_page_shift: u8,
    /// See [`Pages::levels`].
    pub sq_levels: u8,
    /// See [`Pages::page_shift`].
    pub rq_page_shift: u8,
    /// See [`Pages::levels`].
    pub rq_levels: u8,
    /// log2 of the entries of the send queue, or [`NO_QUEUE`].
    pub sq_log_size: u8,
    /// log2 of the stride of the send queue: 6 to 9.
    pub sq_log_stride: u8,
    /// log2 of the entries of the receive queue, or [`NO_QUEUE`].
    pub rq_log_size: u8,
    /// log2 of the stride of the receive queue: 5 to 9.
    pub rq_log_stride: u8,
    /// The PD; zero for an XRC target, which has none, because the keys of its peer belong to the
    /// PDs of the SRQs.
    pub pdn: Pdn,
    /// CQ of the send queue. The CQs of an XRC target, and the receive CQ of an XRC initiator, get
    /// no entries.
    pub send_cqn: Cqn,
    /// CQ of the receive queue.
    pub recv_cqn: Cqn,
    /// The UAR in which the QP gets its slot.
    pub uar: UarIndex,
    /// A [`crate::qp::Type`].
    pub qp_type: u8,
    /// [`QpFlags`].
    pub flags: u8,
    /// The place of the tag in messages: a [`TagForm`].
    pub tag_form: u8,
    /// [`QpOptions`].
    pub options: u8,
    /// See [`TagForm`].
    pub tag_offset: U32,
    /// The SRQ from which receives are taken instead of a receive queue; zero for none.
    pub srqn: Srqn,
    /// The XRC domain of an XRC target; otherwise zero.
    pub xrcdn: Xrcdn,
}

/// The log size of a queue that does not exist.
pub const NO_QUEUE: u8 = 0xff;

/// Result of CREATE_QP.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QpResult {
    /// The QP.
    pub qpn: Qpn,
    /// The QP's slot in the UAR.
    pub slot: SlotIndex,
    /// Offset of the send queue in BAR2 with [`QpFlags::SQ_IN_DEVICE`], a multiple of
    /// [`crate::uar::SQ_MEMORY_UNIT`]; otherwise zero.
    pub sq_offset: U64,
}

impl QpResult {
    /// Returns a result with these values.
    #[must_use]
    pub const fn new(qpn: Qpn, slot: SlotIndex, sq_offset: u64) -> Self {
        Self { qpn, slot, sq_offset: U64::new(sq_offset) }
    }
}

/// Parameters of MODIFY_QP.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ModifyQp {
    /// Guest address of a [`crate::qp::Attr`], 8-byte aligned.
    pub attr_addr: GuestAddr,
    /// The QP.
    pub qpn: Qpn,
    /// [`crate::qp::AttrMask`].
    pub mask: U32,
}

impl ModifyQp {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(qpn: impl Into<Qpn>, mask: u32, attr_addr: impl Into<GuestAddr>) -> Self {
        Self { attr_addr: attr_addr.into(), qpn: qpn.into(), mask: U32::new(mask) }
    }
}

/// Parameters of OPEN_CONNECTION.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OpenConnection {
    /// Guest address of a [`crate::connection::Connection`], 8-byte aligned.
    pub addr: GuestAddr,
    /// The QP. It must be in the state INIT.
    pub qpn: Qpn,
    /// Zero.
    pub reserved: U32,
}

impl OpenConnection {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(qpn: impl Into<Qpn>, addr: impl Into<GuestAddr>) -> Self {
        Self { addr: addr.into(), qpn: qpn.into(), reserved: U32::ZERO }
    }
}

/// Parameters of START_RDMA.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StartRdma {
    /// Bytes that the guest's program has received and that belong to the first messages. Those
    /// that the QP still has follow them.
    pub received: Received,
    /// The QP that has the connection, of type [`crate::qp::Type::Toe`].
    pub from: Qpn,
    /// The QP that gets it. It must be in the state INIT.
    pub to: Qpn,
    /// Maximum number of READs and atomics of the peer that the adapter serves at a time.
    pub ird: U16,
    /// Maximum number of outstanding READs and atomics of the adapter.
    pub ord: U16,
    /// [`crate::connection::StartFlags`].
    pub flags: U32,
}

/// Parameters of CLOSE_CONNECTION.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CloseConnection {
    /// The QP. It must have a connection, or have had one since it left RESET.
    pub qpn: Qpn,
    /// A [`crate::connection::Closing`].
    pub how: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

/// Result of CLOSE_CONNECTION.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CloseResult {
    /// A [`crate::connection::Closed`].
    pub closed: u8,
}

/// Parameters of MOVE_CONNECTION.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MoveConnection {
    /// The QP. It must have a connection.
    pub qpn: Qpn,
    /// MAC of the local interface.
    pub smac: [u8; 6],
    /// MAC of the next hop on the path to the peer.
    pub dmac: [u8; 6],
}

impl MoveConnection {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(qpn: impl Into<Qpn>, smac: [u8; 6], dmac: [u8; 6]) -> Self {
        Self { qpn: qpn.into(), smac, dmac }
    }
}

/// Parameters of QUERY_CONNECTION.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QueryConnection {
    /// Guest address of the [`crate::connection::ConnectionStatus`] to fill, 8-byte aligned.
    pub addr: GuestAddr,
    /// The QP. It must have had a connection since it left RESET.
    pub qpn: Qpn,
}

impl QueryConnection {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(qpn: impl Into<Qpn>, addr: impl Into<GuestAddr>) -> Self {
        Self { addr: addr.into(), qpn: qpn.into() }
    }
}

/// Parameters of CREATE_FLOW.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateFlow {
    /// Guest address of a [`crate::flow::Rule`], 8-byte aligned.
    pub addr: GuestAddr,
    /// The QP, of raw packets. It cannot be destroyed before its rules.
    pub qpn: Qpn,
    /// Zero.
    pub reserved: U32,
}

impl CreateFlow {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(qpn: impl Into<Qpn>, addr: impl Into<GuestAddr>) -> Self {
        Self { addr: addr.into(), qpn: qpn.into(), reserved: U32::ZERO }
    }
}

/// Parameters of QUERY_QP.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QueryQp {
    /// Guest address of the [`crate::qp::Attr`] to fill, 8-byte aligned.
    pub attr_addr: GuestAddr,
    /// The QP.
    pub qpn: Qpn,
}

impl QueryQp {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(qpn: impl Into<Qpn>, attr_addr: impl Into<GuestAddr>) -> Self {
        Self { attr_addr: attr_addr.into(), qpn: qpn.into() }
    }
}

/// Parameters of ATTACH_MCAST and DETACH_MCAST: a UD QP becomes a member of a multicast group, or
/// leaves it.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Mcast {
    /// The group's address: an IPv6 multicast address, or an IPv4 one mapped into IPv6.
    pub gid: [u8; 16],
    /// The QP.
    pub qpn: Qpn,
}

impl Mcast {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(qpn: impl Into<Qpn>, gid: [u8; 16]) -> Self {
        Self { gid, qpn: qpn.into() }
    }
}
