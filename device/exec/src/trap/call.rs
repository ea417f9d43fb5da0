//! A system call, and its answer.

use nix::unistd::Pid;
use rustix::io::Errno;

/// A system call that a program has made.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The thread that has made it.
    pub thread: Pid,
    /// The number of the system call.
    pub number: i64,
    /// The arguments of the system call.
    pub args: [u64; 6],
}

impl Call {
    /// Returns an argument that is a descriptor. `AT_FDCWD` is negative.
    #[must_use]
    pub fn descriptor(&self, argument: usize) -> i32 {
        // CAST: the kernel takes the lower half, too.
        self.arg(argument) as i32
    }

    /// Returns an argument.
    #[must_use]
    pub fn arg(&self, argument: usize) -> u64 {
        self.args.get(argument).copied().unwrap_or(0)
    }
}

/// The answer to a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel executes it.
    Continue,
    /// The system call returns this value.
    Value(i64),
    /// The system call fails with this error.
    Failed(Errno),
    /// Somebody has answered already.
    Given,
}

impl From<Result<Answer, Errno>> for Answer {
    fn from(result: Result<Answer, Errno>) -> Self {
        result.unwrap_or_else(Self::Failed)
    }
}
