//! Parameters and results of the calls that only vrnic has.

use serde::{Deserialize, Serialize};
use vrnic_verbs::model::Bind;

/// A registration that fails, and a binding to its guessed key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RegMrFaulting {
    pub(crate) pd: u32,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) access: u32,
    pub(crate) guess: u32,
    pub(crate) cq: u32,
    pub(crate) qp: u32,
    pub(crate) mw: u32,
    pub(crate) rkey: u32,
    pub(crate) bind: Bind,
}

/// What a hostile program fills with random values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Target {
    /// Doorbell pages and queues in device memory.
    Device,
    /// Rings in guest memory, while all doorbells are rung with random indices.
    Rings,
    /// Rings, with entries that are nearly right. Each doorbell is rung once.
    Entries,
}

/// Counts of what was written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Scribbled {
    /// Mappings that were written to.
    pub(crate) mappings: u64,
    /// Number of bytes of these mappings.
    pub(crate) bytes: u64,
    /// Stores of 8 bytes.
    pub(crate) stores: u64,
}
