//! Plain data that the suite, the agents and the verbs layer speak of: work requests, completions,
//! attributes. Numbers are those of verbs.h; only what the suite names has a name here.

use serde::{Deserialize, Serialize};

/// Access rights (`enum ibv_access_flags`).
pub mod access {
    pub const LOCAL_WRITE: u32 = 1;
    pub const REMOTE_WRITE: u32 = 2;
    pub const REMOTE_READ: u32 = 4;
    pub const REMOTE_ATOMIC: u32 = 8;
    pub const MW_BIND: u32 = 16;
    pub const ZERO_BASED: u32 = 32;
    /// Everything a peer may be allowed to do, and local writes.
    pub const ALL: u32 = 15;
}

/// Flags of a send work request (`enum ibv_send_flags`).
pub mod flags {
    pub const FENCE: u32 = 1;
    pub const SIGNALED: u32 = 2;
    pub const SOLICITED: u32 = 4;
    pub const INLINE: u32 = 8;
}

/// Attributes that a modify names (`enum ibv_qp_attr_mask`).
pub mod mask {
    pub const STATE: u32 = 1;
    pub const CUR_STATE: u32 = 1 << 1;
    pub const EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
    pub const ACCESS_FLAGS: u32 = 1 << 3;
    pub const PKEY_INDEX: u32 = 1 << 4;
    pub const PORT: u32 = 1 << 5;
    pub const QKEY: u32 = 1 << 6;
    pub const AV: u32 = 1 << 7;
    pub const PATH_MTU: u32 = 1 << 8;
    pub const TIMEOUT: u32 = 1 << 9;
    pub const RETRY_CNT: u32 = 1 << 10;
    pub const RNR_RETRY: u32 = 1 << 11;
    pub const RQ_PSN: u32 = 1 << 12;
    pub const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub const ALT_PATH: u32 = 1 << 14;
    pub const MIN_RNR_TIMER: u32 = 1 << 15;
    pub const SQ_PSN: u32 = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub const PATH_MIG_STATE: u32 = 1 << 18;
    pub const CAP: u32 = 1 << 19;
    pub const DEST_QPN: u32 = 1 << 20;

    /// Reset to Init.
    pub const TO_INIT: u32 = STATE | PKEY_INDEX | PORT | ACCESS_FLAGS;
    /// Init to RTR.
    pub const TO_RTR: u32 =
        STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
    /// RTR to RTS.
    pub const TO_RTS: u32 = STATE | TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC;
}

/// QP states (`enum ibv_qp_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum State {
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Sqd = 4,
    Sqe = 5,
    Err = 6,
}

/// QP types (`enum ibv_qp_type`).
pub mod qp_type {
    pub const RC: u32 = 2;
    pub const UC: u32 = 3;
    pub const UD: u32 = 4;
    pub const RAW_PACKET: u32 = 8;
    pub const XRC_SEND: u32 = 9;
}

/// Completion statuses (`enum ibv_wc_status`) that the suite expects somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    Success = 0,
    LocLenErr = 1,
    LocQpOpErr = 2,
    LocProtErr = 4,
    WrFlushErr = 5,
    MwBindErr = 6,
    RemInvReqErr = 9,
    RemAccessErr = 10,
    RemOpErr = 11,
    RetryExcErr = 12,
    RnrRetryExcErr = 13,
    FatalErr = 19,
}

/// Completion opcodes (`enum ibv_wc_opcode`).
pub mod wc_opcode {
    pub const SEND: u32 = 0;
    pub const RDMA_WRITE: u32 = 1;
    pub const RDMA_READ: u32 = 2;
    pub const COMP_SWAP: u32 = 3;
    pub const FETCH_ADD: u32 = 4;
    pub const BIND_MW: u32 = 5;
    pub const LOCAL_INV: u32 = 6;
    pub const RECV: u32 = 128;
    pub const RECV_RDMA_WITH_IMM: u32 = 129;
}

/// Asynchronous events (`enum ibv_event_type`) that the suite expects somewhere.
pub mod event {
    pub const CQ_ERR: u32 = 0;
    pub const QP_FATAL: u32 = 1;
    pub const QP_REQ_ERR: u32 = 2;
    pub const QP_ACCESS_ERR: u32 = 3;
    pub const COMM_EST: u32 = 4;
    pub const SQ_DRAINED: u32 = 5;
    pub const SRQ_LIMIT_REACHED: u32 = 15;
    pub const QP_LAST_WQE_REACHED: u32 = 16;
}

/// Operations of a send queue (`enum ibv_wr_opcode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum Op {
    Write = 0,
    WriteImm = 1,
    #[default]
    Send = 2,
    SendImm = 3,
    Read = 4,
    CmpSwp = 5,
    FetchAdd = 6,
    /// Invalidates this side's key `rkey`.
    LocalInv = 7,
    /// Invalidates the peer's key `rkey`.
    SendInv = 9,
    /// Something that RC does not have.
    Tso = 10,
}

