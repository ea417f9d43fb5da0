//! What a request needs of the process that makes it.

use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::Errno;

use crate::memory::spaces::Placement;
use crate::trap::task::FileId;

/// A process that makes a request, and waits for the answer.
pub trait Process {
    /// Reads its memory.
    ///
    /// # Errors
    /// `EFAULT` if not all of it is there.
    fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), Errno>;

    /// Writes to its memory.
    ///
    /// # Errors
    /// `EFAULT` if not all of it can be written.
    fn write(&self, addr: u64, from: &[u8]) -> Result<(), Errno>;

    /// Gives the adapter the address of a range of its memory, all of which is there and can be
    /// read, or also written.
    ///
    /// # Errors
    /// `EFAULT` if that is not so.
    fn place(&self, addr: u64, len: u64, written: bool) -> Result<Placement, Errno>;

    /// Gives the adapter the address of a range of its memory, which need not be there now.
    ///
    /// # Errors
    /// `EFAULT` if there can be no such memory.
    fn place_later(&self, addr: u64, len: u64) -> Result<Placement, Errno> {
        self.place(addr, len, false)
    }

    /// Returns the file of which a range of its memory is a shared mapping, and the place of the
    /// range in the file. `None` if that is not so.
    fn mapped(&self, _addr: u64, _len: u64) -> Option<(FileId, u64)> {
        None
    }

    /// Returns the file that a descriptor refers to.
    ///
    /// # Errors
    /// `EBADF` if there is none.
    fn file(&self, descriptor: i32) -> Result<FileId, Errno>;

    /// Gives it a copy of a descriptor. Returns the number.
    ///
    /// # Errors
    /// `EMFILE` if it has no room for it.
    fn give(&self, file: BorrowedFd<'_>) -> Result<RawFd, Errno>;
}
