//! The interface to a VMM that reads and writes memory for the adapter.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;

/// A connection to a VMM. A call waits for the VMM, but not longer than a limit.
pub trait Messages: Debug + Send + Sync {
    /// Reads memory of the guest, unless `end` is set before.
    ///
    /// # Errors
    /// See [`Unanswered`].
    fn read(&self, addr: u64, len: usize, end: &End) -> Result<Vec<u8>, Unanswered>;

    /// Writes memory of the guest, unless `end` is set before. On success the bytes have arrived.
    ///
    /// # Errors
    /// See [`Unanswered`].
    fn write(&self, addr: u64, bytes: &[u8], end: &End) -> Result<(), Unanswered>;

    /// Returns whether a write to this range may still take place, because the VMM has not answered
    /// it.
    fn is_owed(&self, addr: u64, len: u64) -> bool;

    /// Ends the connection.
    fn disconnect(&self);
}

/// Ends an access. When this has been set, no message of the access overtakes a later reply to the
/// VMM.
#[derive(Debug, Default)]
pub struct End(AtomicBool);

impl End {
    /// Lets the access send no more messages.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns whether this has been set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
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
    /// The access was ended before all of it had been sent.
    #[error("the access was ended")]
    Ended,
}
