//! A trunk: the line to another daemon's switch, over a UNIX socket of messages (SOCK_SEQPACKET).
//! One daemon listens, the other one connects, and tries again once a second while it cannot.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`message`] | the form of the messages |

pub mod message;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_send_buffer_size, socket_send_buffer_size};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

use self::message::{Frames, HELLO, MESSAGE_MAX};
use super::frame::Frame;
use super::line::{Change, Line, Log, TURN_BYTES};
use super::queue::SendQueue;
use super::status::Reason;
use crate::access::Peer;
use crate::socket::{SocketFile, accept, dial};

/// Size in bytes that the daemon requests for the socket's send buffer.
const SEND_BUFFER: usize = 4 << 20;
/// Bytes of a socket's buffer that the kernel needs beside the message (net/unix/af_unix.c,
/// `unix_dgram_sendmsg`).
const MESSAGE_OVERHEAD: usize = 32;
/// Longest time from the connection to the peer's first message. A silent peer keeps others away
/// for this time.
const GREETING: Duration = Duration::from_secs(3);

/// How a trunk comes to have a peer.
#[derive(Debug)]
pub enum End {
    /// The other daemon connects to this socket.
    Listen(SocketFile),
    /// The other daemon listens at this path.
    Connect(PathBuf),
}

/// The line to another daemon.
pub struct Trunk {
    end: End,
    connection: Option<Connection>,
    /// Buffer for a message.
    buffer: Vec<u8>,
    /// True if the log already says why there is no peer, or that another one was turned away.
    told: bool,
}

/// A connection to another daemon.
struct Connection {
    socket: OwnedFd,
    peer: Peer,
    since: Instant,
    /// True if the peer has sent [`HELLO`].
    greeted: bool,
    /// Length of the longest message that the kernel accepts.
    message_max: usize,
}

impl Trunk {
    /// Creates a trunk without a peer.
    #[must_use]
    pub fn new(end: End) -> Self {
        Self { end, connection: None, buffer: vec![0; MESSAGE_MAX], told: false }
    }

    /// Begins a connection.
    fn open(&mut self, socket: OwnedFd) -> io::Result<Change> {
        // The kernel grants less if net.core.wmem_max is smaller. The smaller buffer works, too.
        let _less = set_socket_send_buffer_size(&socket, SEND_BUFFER);
        let room = socket_send_buffer_size(&socket)?.saturating_sub(MESSAGE_OVERHEAD);
        match send(&socket, HELLO, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            // If the connection is already closed, reading from it reports that.
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(error) => return Err(error.into()),
        }
        self.connection = Some(Connection {
            peer: Peer::of(&socket),
            socket,
            since: Instant::now(),
            greeted: false,
            message_max: room.min(MESSAGE_MAX),
        });
        Ok(Change::Connected)
    }
}

impl Connection {
    /// Sends a message with the first frames. Returns the number of these frames, which is 0 if not
    /// even one fits.
    fn send(&self, queue: &SendQueue) -> (usize, rustix::io::Result<()>) {
        let batch = queue.batch(self.message_max);
        if batch.frames == 0 {
            return (0, Ok(()));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut none = SendAncillaryBuffer::default();
        let sent = sendmsg(&self.socket, &batch.slices, &mut none, flags);
        (batch.frames, sent.map(|_| ()))
    }
}

impl Line for Trunk {
    fn door(&self) -> Option<BorrowedFd<'_>> {
        match &self.end {
            End::Listen(socket) => Some(socket.listener().as_fd()),
            End::Connect(_) => None,
        }
    }

    fn wire(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(|connection| connection.socket.as_fd())
    }

