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
    #[error("a message cannot have {0} bytes")]
    Size(u32),
    /// A reply to a command that was never sent.
    #[error("the message is a reply, but no request was sent")]
    NotACommand,
    /// A command that the protocol does not have.
    #[error("command {0} does not exist")]
    Unknown(u16),
    /// A command that this server does not have.
    #[error("command {0:?} is not supported")]
    Unsupported(Command),
    /// The first command is not VERSION.
    #[error("a command came before VERSION")]
    Early,
    /// VERSION comes a second time.
    #[error("VERSION came a second time")]
    Again,
    /// Another protocol.
    #[error("major version {0} of the protocol is not supported")]
    Major(u16),
    /// The capabilities of VERSION do not end with a zero byte.
    #[error("the capabilities do not end with a zero byte")]
    NoNul,
    /// The capabilities of VERSION are not what they should be.
    #[error("the capabilities are not valid: {0}")]
    Capabilities(serde_json::Error),
    /// The message is shorter than its command.
    #[error("a body of {0} bytes is too short for the command")]
    Short(usize),
    /// The count of a write is not the length of its data.
    #[error("a write of {count} bytes carries {len} bytes of data")]
    Count {
        /// Length according to the message.
        count: u32,
        /// Actual length.
        len: usize,
    },
    /// A read longer than what the version reply allows.
    #[error("a read of {0} bytes is longer than the limit of {TRANSFER_MAX}")]
    TooLong(u32),
    /// Flags that are not defined, do not go together or are not supported.
    #[error("flags {0:#x} are not valid or not supported")]
    Flags(u32),
    /// There is no such region.
    #[error("there is no region {0}")]
    NoRegion(u32),
    /// There are no such interrupts.
    #[error("there is no interrupt index {0}")]
    NoIrq(u32),
    /// More descriptors than the command takes.
    #[error(
        "the message carries {0} or more file descriptors; the limit is {FDS_MAX}, and one for a map"
    )]
    Descriptors(usize),
    /// The daemon has no room for the descriptors.
    #[error(
        "file descriptors of the message are lost; the daemon has probably reached its limit (ulimit -n)"
    )]
    NoDescriptors,
    /// BAR2's memory cannot be made.
    #[error("the doorbell memory cannot be created: {0}")]
    Memory(io::Error),
    /// The adapter refuses.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The adapter refuses.
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
