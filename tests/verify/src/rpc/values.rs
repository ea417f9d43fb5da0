//! Parameters and results of calls. Objects are named by handles, which the agent assigns.

use serde::{Deserialize, Serialize};
#[cfg(feature = "vrnic")]
use vrnic_verbs::adapter::direct::QpExtras;
use vrnic_verbs::model::{QpCap, SendWr, SrqAttr};

use super::failure::Failure;

/// Parameters of a QP.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CreateQp {
    pub(crate) pd: u32,
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    pub(crate) qp_type: u32,
    pub(crate) cap: QpCap,
    pub(crate) signal_all: bool,
    /// Settings that only direct verbs have.
    #[cfg(feature = "vrnic")]
    pub(crate) extras: Option<QpExtras>,
    pub(crate) srq: Option<u32>,
    /// Number of bytes of the headers of large TCP segments.
    pub(crate) max_headers: u16,
    /// True if datagrams to a group do not come back.
    pub(crate) block_loopback: bool,
}

impl CreateQp {
    /// Returns the parameters of a QP with one CQ.
    pub(crate) fn new(pd: u32, cq: u32, qp_type: u32, cap: QpCap) -> Self {
        Self { pd, send_cq: cq, recv_cq: cq, qp_type, cap, ..Self::default() }
    }
}

/// A work request that is posted many times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stream {
    pub(crate) qp: u32,
    pub(crate) cq: u32,
    pub(crate) request: SendWr,
    pub(crate) count: u64,
    pub(crate) depth: u64,
    /// The local address of copy `i` moves by `i % depth * step`.
    pub(crate) step: u64,
}

/// Two clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Times {
    /// The clock of completions.
    pub(crate) raw: u64,
    /// The time of day.
    pub(crate) day: u64,
}

/// What a process uses of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryUse {
    /// Number of mappings.
    pub(crate) mappings: u64,
    /// Pinned and locked memory in KiB.
    pub(crate) pinned: u64,
    pub(crate) locked: u64,
}

/// A range of a buffer with known bytes: the bytes of the stream `seed` from `position` on.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) buffer: u32,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) seed: u64,
    pub(crate) position: u64,
}

/// A new buffer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct BufferInfo {
    pub(crate) buffer: u32,
    pub(crate) addr: u64,
}

/// A new region.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct MrInfo {
    pub(crate) mr: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// A new window.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct MwInfo {
    pub(crate) mw: u32,
    pub(crate) rkey: u32,
}

/// A new CQ.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct CqInfo {
    pub(crate) cq: u32,
    /// Number of entries granted.
    pub(crate) capacity: u32,
}

/// A new SRQ.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct SrqInfo {
    pub(crate) srq: u32,
    /// Sizes granted.
    pub(crate) attr: SrqAttr,
}

/// A new SRQ for XRC.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct XrcSrqInfo {
    /// The number of the SRQ in requests.
    pub(crate) number: u32,
    pub(crate) info: SrqInfo,
}

/// A new QP.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct QpInfo {
    pub(crate) qp: u32,
    pub(crate) qpn: u32,
    /// Sizes granted.
    pub(crate) cap: QpCap,
}

/// A new work queue.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct WqInfo {
    pub(crate) wq: u32,
    /// The number of the queue in completions.
    pub(crate) number: u32,
    /// The number of work requests that it has room for.
    pub(crate) max_wr: u32,
}

/// A UDP socket.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct UdpInfo {
    pub(crate) socket: u32,
    pub(crate) port: u16,
}

/// A listener of the connection manager.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) listener: u32,
    pub(crate) port: u16,
}

/// A QP that the connection manager connects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Managed {
    pub(crate) qp: u32,
    /// True if it has a shared receive queue.
    pub(crate) srq: bool,
    /// READs and atomics that may be outstanding, of either end.
    pub(crate) depth: u8,
    /// Data for the peer.
    pub(crate) private: Vec<u8>,
}

/// A connection that was accepted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Accepted {
    pub(crate) connection: u32,
    /// Data of the peer.
    pub(crate) private: Vec<u8>,
}

/// Result of posting a list of work requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Posted {
    /// Number of work requests that were posted.
    pub(crate) count: usize,
    /// The reason for which the next one was refused.
    pub(crate) refused: Option<Failure>,
}
