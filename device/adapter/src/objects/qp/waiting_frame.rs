//! Frames that wait for earlier ones.

use vrnic_packet::Headers;

use crate::ethernet::{Frame, Parsed};

/// A frame that waits for an earlier one.
#[derive(Debug)]
pub(crate) struct WaitingFrame {
    frame: Frame,
    headers: Headers,
}

impl WaitingFrame {
    /// Returns a copy of a frame that has arrived.
    pub(crate) fn of(Parsed { frame, headers }: Parsed<'_>) -> Self {
        Self { frame: frame.compact(), headers }
    }

    /// Returns the frame as it arrived.
    pub(crate) fn parsed(&self) -> Parsed<'_> {
        Parsed { frame: &self.frame, headers: self.headers }
    }

    /// Returns the number of bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        Self::memory(&self.frame)
    }

    /// Returns the number of bytes of memory that a frame takes while it is held.
    pub(crate) fn memory(frame: &Frame) -> usize {
        size_of::<Self>() + frame.bytes().len()
    }
}
