//! The bytes of a message in progress that the host has taken over.

use std::sync::Arc;

use crate::host::{Awaited, HandedOver};

/// The bytes of a message, from its start on.
#[derive(Debug, Default)]
pub struct Takeover {
    /// The number of the message.
    message: u64,
    /// Number of its bytes that have been taken over, or written.
    end: u64,
    progress: Arc<HandedOver>,
}

/// The bytes that the host moves for both directions of a connection.
#[derive(Debug, Default)]
pub struct Moves {
    /// The bytes of the peer's message, if there were any.
    pub placed: Option<Box<Takeover>>,
    /// The bytes of the answer of a READ, if there were any.
    pub stored: Option<Box<Takeover>>,
    /// True if bytes to send are on their way from the memory.
    pub reads: bool,
}

impl Takeover {
    /// Continues with a message. The bytes of another one are forgotten.
    pub fn turn_to(&mut self, message: u64) {
        if self.message != message {
            *self = Self { message, ..Self::default() };
        }
    }

    /// Returns whether it belongs to a message.
    #[must_use]
    pub const fn is_of(&self, message: u64) -> bool {
        self.message == message
    }

    /// Returns whether the bytes of the message before `end` have been taken over.
    #[must_use]
    pub const fn has(&self, end: u64) -> bool {
        end <= self.end
    }

    /// Records that they have.
    pub const fn reach(&mut self, end: u64) {
        self.end = end;
    }

    /// The progress of its bytes.
    #[must_use]
    pub const fn progress(&self) -> &Arc<HandedOver> {
        &self.progress
    }

    /// Returns whether bytes are on their way, or have failed.
    #[must_use]
    pub fn awaited(&self) -> Awaited {
        self.progress.awaited()
    }
}
