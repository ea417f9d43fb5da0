//! Why a message of a VMM is refused, and the error number that it is told.

use std::io;

use rustix::io::Errno;
use thiserror::Error;
use vfio_user::Command;

use super::wire::{FDS_MAX, TRANSFER_MAX};
use crate::irq::IrqError;
use crate::memory::fault::MapError;

/// Why a message is refused.
#[derive(Debug, Error)]
pub enum Refusal {
    /// The header's size cannot be.
    #[error("message of {0} bytes")]
    Size(u32),
    /// A reply to a command that was never sent.
    #[error("a reply that nobody asked for")]
    NotACommand,
    /// A command that the protocol does not have.
    #[error("unknown command {0}")]
    Unknown(u16),
    /// A command that this server does not have.
    #[error("command {0:?} is not supported")]
    Unsupported(Command),
    /// The first command is not VERSION.
    #[error("a command before VERSION")]
    Early,
    /// VERSION comes a second time.
    #[error("VERSION once more")]
    Again,
    /// Another protocol.
    #[error("major version {0}")]
    Major(u16),
    /// The capabilities of VERSION do not end with a zero byte.
    #[error("capabilities without an end")]
    NoNul,
    /// The capabilities of VERSION are not what they should be.
    #[error("capabilities: {0}")]
    Capabilities(serde_json::Error),
    /// The message is shorter than its command.
    #[error("a body of {0} bytes is too short")]
    Short(usize),
    /// The count of a write is not the length of its data.
    #[error("write of {count} bytes with {len} bytes of data")]
    Count {
        /// What the message says.
        count: u32,
        /// What it has.
        len: usize,
    },
    /// A read longer than what the version reply allows.
    #[error("read of {0} bytes; the longest is {TRANSFER_MAX}")]
    TooLong(u32),
    /// Flags that are not defined, do not go together or are not supported.
    #[error("flags {0:#x}")]
    Flags(u32),
    /// There is no such region.
    #[error("no region {0}")]
    NoRegion(u32),
    /// There are no such interrupts.
    #[error("no interrupt index {0}")]
    NoIrq(u32),
    /// More descriptors than the command takes.
    #[error("{0} descriptors or more; a message takes {FDS_MAX}, a map one")]
    Descriptors(usize),
    /// The daemon has no room for the descriptors.
    #[error("descriptors of the message are lost: the daemon may have no more (ulimit -n)")]
    NoDescriptors,
    /// BAR2's memory cannot be made.
    #[error("doorbell memory: {0}")]
    Memory(io::Error),
    /// The function refuses.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The function refuses.
    #[error(transparent)]
    Irq(#[from] IrqError),
}

impl Refusal {
    /// The error number in the reply; never 0, which would be success.
    #[must_use]
    pub fn errno(&self) -> Errno {
        let of = |error: &io::Error| Errno::from_io_error(error).unwrap_or(Errno::IO);
        match self {
            Self::Unknown(_) | Self::Unsupported(_) => Errno::OPNOTSUPP,
            Self::Size(_) | Self::TooLong(_) => Errno::MSGSIZE,
            Self::NoDescriptors => Errno::MFILE,
            Self::Memory(error) | Self::Map(MapError::Os { error, .. }) => of(error),
            Self::Map(MapError::TooMany) => Errno::NOSPC,
            Self::Map(MapError::Overlap { .. }) => Errno::EXIST,
            _ => Errno::INVAL,
        }
    }
}
