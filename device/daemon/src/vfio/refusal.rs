//! Reasons why a message of a VMM is refused, and the error number in the reply.

use std::io;

use rustix::io::Errno;
use thiserror::Error;
use vfio_user::Command;

use super::wire::{FDS_MAX, TRANSFER_MAX};
use crate::host::irq::IrqError;
use crate::memory::fault::MapError;

/// The reason for which a message is refused.
#[derive(Debug, Error)]
pub enum Refusal {
    /// The size in the header is not valid.
    #[error("a message cannot have {0} bytes")]
    Size(u32),
    /// A reply to a command that was never sent.
    #[error("the message is a reply, but no request was sent")]
    NotACommand,
    /// The command does not exist in the protocol.
    #[error("command {0} does not exist")]
    Unknown(u16),
    /// This server does not support the command.
    #[error("command {0:?} is not supported")]
    Unsupported(Command),
    /// The first command is not VERSION.
    #[error("a command came before VERSION")]
    Early,
    /// VERSION comes a second time.
    #[error("VERSION came a second time")]
    Again,
    /// The major version is not supported.
    #[error("major version {0} of the protocol is not supported")]
    Major(u16),
    /// The capabilities of VERSION do not end with a zero byte.
    #[error("the capabilities do not end with a zero byte")]
    NoNul,
    /// The capabilities of VERSION cannot be parsed.
    #[error("the capabilities are not valid: {0}")]
    Capabilities(serde_json::Error),
    /// The message is shorter than its command requires.
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
    /// A read is longer than the maximum in the reply to VERSION.
    #[error("a read of {0} bytes is longer than the limit of {TRANSFER_MAX}")]
    TooLong(u32),
    /// Flags that are not defined, exclude each other or are not supported.
    #[error("flags {0:#x} are not valid or not supported")]
    Flags(u32),
    /// There is no such region.
    #[error("there is no region {0}")]
    NoRegion(u32),
    /// There are no such interrupts.
    #[error("there is no interrupt index {0}")]
    NoIrq(u32),
    /// The message has more descriptors than the command takes.
    #[error(
        "the message carries {0} or more file descriptors; the limit is {FDS_MAX}, and one for a map"
    )]
    Descriptors(usize),
    /// The daemon has no room for more descriptors.
    #[error(
        "file descriptors of the message are lost; the daemon has probably reached its limit (ulimit -n)"
    )]
    NoDescriptors,
    /// BAR2's memory cannot be allocated.
    #[error("the doorbell memory cannot be created: {0}")]
    Memory(io::Error),
    /// The adapter has refused a mapping.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The adapter has refused a change of interrupts.
    #[error(transparent)]
    Irq(#[from] IrqError),
}

impl Refusal {
    /// Returns the error number for the reply; never 0, which would mean success.
    #[must_use]
    pub fn errno(&self) -> Errno {
        let of = |error: &io::Error| Errno::from_io_error(error).unwrap_or(Errno::IO);
        match self {
            Self::Unknown(_) | Self::Unsupported(_) => Errno::OPNOTSUPP,
            Self::Size(_) | Self::TooLong(_) => Errno::MSGSIZE,
            Self::NoDescriptors => Errno::MFILE,
            Self::Memory(error) | Self::Map(MapError::Os { error, .. }) => of(error),
            Self::Map(MapError::TooMany { .. } | MapError::TooManyFiles { .. }) => Errno::NOSPC,
            Self::Map(MapError::Overlap { .. }) => Errno::EXIST,
            _ => Errno::INVAL,
        }
    }
}
