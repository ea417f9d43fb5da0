//! Turns away clients of a socket whose adapter already has a VMM.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use vrnic_control::socket::{SocketFile, accept};

/// Number of checks for which a waiting client is kept before it is turned away.
const MAX_CHECKS: u32 = 10;

/// The socket of a function. Its clients are turned away while the adapter has a VMM.
#[derive(Debug)]
pub struct BusySocket {
    name: String,
    socket: Arc<SocketFile>,
    busy: Arc<AtomicBool>,
    waited: u32,
}

impl BusySocket {
    /// Watches `socket` while `busy` is true.
    #[must_use]
    pub fn new(name: &str, socket: &Arc<SocketFile>, busy: &Arc<AtomicBool>) -> Self {
        let (socket, busy) = (Arc::clone(socket), Arc::clone(busy));
        Self { name: name.to_owned(), socket, busy, waited: 0 }
    }

    /// Returns the name of the function whose socket it watches.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Checks for a waiting client; called ten times a second. A client that waits while a VMM is
    /// connected is closed after a second, in case that the VMM is about to end.
    pub fn check(&mut self) {
        let listener = self.socket.listener();
        let waiting = self.busy.load(Ordering::SeqCst) && readable(listener);
        self.waited = if waiting { self.waited + 1 } else { 0 };
        if self.waited >= MAX_CHECKS
            && let Ok(Some((_, client))) = accept(listener)
        {
            self.waited = 0;
            tracing::warn!(
                function = self.name,
                socket = %self.socket.path().display(),
                %client,
                "second client turned away: a VMM is already connected"
            );
        }
    }
}

/// Returns whether a client waits to be accepted.
fn readable(listener: &UnixListener) -> bool {
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}
