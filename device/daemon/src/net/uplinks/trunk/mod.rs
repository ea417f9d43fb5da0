//! A trunk: the line to another daemon's switch. Frames pass through shared memory, in a ring for
//! each direction. A UNIX socket of messages (SOCK_SEQPACKET) is for finding each other, for the
//! [`greeting`], and for wake-ups: messages of one byte, which a side sends if the other one has
//! said in the shared memory that it waits. When one side closes the socket, the trunk ends.
//!
//! One daemon listens, the other one connects, and tries again once a second while it cannot.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`memory`] | the shared memory of one direction |
//! | [`ring`] | the frames in it, sleep and wake-up |
//! | [`greeting`] | the first message |

pub mod greeting;
pub mod memory;
pub mod ring;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use thiserror::Error;

use self::greeting::{Greeting, Refused};
use self::memory::Memory;
use self::ring::{Lie, Next, Receiver, Sender};
use crate::net::frame::Frame;
use crate::net::line::{Change, Line, Log};
use crate::net::queue::SendQueue;
use crate::net::status::Reason;
use crate::net::turn::Turn;
use vrnic_control::socket::access::Peer;
use vrnic_control::socket::{SocketFile, accept, dial};

/// Bytes after which the peer is shown the frames that were written, or the room that is free, so
/// that both sides work at the same time.
const STEP: usize = 64 << 10;
/// Maximum number of wake-ups that are taken in one turn. A peer may send any number of them.
const WAKE_UPS: usize = 16;
/// Longest time from the connection to the peer's first message. A silent peer keeps others away
/// for this time.
const GREETING: Duration = Duration::from_secs(3);

/// The way in which a trunk gets a peer.
#[derive(Debug)]
pub enum End {
    /// The other daemon connects to this socket.
    Listen(SocketFile),
    /// The other daemon listens at this path.
    Connect(PathBuf),
    /// The connection is there already, until the trunk begins to use it. There is no other one.
    Connected(Option<OwnedFd>),
}

/// The line to another daemon.
pub struct Trunk {
    end: End,
    connection: Option<Connection>,
    /// True if the log already says why there is no peer, or that another one was turned away.
    logged: bool,
}

/// A connection to another daemon.
struct Connection {
    socket: OwnedFd,
    peer: Peer,
    since: Instant,
    sender: Sender,
    /// None until the peer has sent its greeting.
    receiver: Option<Receiver>,
}

