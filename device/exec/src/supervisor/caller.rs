//! The process that makes a request.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use nix::unistd::Pid;
use rustix::io::Errno;

use crate::memory::space::Space;
use crate::memory::spaces::{Number, Placement, Spaces};
use crate::trap::listener::{Id, Listener};
use crate::trap::task::{self, FileId};
use crate::uverbs::process::Process;

/// A thread that waits for the answer to an ioctl.
#[derive(Debug)]
pub struct Caller<'a> {
    /// The file by which its system call has arrived.
    pub listener: &'a Listener,
    /// The system call.
    pub id: Id,
    /// The thread.
    pub thread: Pid,
    /// The memory of the thread's process.
    pub space: Arc<Space>,
    /// The number of that memory.
    pub number: Number,
    /// The memory of all numbers.
    pub spaces: &'a Arc<Spaces>,
}

impl Process for Caller<'_> {
    fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.space.read(addr, into)
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), Errno> {
        self.space.write(addr, from)
    }

    fn place(&self, addr: u64, len: u64, written: bool) -> Result<Placement, Errno> {
        task::check_memory(self.space.pid(), addr, len, written)?;
        self.spaces.place(self.number, addr)
    }

    fn place_later(&self, addr: u64, len: u64) -> Result<Placement, Errno> {
        let last = addr.checked_add(len.saturating_sub(1)).ok_or(Errno::FAULT)?;
        let _inside = self.number.place(last)?;
        self.spaces.place(self.number, addr)
    }

    fn mapped(&self, addr: u64, len: u64) -> Option<(FileId, u64)> {
        task::mapped(self.space.pid(), addr, len)
    }

    fn file(&self, descriptor: i32) -> Result<FileId, Errno> {
        task::file(self.thread, descriptor)
    }

    fn give(&self, file: BorrowedFd<'_>) -> Result<RawFd, Errno> {
        self.listener.give(self.id, file)
    }
}
