//! Child processes that are copies of this one, and numbers that they share with it.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

/// A child process. It is not ended on drop.
pub(crate) struct Child(Pid);

impl Child {
    /// Forks. The child runs `life` and ends; it prints an error to standard error and exits with
    /// 1.
    pub(crate) fn fork(life: impl FnOnce() -> io::Result<()>) -> io::Result<Self> {
        // SAFETY: only the commands that make children get here, and they have no thread but this
        // one; so the child's only thread finds all locks free and may call anything.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let failed = life().inspect_err(|e| eprintln!("child: {e}")).is_err();
                std::process::exit(failed.into())
            }
            pid => Ok(Self(Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process"))?)),
        }
    }

    /// Ends it without a chance to do anything.
    pub(crate) fn kill(&self) -> io::Result<()> {
        Ok(kill_process(self.0, Signal::KILL)?)
    }

    /// Waits for its end. All that the kernel held for it is gone then.
    pub(crate) fn wait(self) -> io::Result<WaitStatus> {
        let ended = waitpid(Some(self.0), WaitOptions::empty())?;
        Ok(ended.ok_or_else(|| io::Error::other("the child does not end"))?.1)
    }
}

/// Numbers that this process and the children it makes later all see. The memory is never unmapped.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    words: NonNull<AtomicU64>,
    count: usize,
}

impl Shared {
    /// Allocates so many zeros.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let (len, prot) = (count * size_of::<AtomicU64>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let map = unsafe { mmap_anonymous(ptr::null_mut(), len, prot, MapFlags::SHARED) }?;
        let words = NonNull::new(map.cast()).ok_or_else(|| io::Error::other("mmap gave null"))?;
        Ok(Self { words, count })
    }

    /// Returns all of them.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is as long as that, page aligned, and stays for ever; everybody uses
        // it by atomics.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}
