//! Queues as a watcher sees them.

use serde::{Deserialize, Serialize};

/// A queue of work requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueView {
    /// Entries that it has room for.
    pub size: u32,
    /// The user's producer index, as it stands in the doorbell.
    pub posted: u32,
    /// Index of the entry that comes next.
    pub next: u32,
    /// True if it lies in device memory.
    pub in_device: bool,
}

/// A queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct QpView {
    pub qpn: u32,
    /// `gsi`, `rc`, `uc`, `ud`, `xrc_ini`, `xrc_tgt`.
    pub kind: String,
    /// `reset`, `init`, `rtr`, `rts`, `sqd`, `sqe`, `err`.
    pub state: String,
    pub context: u32,
    pub pdn: u32,
    pub send_cqn: u32,
    pub recv_cqn: u32,
    pub srqn: Option<u32>,
    /// The worker that executes it.
    pub worker: usize,
    pub uar: u32,
    pub slot: u32,
    /// The peer's MAC and QP, of a connected QP.
    pub peer: Option<(String, u32)>,
    /// enum ib_mtu.
    pub path_mtu: u8,
    pub send: Option<QueueView>,
    /// `next` is missing (zero) while a message is arriving.
    pub recv: Option<QueueView>,
}

/// A completion queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct CqView {
    pub cqn: u32,
    pub context: u32,
    pub eqn: u32,
    /// Queues that complete here.
    pub users: u32,
    pub uar: u32,
    pub slot: u32,
    /// Entries that it has room for.
    pub size: u32,
    /// Index of the completion that comes next.
    pub produced: u32,
    /// The user's consumer index, as it stands in the doorbell.
    pub consumed: u32,
    /// The kind it is armed for: 0 nothing, 1 the next completion, 2 the next solicited one.
    pub armed: u32,
    /// True if it has overflowed, or its memory was not there.
    pub failed: bool,
}

/// An event queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct EqView {
    pub eqn: u32,
    /// Its MSI-X vector.
    pub vector: u16,
    /// CQs bound to it.
    pub cqs: u32,
    /// Entries that it has room for.
    pub size: u32,
    /// Index of the event that comes next.
    pub produced: u32,
    /// The driver's consumer index, as it stands in the doorbell.
    pub consumed: u32,
}

/// A shared receive queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SrqView {
    pub srqn: u32,
    pub pdn: u32,
    pub context: u32,
    pub uar: u32,
    pub slot: u32,
    /// QPs that take receives from it.
    pub users: u32,
    /// The XRC domain, if it has one.
    pub xrcdn: Option<u32>,
    pub recv: QueueView,
    /// Fewer receives than this raise an event; zero does not.
    pub limit: u32,
    /// True if its doorbell or memory was faulty.
    pub failed: bool,
}
