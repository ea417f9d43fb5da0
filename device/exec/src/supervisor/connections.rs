//! System calls on files of the connection manager.

use std::os::fd::{BorrowedFd, RawFd};

use nix::unistd::Pid;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::memory::spaces::Placement;
use crate::rdma_cm::files::Wait;
use crate::rdma_cm::request::Outcome;
use crate::rdma_cm::service::CmService;
use crate::trap::call::{Answer, Call};
use crate::trap::listener::{Id, Listener};
use crate::trap::task::{self, FileId, Signaled};
use crate::uverbs::process::Process;

/// `ERESTARTSYS` of the kernel's linux/errno.h: the kernel makes the system call again, unless the
/// handler of the signal says that it must not.
const RESTART: i32 = 512;

/// A thread that waits for an event.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    id: Id,
    thread: Pid,
    /// True if a signal of the process was pending at the last look.
    signaled: bool,
}

/// The connection manager of the programs.
pub type Connections = CmService<Waiter>;

/// A thread that has written a command.
struct Writer<'a> {
    listener: &'a Listener,
    id: Id,
    thread: Pid,
}

impl Writer<'_> {
    /// Checks that the number of the thread is still that of this thread.
    fn check(&self) -> Result<(), Errno> {
        if self.listener.is_waiting(self.id) { Ok(()) } else { Err(Errno::INTR) }
    }
}

impl Process for Writer<'_> {
    fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), Errno> {
        task::read(self.thread, addr, into)?;
        self.check()
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), Errno> {
        self.check()?;
        task::write(self.thread, addr, from)
    }

    fn place(&self, _addr: u64, _len: u64, _written: bool) -> Result<Placement, Errno> {
        Err(Errno::FAULT)
    }

    fn file(&self, descriptor: i32) -> Result<FileId, Errno> {
        task::file(self.thread, descriptor)
    }

    fn give(&self, _file: BorrowedFd<'_>) -> Result<RawFd, Errno> {
        Err(Errno::MFILE)
    }
}

/// Executes what a thread has written to a file of the connection manager.
///
/// # Errors
/// The kernel's errors.
pub fn write(
    connections: &mut Connections,
    listener: &Listener,
    id: Id,
    call: &Call,
    file: FileId,
) -> Result<Answer, Errno> {
    let (thread, len) = (call.thread, call.arg(2));
    let writer = Writer { listener, id, thread };
    match connections.write(file, &writer, call.arg(1), len)? {
        Outcome::Done => i64::try_from(len).map(Answer::Value).map_err(|_| Errno::INVAL),
        Outcome::Waits { .. } if task::is_nonblocking(thread, call.descriptor(0)) => {
            Err(Errno::AGAIN)
        }
        Outcome::Waits { response, room } => {
            let by = Waiter { id, thread, signaled: false };
            connections.wait(file, Wait { by, response, room, written: len })?;
            Ok(Answer::Given)
        }
    }
}

/// Gives events to the threads that wait for them.
pub fn deliver(connections: &mut Connections, listener: &Listener) {
    connections.deliver(|wait, event| {
        let Waiter { id, thread, .. } = wait.by;
        let bytes = event.as_bytes();
        let bytes = bytes.get(..wait.room).unwrap_or(bytes);
        let stored = Writer { listener, id, thread }.write(wait.response, bytes);
        let written = i64::try_from(wait.written).map_err(|_| Errno::INVAL);
        let answer = stored.and(written).map(Answer::Value);
        let got = answer.is_ok();
        listener.answer(id, answer.into()).is_ok() && got
    });
}

/// Ends the waits of threads that have a signal to handle, or do not exist any more. The kernel
/// does not interrupt the wait for an answer of the supervisor, except by the end of the thread.
pub fn interrupt(connections: &mut Connections, listener: &Listener) {
    connections.end_waits(|wait| {
        let Waiter { id, thread, .. } = wait.by;
        if !listener.is_waiting(id) {
            return true;
        }
        let error = match task::pending(thread) {
            Signaled::Thread => Errno::from_raw_os_error(RESTART),
            // Another thread may handle the signal, and this one must then not see the number.
            Signaled::Process if wait.by.signaled => Errno::INTR,
            found => {
                wait.by.signaled = found == Signaled::Process;
                return false;
            }
        };
        let _gone = listener.answer(id, Answer::Failed(error));
        true
    });
}
