//! Plain data that the suite, the agents and the verbs layer speak of: work requests, completions,
//! attributes. Numbers are those of verbs.h; only what the suite names has a name here.

use serde::{Deserialize, Serialize};

/// Access rights (`enum ibv_access_flags`).
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1;
    pub(crate) const REMOTE_WRITE: u32 = 2;
    pub(crate) const REMOTE_READ: u32 = 4;
    pub(crate) const REMOTE_ATOMIC: u32 = 8;
    pub(crate) const MW_BIND: u32 = 16;
    pub(crate) const ZERO_BASED: u32 = 32;
    /// Everything a peer may be allowed to do, and local writes.
    pub(crate) const ALL: u32 = 15;
}

/// Flags of a send work request (`enum ibv_send_flags`).
pub(crate) mod flags {
    pub(crate) const FENCE: u32 = 1;
    pub(crate) const SIGNALED: u32 = 2;
    pub(crate) const SOLICITED: u32 = 4;
    pub(crate) const INLINE: u32 = 8;
}

/// Attributes that a modify names (`enum ibv_qp_attr_mask`).
pub(crate) mod mask {
    pub(crate) const STATE: u32 = 1;
    pub(crate) const CUR_STATE: u32 = 1 << 1;
    pub(crate) const EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
    pub(crate) const ACCESS_FLAGS: u32 = 1 << 3;
    pub(crate) const PKEY_INDEX: u32 = 1 << 4;
    pub(crate) const PORT: u32 = 1 << 5;
    pub(crate) const QKEY: u32 = 1 << 6;
    pub(crate) const AV: u32 = 1 << 7;
    pub(crate) const PATH_MTU: u32 = 1 << 8;
    pub(crate) const TIMEOUT: u32 = 1 << 9;
    pub(crate) const RETRY_CNT: u32 = 1 << 10;
    pub(crate) const RNR_RETRY: u32 = 1 << 11;
    pub(crate) const RQ_PSN: u32 = 1 << 12;
    pub(crate) const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub(crate) const ALT_PATH: u32 = 1 << 14;
    pub(crate) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(crate) const SQ_PSN: u32 = 1 << 16;
    pub(crate) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(crate) const PATH_MIG_STATE: u32 = 1 << 18;
    pub(crate) const CAP: u32 = 1 << 19;
    pub(crate) const DEST_QPN: u32 = 1 << 20;

    /// Reset to Init.
    pub(crate) const TO_INIT: u32 = STATE | PKEY_INDEX | PORT | ACCESS_FLAGS;
    /// Init to RTR.
    pub(crate) const TO_RTR: u32 =
        STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
    /// RTR to RTS.
    pub(crate) const TO_RTS: u32 =
        STATE | TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC;
}

/// QP states (`enum ibv_qp_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub(crate) enum State {
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Sqd = 4,
    Sqe = 5,
    Err = 6,
}

/// QP types (`enum ibv_qp_type`).
pub(crate) mod qp_type {
    pub(crate) const RC: u32 = 2;
    pub(crate) const UC: u32 = 3;
    pub(crate) const UD: u32 = 4;
    pub(crate) const RAW_PACKET: u32 = 8;
    pub(crate) const XRC_SEND: u32 = 9;
}

/// Completion statuses (`enum ibv_wc_status`) that the suite expects somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Status {
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
}

/// Completion opcodes (`enum ibv_wc_opcode`).
pub(crate) mod wc_opcode {
    pub(crate) const SEND: u32 = 0;
    pub(crate) const RDMA_WRITE: u32 = 1;
    pub(crate) const RDMA_READ: u32 = 2;
    pub(crate) const COMP_SWAP: u32 = 3;
    pub(crate) const FETCH_ADD: u32 = 4;
    pub(crate) const BIND_MW: u32 = 5;
    pub(crate) const LOCAL_INV: u32 = 6;
    pub(crate) const RECV: u32 = 128;
    pub(crate) const RECV_RDMA_WITH_IMM: u32 = 129;
}

/// Asynchronous events (`enum ibv_event_type`) that the suite expects somewhere.
pub(crate) mod event {
    pub(crate) const CQ_ERR: u32 = 0;
    pub(crate) const QP_FATAL: u32 = 1;
    pub(crate) const QP_REQ_ERR: u32 = 2;
    pub(crate) const QP_ACCESS_ERR: u32 = 3;
    pub(crate) const COMM_EST: u32 = 4;
    pub(crate) const SQ_DRAINED: u32 = 5;
    pub(crate) const SRQ_LIMIT_REACHED: u32 = 15;
    pub(crate) const QP_LAST_WQE_REACHED: u32 = 16;
}

/// Operations of a send queue (`enum ibv_wr_opcode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub(crate) enum Op {
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
    pub(crate) fn takes_receive(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::SendInv | Self::WriteImm)
    }

    /// Returns whether the peer sees immediate data.
    pub(crate) fn has_immediate(self) -> bool {
        matches!(self, Self::SendImm | Self::WriteImm)
    }

    /// The opcode of the requester's completion.
    pub(crate) fn wc_opcode(self) -> u32 {
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
    pub(crate) fn name(self) -> &'static str {
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
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// A send work request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SendWr {
    pub(crate) wr_id: u64,
    pub(crate) op: Op,
    pub(crate) flags: u32,
    pub(crate) sges: Vec<Sge>,
    /// Immediate data as it stands in the work request (verbs: network order, opaque here).
    pub(crate) imm: u32,
    pub(crate) raddr: u64,
    pub(crate) rkey: u32,
    /// The value to compare with, or to add.
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    /// Of a datagram: where it goes.
    pub(crate) to: Option<Destination>,
    /// Of an XRC initiator: the number of the SRQ that it is for.
    pub(crate) srq: Option<u32>,
}

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Destination {
    /// Handle of the address handle.
    pub(crate) ah: u32,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
}

