// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Snapshots of objects, for debugging. INSPECT lists the objects of one kind in ascending order of
//! their numbers, as many as fit into a buffer.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{ContextId, Cqn, Eqn, GuestAddr, Key, Pdn, Qpn, SlotIndex, Srqn, UarIndex, Xrcdn};

/// [`InspectResult::next`] after the last object; in records, an absent number.
pub const NONE: u32 = u32::MAX;

wire_enum! {
    /// Kinds of objects that INSPECT lists.
    pub enum Inspected: u8 {
        /// [`QpRecord`].
        Qp = 1,
        /// [`CqRecord`].
        Cq = 2,
        /// [`EqRecord`]; number 0 is the asynchronous event queue.
        Eq = 3,
        /// [`SrqRecord`].
        Srq = 4,
        /// [`KeyRecord`]; the number is the index, the upper 24 bits of a key.
        Key = 5,
        /// [`ConnectionRecord`]; the number is the QP's.
        Connection = 6,
    }
}

/// Parameters of INSPECT.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Inspect {
    /// Guest address of the buffer for records, 8-byte aligned.
    pub addr: GuestAddr,
    /// Length of the buffer, at most [`INSPECT_LEN_MAX`].
    pub len: U32,
    /// The lowest number of an object to list.
    pub from: U32,
    /// An [`Inspected`].
    pub kind: u8,
}

/// Maximum length of the buffer of INSPECT.
pub const INSPECT_LEN_MAX: u32 = 4096;

impl Inspect {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(kind: Inspected, from: u32, addr: impl Into<GuestAddr>, len: u32) -> Self {
        Self { addr: addr.into(), len: U32::new(len), from: U32::new(from), kind: kind as u8 }
    }
}

/// What INSPECT has written, and where it continues.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InspectResult {
    /// Number of records written.
    pub count: U32,
    /// The number to continue from, or [`NONE`].
    pub next: U32,
}

/// A queue of work requests. Indices are free-running counters modulo 2³².
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RingRecord {
    /// Number of entries; zero if there is no queue.
    pub size: U32,
    /// The producer index in the doorbell. For a queue in device memory, `next` or `next + 1`: the
    /// stamps only show whether there are posted entries.
    pub posted: U32,
    /// Index of the next entry that the adapter takes. Of a receive queue from which a message is
    /// being received at this moment, `posted`, because the index is not known then.
    pub next: U32,
}

/// A queue pair.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QpRecord {
    /// The number of the QP.
    pub qpn: Qpn,
    /// [`crate::qp::Type`].
    pub kind: u8,
    /// [`crate::qp::State`].
    pub state: u8,
    /// Path MTU, as `enum ib_mtu`.
    pub path_mtu: u8,
    /// One if the send queue is in device memory.
    pub sq_in_device: u8,
    /// The context that the QP belongs to.
    pub context: ContextId,
    /// The PD that the QP belongs to.
    pub pdn: Pdn,
    /// CQ of its sends.
    pub send_cqn: Cqn,
    /// CQ of its receives.
    pub recv_cqn: Cqn,
    /// The SRQ of its receives, or [`NONE`].
    pub srqn: Srqn,
    /// The peer's QP, if it is connected, or [`NONE`].
    pub dest_qpn: Qpn,
    /// The peer's MAC, if it is connected.
    pub dmac: [u8; 6],
    /// The worker of the adapter that executes it.
    pub worker: U16,
    /// UAR of its doorbell.
    pub uar: UarIndex,
    /// Slot of its doorbell.
    pub slot: SlotIndex,
    /// The send queue.
    pub sq: RingRecord,
    /// The receive queue.
    pub rq: RingRecord,
    /// Number of bytes of the current send entry that have been moved.
    pub done: U64,
    /// The `wr_id` of the current send entry.
    pub wr_id: U64,
    /// The activity of the requester: a [`Doing`].
    pub doing: u8,
    /// Remaining transport retries of the current send entry.
    pub retries: u8,
    /// Remaining RNR retries of the current send entry.
    pub rnr_retries: u8,
    /// One while a message is filling a receive.
    pub receiving: u8,
    /// The [`crate::connection::Stage`] of its TCP connection; zero if it has none.
    pub connection: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

