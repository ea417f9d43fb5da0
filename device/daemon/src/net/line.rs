//! The outer end of a port: something that frames come from and go to.

use std::io;
use std::os::fd::BorrowedFd;

use vrnic_adapter::log_ratelimit::Limiter;

use super::frame::Frame;
use super::queue::SendQueue;
use super::status::{PortStatus, Reason};
use super::turn::Turn;
use crate::worker::pool::now;
use vrnic_control::socket::access::Peer;

/// The changes that a call has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The call has changed nothing.
    None,
    /// There is a descriptor that was not there before.
    Connected,
    /// The line cannot be used any more, and is to be closed.
    Gone,
}

/// A line. Its calls never wait.
pub trait Line: Send {
    /// Returns the listening socket, which becomes readable when a client wants to connect.
    fn door(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the descriptor that frames pass through, if there is one now.
    fn wire(&self) -> Option<BorrowedFd<'_>>;

    /// Returns whether frames can pass.
    fn is_up(&self) -> bool;

    /// Returns whether joined frames without a VLAN tag can pass.
    fn joins(&self) -> bool {
        false
    }

    /// Returns the process at the other end, if that is known.
    fn peer(&self) -> Option<Peer> {
        None
    }

    /// Returns the longest IP packet that can pass, if there is a limit.
    fn mtu(&self) -> Option<u32> {
        None
    }

    /// Accepts a client that waits at the listening socket.
    ///
    /// # Errors
    /// Returns the error of `accept`.
    fn admit(&mut self, _log: &Log<'_>) -> io::Result<Change> {
        Ok(Change::None)
    }

    /// Returns whether only the switch's own thread may receive, because that may take long.
    fn needs_thread(&self) -> bool {
        false
    }

    /// Returns whether [`Self::tick`] has something to do.
    fn wants_ticks(&self) -> bool {
        false
    }

    /// Does the periodic work, about once a second.
    fn tick(&mut self, _log: &Log<'_>) -> Change {
        Change::None
    }

    /// Returns whether frames and room are found by [`Self::is_ready`]. If not, epoll reports them.
    fn is_polled(&self) -> bool {
        false
    }

    /// Returns whether [`Self::poll`] finds frames or, if frames wait to be sent, whether there is
    /// room for some.
    fn is_ready(&self, _backed_up: bool) -> bool {
        false
    }

    /// Makes the peer wake this side, by the descriptor of [`Self::wire`], when the line gets
    /// ready. Returns false if it is ready already.
    fn wait(&self, _backed_up: bool) -> bool {
        true
    }

    /// Reads what has arrived, as [`Self::receive`] does, without a look at the descriptor.
    fn poll(&mut self, _frames: &mut Vec<Frame>, _turn: &mut Turn, _log: &Log<'_>) -> Change {
        Change::None
    }

    /// Reads what has arrived until the turn is over, and appends the frames.
    fn receive(&mut self, frames: &mut Vec<Frame>, turn: &mut Turn, log: &Log<'_>) -> Change;

    /// Sends as much of the queue as the line accepts, until the turn is over.
    ///
    /// # Errors
    /// Returns an error if the line cannot be used any more.
    fn flush(&mut self, queue: &mut SendQueue, turn: &mut Turn, log: &Log<'_>) -> io::Result<()>;

    /// Closes the descriptor that frames pass through.
    fn close(&mut self);
}

/// The receiver of a line's reports.
pub struct Log<'a> {
    /// The port that the reports are about.
    pub status: &'a PortStatus,
    limiter: &'a Limiter,
}

impl<'a> Log<'a> {
    /// Creates a receiver for reports about the port with this status.
    #[must_use]
    pub const fn new(status: &'a PortStatus, limiter: &'a Limiter) -> Self {
        Self { status, limiter }
    }

    /// Writes a log line about the port. `write` receives the port's name. Nothing is written if
    /// there were many lines lately, because the process at the port's other end can cause any
    /// number of them.
    pub fn line(&self, write: impl FnOnce(&str)) {
        self.limiter.warn(now(), || write(self.status.name()));
    }

    /// Counts dropped frames and says why.
    pub fn dropped(&self, reason: Reason, frames: usize, why: impl FnOnce(&str)) {
        self.status.count_dropped(reason, frames);
        self.line(why);
    }
}