impl Op {
    /// Returns whether the peer needs a posted receive.
    pub fn takes_receive(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::SendInv | Self::WriteImm)
    }

    /// Returns whether the peer sees immediate data.
    pub fn has_immediate(self) -> bool {
        matches!(self, Self::SendImm | Self::WriteImm)
    }

    /// Returns the opcode of the requester's completion.
    pub fn wc_opcode(self) -> u32 {
        match self {
            Self::Send | Self::SendImm | Self::SendInv => wc_opcode::SEND,
            Self::Write | Self::WriteImm => wc_opcode::RDMA_WRITE,
            Self::Read => wc_opcode::RDMA_READ,
            Self::CmpSwp => wc_opcode::COMP_SWAP,
            Self::FetchAdd => wc_opcode::FETCH_ADD,
            Self::LocalInv => wc_opcode::LOCAL_INV,
            Self::Tso => 7,
        }
    }

    /// Returns its spelling in names of cases.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::WriteImm => "write_imm",
            Self::Send => "send",
            Self::SendImm => "send_imm",
            Self::Read => "read",
            Self::CmpSwp => "cmp_swp",
            Self::FetchAdd => "fetch_add",
            Self::LocalInv => "local_inv",
            Self::SendInv => "send_inv",
            Self::Tso => "tso",
        }
    }
}

/// A scatter/gather entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// A send work request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SendWr {
    pub wr_id: u64,
    pub op: Op,
    pub flags: u32,
    pub sges: Vec<Sge>,
    /// Immediate data as it stands in the work request (verbs: network order, opaque here).
    pub imm: u32,
    pub raddr: u64,
    pub rkey: u32,
    /// The value to compare with, or to add.
    pub compare_add: u64,
    pub swap: u64,
    /// Of a datagram: where it goes.
    pub to: Option<Destination>,
    /// Of an XRC initiator: the number of the SRQ that it is for.
    pub srq: Option<u32>,
}

impl SendWr {
    /// Returns the request with this address and key of the peer's memory.
    #[must_use]
    pub fn at(self, raddr: u64, rkey: u32) -> Self {
        Self { raddr, rkey, ..self }
    }
}

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Destination {
    /// Handle of the address handle.
    pub ah: u32,
    pub qpn: u32,
    pub qkey: u32,
}

/// Parameters of an address handle.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Path {
    pub dgid: [u8; 16],
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub flow_label: u32,
    pub port: u8,
}

/// The range that a window is bound to.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Bind {
    pub wr_id: u64,
    /// Flags of a send work request.
    pub flags: u32,
    pub addr: u64,
    pub length: u64,
    pub access: u32,
}

/// Changes to a region (`enum ibv_rereg_mr_flags` in `what`).
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Change {
    pub what: u32,
    pub addr: u64,
    pub length: u64,
    pub access: u32,
}

/// Bits of [`Change::what`].
pub mod change {
    pub const TRANSLATION: u32 = 1;
    pub const PD: u32 = 2;
    pub const ACCESS: u32 = 4;
}

/// A receive work request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecvWr {
    pub wr_id: u64,
    pub sges: Vec<Sge>,
}

/// A work completion.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// Immediate data, if the completion says that it has some.
    pub imm: Option<u32>,
    /// True if the message has invalidated `key`.
    pub invalidated: bool,
    /// The invalidated key, or the one that a command carried.
    pub key: u32,
    pub qpn: u32,
    /// The sender of a datagram.
    pub src_qpn: u32,
    /// True if 40 bytes of network header precede the data.
    pub header: bool,
    /// By the extended interface: the device's clock, and the time of day, in nanoseconds.
    pub timestamp: u64,
    pub wallclock: u64,
}

/// Sizes of a QP, asked for or granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpCap {
    pub send_wr: u32,
    pub recv_wr: u32,
    pub send_sge: u32,
    pub recv_sge: u32,
    pub inline: u32,
}

/// Attributes of a QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpAttr {
    pub state: u32,
    /// The state that the program believes it is in.
    pub cur_state: u32,
    pub qkey: u32,
    /// 0 migrated, 1 rearm, 2 armed.
    pub path_mig_state: u32,
    pub access: u32,
    pub pkey_index: u16,
    pub port: u8,
    pub path_mtu: u32,
    pub dest_qpn: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub dgid: [u8; 16],
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub cap: QpCap,
}

/// The device and its port, as far as the suite looks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceInfo {
    pub name: String,
    pub vendor_id: u32,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub max_sge: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_mr_size: u64,
    pub max_pd: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_qp_rd_atom: u32,
    pub max_qp_init_rd_atom: u32,
    pub comp_vectors: u32,
    pub port_active: bool,
    pub active_mtu: u32,
    pub max_msg_sz: u32,
    pub gid_index: u8,
    pub gid: [u8; 16],
    /// The firmware's version, as text.
    pub firmware: String,
    /// In network order, as the verb gives them.
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub ports: u32,
    pub max_mw: u32,
    pub max_pkeys: u32,
    pub atomic_cap: u32,
    pub port: PortInfo,
}

/// More of the port.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PortInfo {
    pub state: u32,
    pub phys_state: u8,
    pub max_mtu: u32,
    pub width: u8,
    pub speed: u8,
    pub gids: i32,
    pub pkeys: u16,
    pub link_layer: u8,
    pub lid: u16,
}

impl DeviceInfo {
    /// Returns whether this is the kernel's software RoCE device, against which the suite itself is
    /// tested.
    pub fn is_rxe(&self) -> bool {
        self.name.starts_with("rxe")
    }
}

/// An asynchronous event, with the agent's handle of its object where it has one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AsyncEvent {
    pub kind: u32,
    pub qp: Option<u32>,
    pub cq: Option<u32>,
    pub srq: Option<u32>,
}

/// Attributes of an SRQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SrqAttr {
    pub max_wr: u32,
    pub max_sge: u32,
    /// The armed limit, or zero.
    pub limit: u32,
}
