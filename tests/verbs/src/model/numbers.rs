//! Numbers of verbs.h that are combined or compared as numbers. Only the numbers that the suite
//! uses are here.

/// Access rights (`enum ibv_access_flags`).
pub mod access {
    use crate::ffi;

    pub const LOCAL_WRITE: u32 = ffi::IBV_ACCESS_LOCAL_WRITE;
    pub const REMOTE_WRITE: u32 = ffi::IBV_ACCESS_REMOTE_WRITE;
    pub const REMOTE_READ: u32 = ffi::IBV_ACCESS_REMOTE_READ;
    pub const REMOTE_ATOMIC: u32 = ffi::IBV_ACCESS_REMOTE_ATOMIC;
    pub const MW_BIND: u32 = ffi::IBV_ACCESS_MW_BIND;
    pub const ZERO_BASED: u32 = ffi::IBV_ACCESS_ZERO_BASED;
    pub const FLUSH_GLOBAL: u32 = ffi::IBV_ACCESS_FLUSH_GLOBAL;
    pub const FLUSH_PERSISTENT: u32 = ffi::IBV_ACCESS_FLUSH_PERSISTENT;
    /// All rights of a peer except the rights to FLUSH, and local writes.
    pub const ALL: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
}

/// Flags of a send work request (`enum ibv_send_flags`).
pub mod flags {
    use crate::ffi;

    pub const FENCE: u32 = ffi::IBV_SEND_FENCE;
    pub const SIGNALED: u32 = ffi::IBV_SEND_SIGNALED;
    pub const SOLICITED: u32 = ffi::IBV_SEND_SOLICITED;
    pub const INLINE: u32 = ffi::IBV_SEND_INLINE;
    pub const IP_CSUM: u32 = ffi::IBV_SEND_IP_CSUM;
}

/// Attributes of a modify call (`enum ibv_qp_attr_mask`).
pub mod mask {
    use crate::ffi;

    pub const STATE: u32 = ffi::IBV_QP_STATE;
    pub const CUR_STATE: u32 = ffi::IBV_QP_CUR_STATE;
    pub const EN_SQD_ASYNC_NOTIFY: u32 = ffi::IBV_QP_EN_SQD_ASYNC_NOTIFY;
    pub const ACCESS_FLAGS: u32 = ffi::IBV_QP_ACCESS_FLAGS;
    pub const PKEY_INDEX: u32 = ffi::IBV_QP_PKEY_INDEX;
    pub const PORT: u32 = ffi::IBV_QP_PORT;
    pub const QKEY: u32 = ffi::IBV_QP_QKEY;
    pub const AV: u32 = ffi::IBV_QP_AV;
    pub const PATH_MTU: u32 = ffi::IBV_QP_PATH_MTU;
    pub const TIMEOUT: u32 = ffi::IBV_QP_TIMEOUT;
    pub const RETRY_CNT: u32 = ffi::IBV_QP_RETRY_CNT;
    pub const RNR_RETRY: u32 = ffi::IBV_QP_RNR_RETRY;
    pub const RQ_PSN: u32 = ffi::IBV_QP_RQ_PSN;
    pub const MAX_QP_RD_ATOMIC: u32 = ffi::IBV_QP_MAX_QP_RD_ATOMIC;
    pub const ALT_PATH: u32 = ffi::IBV_QP_ALT_PATH;
    pub const MIN_RNR_TIMER: u32 = ffi::IBV_QP_MIN_RNR_TIMER;
    pub const SQ_PSN: u32 = ffi::IBV_QP_SQ_PSN;
    pub const MAX_DEST_RD_ATOMIC: u32 = ffi::IBV_QP_MAX_DEST_RD_ATOMIC;
    pub const PATH_MIG_STATE: u32 = ffi::IBV_QP_PATH_MIG_STATE;
    pub const CAP: u32 = ffi::IBV_QP_CAP;
    pub const DEST_QPN: u32 = ffi::IBV_QP_DEST_QPN;

    /// The attributes for Reset to Init.
    pub const TO_INIT: u32 = STATE | PKEY_INDEX | PORT | ACCESS_FLAGS;
    /// The attributes for Init to RTR.
    pub const TO_RTR: u32 =
        STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
    /// The attributes for RTR to RTS.
    pub const TO_RTS: u32 = STATE | TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC;
}

/// QP types (`enum ibv_qp_type`).
pub mod qp_type {
    use crate::ffi;

    pub const RC: u32 = ffi::IBV_QPT_RC;
    pub const UC: u32 = ffi::IBV_QPT_UC;
    pub const UD: u32 = ffi::IBV_QPT_UD;
    pub const RAW_PACKET: u32 = ffi::IBV_QPT_RAW_PACKET;
    pub const XRC_SEND: u32 = ffi::IBV_QPT_XRC_SEND;
}

/// Completion opcodes (`enum ibv_wc_opcode`).
pub mod wc_opcode {
    use crate::ffi;

    pub const SEND: u32 = ffi::IBV_WC_SEND;
    pub const RDMA_WRITE: u32 = ffi::IBV_WC_RDMA_WRITE;
    pub const RDMA_READ: u32 = ffi::IBV_WC_RDMA_READ;
    pub const COMP_SWAP: u32 = ffi::IBV_WC_COMP_SWAP;
    pub const FETCH_ADD: u32 = ffi::IBV_WC_FETCH_ADD;
    pub const BIND_MW: u32 = ffi::IBV_WC_BIND_MW;
    pub const LOCAL_INV: u32 = ffi::IBV_WC_LOCAL_INV;
    pub const TSO: u32 = ffi::IBV_WC_TSO;
    pub const RECV: u32 = ffi::IBV_WC_RECV;
    pub const RECV_RDMA_WITH_IMM: u32 = ffi::IBV_WC_RECV_RDMA_WITH_IMM;
}

/// Asynchronous events (`enum ibv_event_type`) that the suite expects.
pub mod event {
    use crate::ffi;

    pub const CQ_ERR: u32 = ffi::IBV_EVENT_CQ_ERR;
    pub const QP_FATAL: u32 = ffi::IBV_EVENT_QP_FATAL;
    pub const QP_REQ_ERR: u32 = ffi::IBV_EVENT_QP_REQ_ERR;
    pub const QP_ACCESS_ERR: u32 = ffi::IBV_EVENT_QP_ACCESS_ERR;
    pub const COMM_EST: u32 = ffi::IBV_EVENT_COMM_EST;
    pub const SQ_DRAINED: u32 = ffi::IBV_EVENT_SQ_DRAINED;
    pub const SRQ_LIMIT_REACHED: u32 = ffi::IBV_EVENT_SRQ_LIMIT_REACHED;
    pub const QP_LAST_WQE_REACHED: u32 = ffi::IBV_EVENT_QP_LAST_WQE_REACHED;
}

/// Bits of [`super::Change::what`].
pub mod change {
    use crate::ffi;

    pub const TRANSLATION: u32 = ffi::IBV_REREG_MR_CHANGE_TRANSLATION;
    pub const PD: u32 = ffi::IBV_REREG_MR_CHANGE_PD;
    pub const ACCESS: u32 = ffi::IBV_REREG_MR_CHANGE_ACCESS;
}