    fn is_up(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.greeted)
    }

    fn peer(&self) -> Option<Peer> {
        self.connection.as_ref().map(|connection| connection.peer)
    }

    fn admit(&mut self, log: &Log<'_>) -> io::Result<Change> {
        let End::Listen(socket) = &self.end else { return Ok(Change::None) };
        let Some((stream, client)) = accept(socket.listener())? else { return Ok(Change::None) };
        if self.connection.is_some() {
            // The client may try again and again.
            if !std::mem::replace(&mut self.told, true) {
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
            Some(connection) => !connection.greeted,
            None => matches!(self.end, End::Connect(_)),
        }
    }

    fn tick(&mut self, log: &Log<'_>) -> Change {
        if let Some(connection) = &self.connection {
            if connection.greeted || connection.since.elapsed() < GREETING {
                return Change::None;
            }
            log.line(|port| {
                tracing::warn!(port, peer = %connection.peer, "a peer was disconnected: it did not send the first message of the trunk protocol in time");
            });
            return Change::Gone;
        }
        let End::Connect(path) = &self.end else { return Change::None };
        match dial(path).and_then(|socket| self.open(socket)) {
            Ok(change) => change,
            Err(error) => {
                if !std::mem::replace(&mut self.told, true)
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

    fn receive(&mut self, frames: &mut Vec<Frame>, log: &Log<'_>) -> Change {
        let Self { connection: Some(connection), buffer, told, .. } = self else {
            return Change::None;
        };
        let mut budget = TURN_BYTES;
        while budget > 0 {
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
            let len = match recv(&connection.socket, buffer.as_mut_slice(), flags) {
                Ok((0, _)) | Err(Errno::CONNRESET) => {
                    if connection.greeted {
                        log.line(|port| tracing::info!(port, "the other daemon has disconnected"));
                    } else if !std::mem::replace(told, true) {
                        log.line(|port| {
                            tracing::warn!(port, peer = %connection.peer, "the peer disconnected before it sent the first message of the trunk protocol; it may already have another peer");
                        });
                    }
                    return Change::Gone;
                }
                Ok((_, len)) => len,
                Err(Errno::AGAIN) => return Change::None,
                Err(Errno::INTR) => continue,
                Err(error) => {
                    log.line(|port| {
                        tracing::warn!(port, %error, "the trunk is lost: reading failed");
                    });
                    return Change::Gone;
                }
            };
            budget = budget.saturating_sub(len);
            // The length of a message may exceed the length of the buffer.
            let message = buffer.get(..len);
            if connection.greeted {
                read(message, len, frames, log);
            } else if message == Some(HELLO) {
                connection.greeted = true;
                *told = false;
            } else {
                log.line(|port| {
                    tracing::warn!(port, peer = %connection.peer, "a peer was disconnected: it does not speak this version of the trunk protocol");
                });
                return Change::Gone;
            }
        }
        Change::None
    }

    fn flush(&mut self, queue: &mut SendQueue, log: &Log<'_>) -> io::Result<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        while !queue.is_empty() {
            let (frames, sent) = connection.send(queue);
            match sent {
                _ if frames == 0 => {
                    log.dropped(Reason::TooLong, 1, |port| {
                        tracing::warn!(port, "a frame was dropped: it is longer than the kernel's limit for socket buffers (net.core.wmem_max)");
                    });
                    queue.remove(1);
                }
                Ok(()) => queue.remove(frames),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error @ (Errno::NOBUFS | Errno::NOMEM)) => {
                    log.dropped(Reason::QueueFull, frames, |port| {
                        tracing::warn!(port, %error, "frames were dropped: the kernel has no memory for them");
                    });
                    queue.remove(frames);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn close(&mut self) {
        self.connection = None;
    }
}

/// Reads the frames of a message of `len` bytes. `message` is none if it exceeds the maximum length
/// of a message.
fn read(message: Option<&[u8]>, len: usize, frames: &mut Vec<Frame>, log: &Log<'_>) {
    let Some(message) = message else {
        return log.dropped(Reason::Malformed, 1, |port| {
            tracing::warn!(
                port,
                "a message of {len} bytes was dropped: the limit is {MESSAGE_MAX}"
            );
        });
    };
    for frame in Frames::new(message) {
        match frame {
            Ok(frame) => frames.push(frame),
            Err(error) => log.dropped(Reason::Malformed, 1, |port| {
                tracing::warn!(port, "the rest of a malformed message was dropped: {error}");
            }),
        }
    }
}
