//! Plain data that the suite, the agents and the verbs layer use: work requests, completions,
//! attributes. Their numbers are the numbers of verbs.h.
//!
//! | module | what |
//! | --- | --- |
//! | [`flow`] | flows of QPs of raw packets |
//! | [`rss`] | work queues, and how frames are spread over them |
//! | `numbers` | numbers of operations, flags and rights |

pub mod flow;
mod numbers;
pub mod rss;

use serde::{Deserialize, Serialize};

pub use self::flow::{FlowAttr, RawCaps, Spec};
pub use self::numbers::{access, change, event, flags, mask, qp_type, wc_opcode};
pub use self::rss::{Hash, WqAttr, WqChange};
use crate::ffi;

/// QP states (`enum ibv_qp_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum State {
    Reset = ffi::IBV_QPS_RESET,
    Init = ffi::IBV_QPS_INIT,
    Rtr = ffi::IBV_QPS_RTR,
    Rts = ffi::IBV_QPS_RTS,
    Sqd = ffi::IBV_QPS_SQD,
    Sqe = ffi::IBV_QPS_SQE,
    Err = ffi::IBV_QPS_ERR,
}

/// Completion statuses (`enum ibv_wc_status`) that the suite expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    Success = ffi::IBV_WC_SUCCESS,
    LocLenErr = ffi::IBV_WC_LOC_LEN_ERR,
    LocQpOpErr = ffi::IBV_WC_LOC_QP_OP_ERR,
    LocProtErr = ffi::IBV_WC_LOC_PROT_ERR,
    WrFlushErr = ffi::IBV_WC_WR_FLUSH_ERR,
    MwBindErr = ffi::IBV_WC_MW_BIND_ERR,
    RemInvReqErr = ffi::IBV_WC_REM_INV_REQ_ERR,
    RemAccessErr = ffi::IBV_WC_REM_ACCESS_ERR,
    RemOpErr = ffi::IBV_WC_REM_OP_ERR,
    RetryExcErr = ffi::IBV_WC_RETRY_EXC_ERR,
    RnrRetryExcErr = ffi::IBV_WC_RNR_RETRY_EXC_ERR,
    FatalErr = ffi::IBV_WC_FATAL_ERR,
}

/// Operations of a send queue (`enum ibv_wr_opcode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum Op {
    Write = ffi::IBV_WR_RDMA_WRITE,
    WriteImm = ffi::IBV_WR_RDMA_WRITE_WITH_IMM,
    #[default]
    Send = ffi::IBV_WR_SEND,
    SendImm = ffi::IBV_WR_SEND_WITH_IMM,
    Read = ffi::IBV_WR_RDMA_READ,
    CmpSwp = ffi::IBV_WR_ATOMIC_CMP_AND_SWP,
    FetchAdd = ffi::IBV_WR_ATOMIC_FETCH_AND_ADD,
    /// Invalidates this side's key `rkey`.
    LocalInv = ffi::IBV_WR_LOCAL_INV,
    /// Invalidates the peer's key `rkey`.
    SendInv = ffi::IBV_WR_SEND_WITH_INV,
    /// Sends a large TCP segment in several frames; only QPs of raw packets have it.
    Tso = ffi::IBV_WR_TSO,
    /// Stores 8 bytes at once.
    AtomicWrite = ffi::IBV_WR_ATOMIC_WRITE,
    /// Makes earlier writes visible. Only the extended interface has it.
    Flush = ffi::IBV_WR_FLUSH,
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
            Self::Tso => ffi::IBV_WC_TSO,
            Self::AtomicWrite => ffi::IBV_WC_ATOMIC_WRITE,
            Self::Flush => ffi::IBV_WC_FLUSH,
        }
    }

    /// Returns the spelling in names of cases.
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
            Self::AtomicWrite => "atomic_write",
            Self::Flush => "flush",
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
    /// Immediate data as it is in the work request (verbs: network order, opaque here).
    pub imm: u32,
    pub raddr: u64,
    pub rkey: u32,
    /// The value to compare with, or to add; the number of bytes of a FLUSH.
    pub compare_add: u64,
    /// The value to swap in; the placement (bits 0 to 3) and the level (bits 4 and 5) of a FLUSH.
    pub swap: u64,
    /// The destination of a datagram.
    pub to: Option<Destination>,
    /// The number of the SRQ to which a request of an XRC initiator is sent.
    pub srq: Option<u32>,
    /// The headers of a large TCP segment.
    pub headers: Vec<u8>,
    /// Maximum number of bytes of its payload in a frame.
    pub mss: u16,
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

/// The range to which a window is bound.
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
    /// Immediate data, if the completion has some.
    pub imm: Option<u32>,
    /// True if the message has invalidated `key`.
    pub invalidated: bool,
    /// The key that the message has invalidated, or the key of a command.
    pub key: u32,
    pub qpn: u32,
    /// The sender of a datagram.
    pub src_qpn: u32,
    /// True if 40 bytes of network header precede the data.
    pub header: bool,
    /// True if the checksums of a raw packet are right.
    pub checksums: bool,
    /// From the extended interface: the device's clock, and the time of day, in nanoseconds.
    pub timestamp: u64,
    pub wallclock: u64,
}

/// Sizes of a QP, requested or granted.
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

/// The attributes of the device and its port that the suite uses.
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
    /// In network order, as the verb returns it.
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub ports: u32,
    pub max_mw: u32,
    pub max_pkeys: u32,
    pub atomic_cap: u32,
    pub port: PortInfo,
}

/// More attributes of the port.
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

/// An asynchronous event, with the agent's handle of its object if it has one.
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
    /// The armed limit, or 0.
    pub limit: u32,
}
