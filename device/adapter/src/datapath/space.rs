//! The buffers of a turn. Each worker has one of each kind, which the turns of all QPs share.

use crate::datapath::outbox::Outbox;
use crate::datapath::wqe_fetch::Batch;

/// The buffers.
#[derive(Debug, Default)]
pub struct Space {
    /// The entries of a send queue.
    pub(crate) batch: Batch,
    /// The frames that a QP of raw packets sends.
    pub(crate) outbox: Outbox,
}
