//! A command that a program has written, copied once.

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::uverbs::process::Process;

/// What a command leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command has been executed.
    Done,
    /// There is no event. The thread waits for one, if it may.
    Waits {
        /// The address for the event.
        response: u64,
        /// Number of bytes at that address.
        room: usize,
    },
}

/// A command.
pub struct CmCommand<'a> {
    /// The process that has written it.
    pub process: &'a dyn Process,
    /// The address of what follows the header.
    pub addr: u64,
    /// Number of bytes there.
    pub given: usize,
    /// Number of bytes for the answer.
    pub room: usize,
}

impl CmCommand<'_> {
    /// Copies the command. What the program has not given is zero.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn copy<T: FromBytes + IntoBytes>(&self) -> Result<T, Errno> {
        let mut value = T::new_zeroed();
        let bytes = value.as_mut_bytes();
        let len = bytes.len().min(self.given);
        self.process.read(self.addr, bytes.get_mut(..len).ok_or(Errno::FAULT)?)?;
        Ok(value)
    }

    /// Checks that there is room for an answer of `len` bytes.
    ///
    /// # Errors
    /// `ENOSPC` if there is not.
    pub fn check_room(&self, len: usize) -> Result<(), Errno> {
        if self.room < len { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// Writes as many bytes of an answer as there is room for, to an address that the command has
    /// named.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn respond(
        &self,
        addr: u64,
        answer: &(impl IntoBytes + Immutable + ?Sized),
    ) -> Result<(), Errno> {
        let bytes = answer.as_bytes();
        self.process.write(addr, bytes.get(..self.room).unwrap_or(bytes))
    }
}
