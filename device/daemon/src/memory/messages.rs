//! The interface to a VMM that reads and writes memory for the adapter.

use std::fmt::Debug;

use thiserror::Error;

/// A connection to a VMM. A call waits for the VMM, but not longer than a limit.
pub trait Messages: Debug + Send + Sync {
    /// Reads memory of the guest.
    ///
    /// # Errors
    /// See [`Unanswered`].
    fn read(&self, addr: u64, len: usize) -> Result<Vec<u8>, Unanswered>;

    /// Writes memory of the guest. On success the bytes have arrived.
    ///
    /// # Errors
    /// See [`Unanswered`].
    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), Unanswered>;
}

/// The reason for which memory could not be read or written by messages.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Unanswered {
    /// The VMM has refused it with this error number.
    #[error("the VMM refuses the access with error {0}")]
    Refused(u32),
    /// The VMM's answer does not fit the request.
    #[error("the VMM's answer does not fit the request")]
    Wrong,
    /// The VMM has not answered in time.
    #[error("the VMM does not answer in time")]
    Late,
    /// The connection has ended.
    #[error("the VMM has disconnected")]
    Closed,
}