wire_enum! {
    /// The activity of a requester.
    pub enum Doing: u8 {
        /// Nothing is in progress.
        Nothing = 0,
        /// An entry is in progress.
        Working = 1,
        /// An entry waits for the peer.
        Waiting = 2,
        /// The queue is moving data at the time of the snapshot, so its state is not known.
        Busy = 3,
    }
}

/// A completion queue.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CqRecord {
    /// The number of the CQ.
    pub cqn: Cqn,
    /// The context that the CQ belongs to.
    pub context: ContextId,
    /// The event queue that it is bound to.
    pub eqn: Eqn,
    /// Number of queues that complete here.
    pub users: U32,
    /// UAR of its doorbell.
    pub uar: UarIndex,
    /// Slot of its doorbell.
    pub slot: SlotIndex,
    /// Number of entries.
    pub size: U32,
    /// Index of the next entry that the adapter writes.
    pub produced: U32,
    /// The consumer index in the doorbell.
    pub consumed: U32,
    /// The completions that it is armed for, such as [`crate::uar::ARM_NEXT`].
    pub armed: U32,
    /// One if it has failed.
    pub failed: U32,
    /// Number of entries that are held back, because it is a holding CQ and full.
    pub held: U32,
}

/// An event queue.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EqRecord {
    /// The number of the EQ.
    pub eqn: Eqn,
    /// The interrupt vector that the EQ raises.
    pub vector: U32,
    /// Number of CQs bound to it.
    pub cqs: U32,
    /// Number of entries.
    pub size: U32,
    /// Index of the next entry that the adapter writes.
    pub produced: U32,
    /// The consumer index in the doorbell.
    pub consumed: U32,
}

/// A shared receive queue.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SrqRecord {
    /// The number of the SRQ.
    pub srqn: Srqn,
    /// The context that the SRQ belongs to.
    pub context: ContextId,
    /// The PD that the SRQ belongs to.
    pub pdn: Pdn,
    /// The XRC domain of the SRQ, or [`NONE`].
    pub xrcdn: Xrcdn,
    /// Number of QPs that take receives from it.
    pub users: U32,
    /// UAR of its doorbell.
    pub uar: UarIndex,
    /// Slot of its doorbell.
    pub slot: SlotIndex,
    /// The queue.
    pub ring: RingRecord,
    /// An event is raised when fewer receives than this are posted; zero if it is not armed.
    pub limit: U32,
    /// One if it has failed.
    pub failed: U32,
}

/// An entry of the table of keys.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KeyRecord {
    /// The key by which work requests and messages name the entry.
    pub key: Key,
    /// The PD that the key belongs to.
    pub pdn: Pdn,
    /// The only QP that may use it, or [`NONE`].
    pub qpn: Qpn,
    /// Rights: [`crate::qp::Access`].
    pub access: U32,
    /// First address, as work requests name it.
    pub base: U64,
    /// Number of bytes.
    pub length: U64,
    /// log2 of the page size; zero if it has no pages.
    pub page_shift: u8,
    /// See [`KeyKind`].
    pub kind: u8,
    /// One if it can be used. If not, all fields above except `pdn` are zero.
    pub valid: u8,
    /// One if it is valid for a single message.
    pub one_touch: u8,
    /// Number of windows bound to it.
    pub windows: U32,
}

wire_enum! {
    /// The kind of object that has a key.
    pub enum KeyKind: u8 {
        /// A region registered by command.
        Region = 1,
        /// A region for fast registration.
        Fast = 2,
        /// A window of type 1.
        Window1 = 3,
        /// A window of type 2.
        Window2 = 4,
        /// The data of a command.
        Command = 5,
        /// A key that was removed and may still be in use.
        Leaving = 6,
    }
}

