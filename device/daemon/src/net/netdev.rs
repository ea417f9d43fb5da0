//! A network card in QEMU: one `-netdev stream` at a time on a listening socket.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use super::frame::Frame;
use super::framing::{Decoder, Next};
use super::line::{Change, Line, Log};
use super::queue::SendQueue;
use super::status::Reason;
use super::turn::Turn;
use vrnic_control::socket::access::Peer;
use vrnic_control::socket::{SocketFile, accept};

/// Number of bytes that are read by one system call. They may be 455 frames of the shortest length.
const READ: usize = 8 << 10;

/// The line to a netdev.
pub struct Netdev {
    socket: SocketFile,
    connection: Option<Connection>,
}

/// A connected netdev.
struct Connection {
    stream: UnixStream,
    client: Peer,
    decoder: Decoder,
}

impl Netdev {
    /// Creates a line for a netdev that connects to `socket`.
    #[must_use]
    pub const fn new(socket: SocketFile) -> Self {
        Self { socket, connection: None }
    }
}

impl Line for Netdev {
    fn door(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.listener().as_fd())
    }

    fn wire(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(|connection| connection.stream.as_fd())
    }

    fn is_up(&self) -> bool {
        self.connection.is_some()
    }

    fn peer(&self) -> Option<Peer> {
        self.connection.as_ref().map(|connection| connection.client)
    }

    fn admit(&mut self, log: &Log<'_>) -> io::Result<Change> {
        let Some((stream, client)) = accept(self.socket.listener())? else {
            return Ok(Change::None);
        };
        if self.connection.is_some() {
            log.line(|port| {
                tracing::warn!(
                    port,
                    socket = %self.socket.path().display(),
                    %client,
                    "second client turned away: a netdev is already connected"
                );
            });
            return Ok(Change::None);
        }
        stream.set_nonblocking(true)?;
        self.connection = Some(Connection { stream, client, decoder: Decoder::default() });
        Ok(Change::Connected)
    }

    fn receive(&mut self, frames: &mut Vec<Frame>, turn: &mut Turn, log: &Log<'_>) -> Change {
        let Some(Connection { stream, decoder, .. }) = &mut self.connection else {
            return Change::None;
        };
        let mut buffer = [0; READ];
        while !turn.is_over() {
            let len = match stream.read(&mut buffer) {
                Ok(0) => {
                    let place = if decoder.in_frame() { " in the middle of a frame" } else { "" };
                    log.line(|port| tracing::info!(port, "the netdev disconnected{place}"));
                    return Change::Gone;
                }
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Change::None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    log.line(|port| {
                        tracing::warn!(port, %error, "the netdev is lost: reading failed");
                    });
                    return Change::Gone;
                }
            };
            let before = frames.len();
            decoder.feed(buffer.get(..len).unwrap_or_default());
            if decode(decoder, frames, log) == Change::Gone {
                return Change::Gone;
            }
            turn.spend(1 + frames.len() - before, len);
        }
        Change::None
    }

    fn flush(&mut self, queue: &mut SendQueue, turn: &mut Turn, _log: &Log<'_>) -> io::Result<()> {
        let Some(Connection { stream, .. }) = &mut self.connection else { return Ok(()) };
        while !queue.is_empty() && !turn.is_over() {
            let written = stream.write_vectored(&queue.stream());
            match written {
                Ok(len) => {
                    queue.written(len);
                    turn.spend(1, len);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn close(&mut self) {
        self.connection = None;
    }
}

/// Decodes all whole frames.
fn decode(decoder: &mut Decoder, frames: &mut Vec<Frame>, log: &Log<'_>) -> Change {
    loop {
        match decoder.next_frame() {
            Ok(Next::Frame(frame)) => frames.push(frame),
            Ok(Next::Runt(len)) => log.dropped(Reason::BadLength, 1, |port| {
                tracing::warn!(port, "a truncated frame of {len} bytes was dropped");
            }),
            Ok(Next::NeedMore) => return Change::None,
            Err(error) => {
                log.dropped(Reason::BadLength, 1, |port| {
                    tracing::error!(port, %error, "the netdev was disconnected");
                });
                return Change::Gone;
            }
        }
    }
}
