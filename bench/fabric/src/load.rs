//! A frame in a queue.

use vrnic_lanes::{Frame, Mark, ecn};

/// A frame in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load(pub(crate) Vec<u8>);

impl Frame for Load {
    fn bytes(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    fn mark(&mut self) -> Mark {
        ecn::mark(&mut self.0)
    }
}