/// The connection of a QP whose peer is reached by packets: a TCP connection, or that of a
/// connected RoCE QP. Without a measurement, a limit or a meaning, a number is [`NONE`] or, of 64
/// bits, zero. Larger numbers than fit are the largest one.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConnectionRecord {
    /// The number of the QP.
    pub qpn: Qpn,
    /// The context of the QP: who has the connection.
    pub context: ContextId,
    /// What the connection carries: a [`Carried`].
    pub carried: u8,
    /// The state of TCP, a [`TcpState`]; zero of RoCE.
    pub state: u8,
    /// The version of IP: 4 or 6.
    pub ip: u8,
    /// Traffic class, or type of service.
    pub traffic_class: u8,
    /// Hop limit, or time to live.
    pub hop_limit: u8,
    /// Number of time-outs in a row since the last progress, and their limit.
    pub retries: u8,
    /// See [`Self::retries`].
    pub retry_limit: u8,
    /// Zero.
    pub reserved: u8,
    /// The local address. An IPv4 address is in the last four bytes.
    pub local: [u8; 16],
    /// The peer's address, in the same form.
    pub remote: [u8; 16],
    /// The local port of TCP, or of UDP for RoCE.
    pub local_port: U16,
    /// The peer's port of TCP, or of UDP for RoCE.
    pub remote_port: U16,
    /// The VLAN, or [`crate::qp::NO_VLAN`].
    pub vlan: U16,
    /// Maximum number of data bytes in a segment or packet.
    pub mss: U16,
    /// The smoothed round trip time in microseconds.
    pub rtt: U32,
    /// The variation of the round trip time in microseconds.
    pub rtt_var: U32,
    /// The time in microseconds after which something is sent again.
    pub rto: U32,
    /// The idle time in milliseconds before the first keepalive probe.
    pub keepalive: U32,
    /// The time in milliseconds without progress after which the connection ends.
    pub user_timeout: U32,
    /// The congestion window in bytes.
    pub cwnd: U32,
    /// The threshold in bytes at which slow start ends.
    pub ssthresh: U32,
    /// Bytes that the peer permits, from the first unacknowledged byte on.
    pub snd_wnd: U32,
    /// Bytes that the peer may send.
    pub rcv_wnd: U32,
    /// Bytes, or packets of RoCE, that were sent and are not acknowledged.
    pub unacked: U32,
    /// Segments or packets that were sent again.
    pub retrans: U32,
    /// Time-outs.
    pub timeouts: U32,
    /// Segments or packets with data that were sent.
    pub segs_out: U64,
    /// Bytes that were sent since the adapter has the connection, without repetitions. This and all
    /// fields below are zero of RoCE.
    pub bytes_sent: U64,
    /// Of these, bytes that the peer has acknowledged.
    pub bytes_acked: U64,
    /// Bytes that have arrived in order since then.
    pub bytes_received: U64,
    /// The time in milliseconds since the adapter has the connection.
    pub age: U64,
}

wire_enum! {
    /// What a connection carries.
    pub enum Carried: u8 {
        /// RDMA messages over TCP (iWARP).
        Iwarp = 1,
        /// The bytes of a [`crate::qp::Type::Toe`] QP.
        Bytes = 2,
        /// iSCSI PDUs.
        Iscsi = 3,
        /// RoCE packets.
        Roce = 4,
    }
}

wire_enum! {
    /// The states of TCP from the first one after the handshake, numbered as in the kernel's
    /// `include/net/tcp_states.h`.
    pub enum TcpState: u8 {
        /// Both directions are open.
        Established = 1,
        /// The local direction is being closed.
        FinWait1 = 4,
        /// The local direction is closed.
        FinWait2 = 5,
        /// Both directions are closed. Late segments are answered.
        TimeWait = 6,
        /// The connection has ended.
        Closed = 7,
        /// The peer has closed its direction.
        CloseWait = 8,
        /// Both directions are being closed, the peer's first.
        LastAck = 9,
        /// Both directions are being closed, the local one first.
        Closing = 11,
    }
}

const _: () = assert!(size_of::<ConnectionRecord>() == 144);
const _: () = assert!(size_of::<QpRecord>() == 96);
const _: () = assert!(size_of::<CqRecord>() == 48);
const _: () = assert!(size_of::<EqRecord>() == 24);
const _: () = assert!(size_of::<SrqRecord>() == 48);
const _: () = assert!(size_of::<KeyRecord>() == 40);