/// The reason for which a connection ends.
#[derive(Debug, Error)]
enum Broken {
    /// The peer is no daemon of this version.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The shared memory is not as it should be.
    #[error(transparent)]
    Lie(#[from] Lie),
    /// A message is no wake-up.
    #[error("the peer sent a message of {0} bytes instead of a wake-up of one byte")]
    Message(usize),
    /// The kernel returned an error.
    #[error("the socket of the trunk failed: {0}")]
    Os(#[from] Errno),
}

impl Trunk {
    /// Creates a trunk without a peer.
    #[must_use]
    pub const fn new(end: End) -> Self {
        Self { end, connection: None, logged: false }
    }

    /// Begins a connection.
    fn open(&mut self, socket: OwnedFd) -> io::Result<Change> {
        let (memory, file) = Memory::create()?;
        greeting::send(&socket, file.as_fd())?;
        self.connection = Some(Connection {
            peer: Peer::of(&socket),
            socket,
            since: Instant::now(),
            sender: Sender::new(memory),
            receiver: None,
        });
        Ok(Change::Connected)
    }
}

impl Connection {
    /// Takes frames from the ring until the turn is over. Each record counts as a frame, also one
    /// that is none.
    fn take(
        &mut self,
        frames: &mut Vec<Frame>,
        turn: &mut Turn,
        log: &Log<'_>,
    ) -> Result<(), Broken> {
        let Some(receiver) = &mut self.receiver else { return Ok(()) };
        let (mut taken, mut shown) = (0, 0);
        while !turn.is_over() {
            match receiver.take()? {
                Next::Nothing => break,
                Next::Frame(frame) => {
                    let len = frame.bytes().len();
                    taken += len;
                    turn.spend(1, len);
                    // The ring has checked the length.
                    frames.extend(Frame::try_from(frame));
                }
                Next::Malformed(len) => {
                    turn.spend(1, 0);
                    log.dropped(Reason::Malformed, 1, |port| {
                        tracing::warn!(
                            port,
                            "a frame of {len} bytes was dropped: no frame has this length"
                        );
                    });
                }
            }
            if taken - shown >= STEP {
                shown = taken;
                if receiver.publish() {
                    wake(&self.socket)?;
                }
            }
        }
        if receiver.publish() {
            wake(&self.socket)?;
        }
        Ok(())
    }

    /// Takes wake-ups from the socket. Returns false at its end.
    fn take_wake_ups(&self) -> Result<bool, Broken> {
        let mut buffer = [0; 2];
        for _ in 0..WAKE_UPS {
            match recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Ok((_, 1)) => {}
                Ok((_, 0)) | Err(Errno::CONNRESET) => return Ok(false),
                Ok((_, len)) => return Err(Broken::Message(len)),
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Handles an event of the socket. Returns false at its end, after all that the peer has sent
    /// was taken.
    fn receive(
        &mut self,
        frames: &mut Vec<Frame>,
        turn: &mut Turn,
        log: &Log<'_>,
    ) -> Result<bool, Broken> {
        if self.receiver.is_none() {
            match greeting::receive(&self.socket)? {
                Greeting::Memory(memory) => self.receiver = Some(Receiver::new(memory)),
                Greeting::Nothing => {}
                Greeting::End => return Ok(false),
            }
            return Ok(true);
        }
        let open = self.take_wake_ups()?;
        self.take(frames, turn, log)?;
        // At the end, epoll reports the socket again in the next turn.
        Ok(open || self.receiver.as_ref().is_some_and(Receiver::has_frames))
    }

    /// Writes frames of the queue into the ring while there is room, until the turn is over.
    fn send(&mut self, queue: &mut SendQueue, turn: &mut Turn) -> Result<(), Broken> {
        loop {
            let (mut count, mut bytes, mut room) = (0, 0, true);
            for frame in queue.frames() {
                if bytes >= STEP {
                    break;
                }
                room = self.sender.put(frame.bytes())?;
                if !room {
                    break;
                }
                count += 1;
                bytes += frame.bytes().len();
            }
            queue.remove(count);
            turn.spend(count, bytes);
            if self.sender.publish() {
                wake(&self.socket)?;
            }
            if !room || queue.is_empty() || turn.is_over() {
                return Ok(());
            }
        }
    }
}

/// Sends a wake-up.
fn wake(socket: &OwnedFd) -> Result<(), Errno> {
    match send(socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        // If so many wake-ups wait that there is no room, the peer wakes up because of these. If
        // the connection is closed, reading from it reports that.
        Ok(_) | Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Line for Trunk {
    fn door(&self) -> Option<BorrowedFd<'_>> {
        match &self.end {
            End::Listen(socket) => Some(socket.listener().as_fd()),
            End::Connect(_) | End::Connected(_) => None,
        }
    }

    fn wire(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(|connection| connection.socket.as_fd())
    }

    fn is_up(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.receiver.is_some())
    }

    fn peer(&self) -> Option<Peer> {
        self.connection.as_ref().map(|connection| connection.peer)
    }

    fn admit(&mut self, log: &Log<'_>) -> io::Result<Change> {
        let End::Listen(socket) = &self.end else { return Ok(Change::None) };
        let Some((stream, client)) = accept(socket.listener())? else { return Ok(Change::None) };
        if self.connection.is_some() {
            // The client may try again and again.
            if !std::mem::replace(&mut self.logged, true) {
                log.line(|port| {
                    tracing::warn!(
                        port,
                        socket = %socket.path().display(),
                        %client,
                        "second client turned away: a daemon is already connected"
                    );
                });
            }
            return Ok(Change::None);
        }
        stream.set_nonblocking(true)?;
        self.open(stream.into())
    }

    fn wants_ticks(&self) -> bool {
        match &self.connection {
            Some(connection) => connection.receiver.is_none(),
            None => matches!(self.end, End::Connect(_)),
        }
    }

    fn tick(&mut self, log: &Log<'_>) -> Change {
        if let Some(connection) = &self.connection {
            if connection.receiver.is_some() || connection.since.elapsed() < GREETING {
                return Change::None;
            }
            log.line(|port| {
                tracing::warn!(port, peer = %connection.peer, "a peer was disconnected: it did not send the first message of the trunk protocol in time");
            });
            return Change::Gone;
        }
        let socket = match &mut self.end {
            End::Listen(_) | End::Connected(None) => return Change::None,
            End::Connect(path) => dial(path),
            End::Connected(socket) => socket.take().ok_or_else(|| Errno::NOTCONN.into()),
        };
        match socket.and_then(|socket| self.open(socket)) {
            Ok(change) => change,
            Err(error) => {
                if !std::mem::replace(&mut self.logged, true)
                    && let End::Connect(path) = &self.end
                {
                    log.line(|port| {
                        tracing::info!(port, path = %path.display(), %error, "the other daemon cannot be reached; the connection is tried again every second");
                    });
                }
                Change::None
            }
        }
    }

    fn receive(&mut self, frames: &mut Vec<Frame>, turn: &mut Turn, log: &Log<'_>) -> Change {
        let Self { connection: Some(connection), logged, .. } = self else { return Change::None };
        let known = connection.receiver.is_some();
        let ended = match connection.receive(frames, turn, log) {
            Ok(open) => !open,
            Err(error) => return broken(connection.peer, &error, log),
        };
        if !ended {
            *logged &= connection.receiver.is_none();
            return Change::None;
        }
        if known {
            log.line(|port| tracing::info!(port, "the other daemon has disconnected"));
        } else if !std::mem::replace(logged, true) {
            log.line(|port| {
                tracing::warn!(port, peer = %connection.peer, "the peer disconnected before it sent the first message of the trunk protocol; it may already be connected to another peer");
            });
        }
        Change::Gone
    }

    fn is_polled(&self) -> bool {
        true
    }

    fn is_ready(&self, backed_up: bool) -> bool {
        self.connection.as_ref().is_some_and(|connection| {
            connection.receiver.as_ref().is_some_and(Receiver::has_frames)
                || backed_up && connection.sender.has_room()
        })
    }

    fn wait(&self, backed_up: bool) -> bool {
        self.connection.as_ref().is_none_or(|connection| {
            let frames = connection.receiver.as_ref().is_none_or(Receiver::wait);
            let room = !backed_up || connection.sender.wait();
            frames && room
        })
    }

    fn poll(&mut self, frames: &mut Vec<Frame>, turn: &mut Turn, log: &Log<'_>) -> Change {
        let Some(connection) = &mut self.connection else { return Change::None };
        match connection.take(frames, turn, log) {
            Ok(()) => Change::None,
            Err(error) => broken(connection.peer, &error, log),
        }
    }

    fn flush(&mut self, queue: &mut SendQueue, turn: &mut Turn, _log: &Log<'_>) -> io::Result<()> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        connection.send(queue, turn).map_err(io::Error::other)
    }

    fn close(&mut self) {
        self.connection = None;
    }
}

/// Reports why a connection ends.
fn broken(peer: Peer, error: &Broken, log: &Log<'_>) -> Change {
    log.line(|port| tracing::warn!(port, %peer, "a peer was disconnected: {error}"));
    Change::Gone
}
