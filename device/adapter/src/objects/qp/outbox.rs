//! The frames that a QP of raw packets sends in a turn. Both lists are empty between turns, and
//! keep their memory.

use crate::ethernet::Frame;

/// The frames of a turn.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The frames of the work request in progress.
    pub fresh: Vec<Frame>,
    /// The frames that leave at the end of the turn.
    pub leaving: Vec<Frame>,
}
