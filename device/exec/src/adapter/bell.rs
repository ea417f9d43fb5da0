//! A bell, by which the worker wakes the supervisor's thread: an event file of the kernel.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// The bell. Many calls before the supervisor has looked cost one system call.
#[derive(Debug)]
pub struct Bell {
    file: OwnedFd,
    rung: AtomicBool,
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Bell {
    /// Creates a bell that is quiet.
    ///
    /// # Errors
    /// `EMFILE` if this process has too many files.
    pub fn new() -> Result<Self, Errno> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { file, rung: AtomicBool::new(false) })
    }

    /// Makes the file readable, after what the supervisor is to see has been stored.
    pub fn ring(&self) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            // The number in the file is far from its limit.
            let _always = rustix::io::write(&self.file, &1u64.to_ne_bytes());
        }
    }

    /// Makes the file unreadable. What is stored from now on rings again.
    pub fn quiet(&self) {
        let _number = rustix::io::read(&self.file, &mut [0; 8]);
        self.rung.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    #[test]
    fn the_bell_is_readable_until_it_is_quiet() {
        let bell = Bell::new().expect("a file");
        let is_readable = || {
            let mut ready = [PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
            poll(&mut ready, PollTimeout::ZERO) == Ok(1)
        };
        for _ in 0..2 {
            assert!(!is_readable());
            bell.ring();
            bell.ring();
            assert!(is_readable());
            bell.quiet();
        }
        assert!(!is_readable());
    }
}
