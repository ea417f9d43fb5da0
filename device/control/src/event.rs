//! The event that a worker or the switch waits for: an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// A count that one thread waits for and other threads increment.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// Creates an event whose count is zero.
    ///
    /// # Errors
    /// Returns an error if descriptors run out.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Increments the count.
    pub fn step(&self) {
        if let Err(error) = rustix::io::write(&self.0, &1u64.to_ne_bytes()) {
            tracing::error!(%error, "a thread cannot be woken");
        }
    }

    /// Sets the count to zero.
    pub fn take(&self) {
        let mut count = [0; 8];
        let _none_left = rustix::io::read(&self.0, &mut count);
    }

    /// Waits until the count is not zero, at most `limit`. Returns whether it is not zero.
    pub fn wait(&self, limit: Duration) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = Timespec::try_from(limit).ok();
        match poll(&mut fds, limit.as_ref()) {
            Ok(ready) => ready > 0,
            Err(rustix::io::Errno::INTR) => false,
            Err(error) => {
                tracing::error!(%error, "a thread cannot wait to be woken");
                false
            }
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
