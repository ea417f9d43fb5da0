//! Child processes that are copies of this process, and numbers that they share with it.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

/// A child process. It is not ended on drop.
pub(crate) struct Child(Pid);

impl Child {
    /// Forks a child, which calls `life` and exits. If `life` fails, it prints the error to
    /// standard error and exits with 1.
    pub(crate) fn fork(life: impl FnOnce() -> io::Result<()>) -> io::Result<Self> {
        // SAFETY: only commands that create children call this, and they have no other thread; so
        // the child's only thread finds all locks free and may call anything.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let failed = life().inspect_err(|e| eprintln!("child: {e}")).is_err();
                std::process::exit(failed.into())
            }
            pid => Ok(Self(Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process"))?)),
        }
    }

    /// Kills the child at once.
    pub(crate) fn kill(&self) -> io::Result<()> {
        Ok(kill_process(self.0, Signal::KILL)?)
    }

    /// Waits for the end of the child. The kernel has freed all of its objects then.
    pub(crate) fn wait(self) -> io::Result<WaitStatus> {
        let ended = waitpid(Some(self.0), WaitOptions::empty())?;
        Ok(ended.ok_or_else(|| io::Error::other("the child does not end"))?.1)
    }
}

/// Numbers that this process and its later children share. The memory is never unmapped.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    words: NonNull<AtomicU64>,
    count: usize,
}

impl Shared {
    /// Allocates this number of zeros.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let (len, prot) = (count * size_of::<AtomicU64>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let map = unsafe { mmap_anonymous(ptr::null_mut(), len, prot, MapFlags::SHARED) }?;
        let words = NonNull::new(map.cast()).ok_or_else(|| io::Error::other("mmap gave null"))?;
        Ok(Self { words, count })
    }

    /// Returns all numbers.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this length, is page aligned, and is never unmapped; all
        // processes access it by atomics.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}
