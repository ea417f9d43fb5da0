//! Receive side scaling: work queues, and how frames are spread over them.

use serde::{Deserialize, Serialize};

use crate::ffi;

/// States of a work queue (`enum ibv_wq_state`).
pub mod wq_state {
    use crate::ffi;

    pub const RESET: u32 = ffi::IBV_WQS_RESET;
    pub const READY: u32 = ffi::IBV_WQS_RDY;
    pub const ERROR: u32 = ffi::IBV_WQS_ERR;
}

/// Fields that are hashed (`enum ibv_rx_hash_fields`).
pub mod fields {
    use crate::ffi;

    // CAST: widening, in constants.
    pub const IPV4: u64 = (ffi::IBV_RX_HASH_SRC_IPV4 | ffi::IBV_RX_HASH_DST_IPV4) as u64;
    pub const TCP: u64 = (ffi::IBV_RX_HASH_SRC_PORT_TCP | ffi::IBV_RX_HASH_DST_PORT_TCP) as u64;
    pub const UDP: u64 = (ffi::IBV_RX_HASH_SRC_PORT_UDP | ffi::IBV_RX_HASH_DST_PORT_UDP) as u64;
    /// The index of security associations of IPsec, which the vrnic adapter does not know.
    pub const IPSEC: u64 = 1 << 8;
}

/// Attributes of a new work queue (`struct ibv_wq_init_attr`).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WqAttr {
    /// `enum ibv_wq_type`.
    pub kind: u32,
    pub max_wr: u32,
    pub max_sge: u32,
    /// `enum ibv_wq_flags`.
    pub flags: u32,
}

impl Default for WqAttr {
    fn default() -> Self {
        Self { kind: ffi::IBV_WQT_RQ, max_wr: 16, max_sge: 1, flags: 0 }
    }
}

/// A change of a work queue (`struct ibv_wq_attr`).
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct WqChange {
    pub state: Option<u32>,
    pub current: Option<u32>,
    pub flags: Option<u32>,
}

/// The fields and the key by which a QP spreads frames (`struct ibv_rx_hash_conf`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hash {
    /// `enum ibv_rx_hash_function_flags`.
    pub function: u8,
    pub fields: u64,
    pub key: Vec<u8>,
}

impl Hash {
    /// The number of the Toeplitz hash.
    // CAST: a small number, which C stores in a byte.
    pub const TOEPLITZ: u8 = ffi::IBV_RX_HASH_FUNC_TOEPLITZ as u8;
}