/// Parameters of an address handle.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Path {
    pub(crate) dgid: [u8; 16],
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    pub(crate) port: u8,
}

/// The range that a window is bound to.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Bind {
    pub(crate) wr_id: u64,
    /// Flags of a send work request.
    pub(crate) flags: u32,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) access: u32,
    /// The key is good for one message (a direct verb).
    pub(crate) one_touch: bool,
}

/// Changes to a region (`enum ibv_rereg_mr_flags` in `what`).
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) what: u32,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) access: u32,
}

/// Bits of [`Change::what`].
pub(crate) mod change {
    pub(crate) const TRANSLATION: u32 = 1;
    pub(crate) const PD: u32 = 2;
    pub(crate) const ACCESS: u32 = 4;
}

/// Settings of a QP that only direct verbs have.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct QpExtras {
    pub(crate) reactive: bool,
    /// 0 none, 1 general, 2 iSCSI.
    pub(crate) tag_form: u32,
    pub(crate) tag_offset: u32,
    pub(crate) max_command_sge: u32,
}

/// A command (a direct verb).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CommandWr {
    pub(crate) wr_id: u64,
    pub(crate) flags: u32,
    pub(crate) access: u32,
    pub(crate) one_touch: bool,
    pub(crate) tag_offset: u32,
    pub(crate) data: Vec<Sge>,
    pub(crate) message: Vec<Sge>,
}

/// A receive work request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RecvWr {
    pub(crate) wr_id: u64,
    pub(crate) sges: Vec<Sge>,
}

/// A work completion.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Wc {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// Immediate data, if the completion says that it has some.
    pub(crate) imm: Option<u32>,
    /// True if the message has invalidated `key`.
    pub(crate) invalidated: bool,
    /// The invalidated key, or the one that a command carried.
    pub(crate) key: u32,
    pub(crate) qpn: u32,
    /// The sender of a datagram.
    pub(crate) src_qpn: u32,
    /// True if 40 bytes of network header precede the data.
    pub(crate) header: bool,
    /// By the extended interface: the device's clock, and the time of day, in nanoseconds.
    pub(crate) timestamp: u64,
    pub(crate) wallclock: u64,
}

/// Sizes of a QP, asked for or granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QpCap {
    pub(crate) send_wr: u32,
    pub(crate) recv_wr: u32,
    pub(crate) send_sge: u32,
    pub(crate) recv_sge: u32,
    pub(crate) inline: u32,
}

/// Attributes of a QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QpAttr {
    pub(crate) state: u32,
    /// The state that the program believes it is in.
    pub(crate) cur_state: u32,
    pub(crate) qkey: u32,
    /// 0 migrated, 1 rearm, 2 armed.
    pub(crate) path_mig_state: u32,
    pub(crate) access: u32,
    pub(crate) pkey_index: u16,
    pub(crate) port: u8,
    pub(crate) path_mtu: u32,
    pub(crate) dest_qpn: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) dgid: [u8; 16],
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) cap: QpCap,
}

/// The device and its port, as far as the suite looks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeviceInfo {
    pub(crate) name: String,
    pub(crate) vendor_id: u32,
    pub(crate) max_qp: u32,
    pub(crate) max_qp_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) max_cq: u32,
    pub(crate) max_cqe: u32,
    pub(crate) max_mr: u32,
    pub(crate) max_mr_size: u64,
    pub(crate) max_pd: u32,
    pub(crate) max_srq: u32,
    pub(crate) max_srq_wr: u32,
    pub(crate) max_srq_sge: u32,
    pub(crate) max_qp_rd_atom: u32,
    pub(crate) max_qp_init_rd_atom: u32,
    pub(crate) comp_vectors: u32,
    pub(crate) port_active: bool,
    pub(crate) active_mtu: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) gid_index: u8,
    pub(crate) gid: [u8; 16],
    /// The firmware's version, as text.
    pub(crate) firmware: String,
    /// In network order, as the verb gives them.
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) ports: u32,
    pub(crate) max_mw: u32,
    pub(crate) max_pkeys: u32,
    pub(crate) atomic_cap: u32,
    pub(crate) port: PortInfo,
}

/// More of the port.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct PortInfo {
    pub(crate) state: u32,
    pub(crate) phys_state: u8,
    pub(crate) max_mtu: u32,
    pub(crate) width: u8,
    pub(crate) speed: u8,
    pub(crate) gids: i32,
    pub(crate) pkeys: u16,
    pub(crate) link_layer: u8,
    pub(crate) lid: u16,
}

impl DeviceInfo {
    /// Returns whether this is the kernel's software RoCE device, against which the suite itself is
    /// tested.
    pub(crate) fn is_rxe(&self) -> bool {
        self.name.starts_with("rxe")
    }
}

/// An asynchronous event, with the agent's handle of its object where it has one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct AsyncEvent {
    pub(crate) kind: u32,
    pub(crate) qp: Option<u32>,
    pub(crate) cq: Option<u32>,
    pub(crate) srq: Option<u32>,
}

/// Attributes of an SRQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SrqAttr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    /// The armed limit, or zero.
    pub(crate) limit: u32,
}
