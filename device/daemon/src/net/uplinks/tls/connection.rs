//! A TLS connection between two daemons.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
    set_tcp_user_timeout,
};

use crate::net::frame::Frame;
use crate::net::framing::{Decoder, Next};
use crate::net::line::Log;
use crate::net::queue::SendQueue;
use crate::net::status::Reason;
use crate::net::turn::Turn;

/// The first bytes in each direction, which name the protocol and its version.
pub const HELLO: &[u8] = b"vrnic trunk 1\n";

/// Maximum time from the connection to the peer's [`HELLO`]. A silent peer blocks the trunk for
/// this time.
const GREETING: Duration = Duration::from_secs(3);
/// Maximum number of bytes that are read from the socket by one system call.
const READ: usize = 16 << 10;
/// Maximum number of bytes that TLS buffers for the socket.
const BUFFER: usize = 64 << 10;
/// Time after which a connection is closed when the peer acknowledges nothing.
const SILENCE: Duration = Duration::from_secs(10);

/// A connection of TLS over TCP.
pub struct Connection {
    socket: TcpStream,
    tls: rustls::Connection,
    peer: SocketAddr,
    since: Instant,
    /// Bytes from the socket.
    received: Box<[u8]>,
    greeting: Greeting,
    decoder: Decoder,
    /// Number of bytes of the queue that TLS has taken and the socket has not.
    unsent: usize,
}

/// The first bytes from the peer, until they are [`HELLO`].
#[derive(Debug, Default)]
struct Greeting {
    received: usize,
}

impl Greeting {
    const fn is_complete(&self) -> bool {
        self.received == HELLO.len()
    }

    /// Takes the rest of the greeting from `bytes`. Returns the bytes after it.
    fn take<'a>(&mut self, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        let missing = HELLO.get(self.received..).unwrap_or_default();
        let (first, rest) = bytes.split_at(missing.len().min(bytes.len()));
        if !missing.starts_with(first) {
            let why = "it does not speak this version of the trunk protocol";
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        self.received += first.len();
        Ok(rest)
    }
}

/// State of a connection after reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The connection remains open.
    Open,
    /// The peer has closed the connection.
    End,
}

impl Connection {
    /// Begins a TLS session.
    ///
    /// # Errors
    /// Returns the error of a socket option.
    pub fn new(socket: OwnedFd, mut tls: rustls::Connection, peer: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::from(socket);
        socket.set_nonblocking(true)?;
        set_tcp_nodelay(&socket, true)?;
        set_socket_keepalive(&socket, true)?;
        set_tcp_keepidle(&socket, SILENCE / 2)?;
        set_tcp_keepintvl(&socket, Duration::from_secs(1))?;
        set_tcp_keepcnt(&socket, 5)?;
        set_tcp_user_timeout(&socket, u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX))?;
        tls.set_buffer_limit(Some(BUFFER));
        // TLS sends this when the peer has proved that it has the key.
        tls.writer().write_all(HELLO)?;
        Ok(Self {
            socket,
            tls,
            peer,
            since: Instant::now(),
            received: vec![0; READ].into_boxed_slice(),
            greeting: Greeting::default(),
            decoder: Decoder::default(),
            unsent: 0,
        })
    }

    /// Returns the descriptor that bytes pass through.
    #[must_use]
    pub fn wire(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the peer's address.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns whether the peer has the key and has sent [`HELLO`].
    #[must_use]
    pub const fn is_greeted(&self) -> bool {
        self.greeting.is_complete()
    }

    /// Returns whether the time for the peer's [`HELLO`] is over.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.since.elapsed() > GREETING
    }

    /// Writes TLS records to the socket. Returns whether all of them are written.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn advance(&mut self) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                // The TCP connection may not be established yet.
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) =>
                {
                    return Ok(false);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends as much of the queue as the socket takes.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn flush(&mut self, queue: &mut SendQueue, turn: &mut Turn) -> io::Result<()> {
        if !self.is_greeted() {
            return Ok(());
        }
        while self.advance()? {
            queue.written(std::mem::take(&mut self.unsent));
            if queue.is_empty() || turn.is_over() {
                break;
            }
            self.unsent = self.tls.writer().write_vectored(&queue.stream())?;
            turn.spend(1, self.unsent);
        }
        Ok(())
    }

    /// Reads what has arrived until the turn is over, and appends the frames.
    ///
    /// # Errors
    /// When the connection is lost, or the peer does not have the key or violates the protocol.
    pub fn receive(
        &mut self,
        frames: &mut Vec<Frame>,
        turn: &mut Turn,
        log: &Log<'_>,
    ) -> io::Result<Received> {
        while !turn.is_over() {
            let len = match self.socket.read(&mut self.received) {
                Ok(0) => return Ok(Received::End),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Received::Open),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            // TLS takes 4 KiB at once, so it does not read from the socket itself.
            let (received, before) = (std::mem::take(&mut self.received), frames.len());
            let result = self.decrypt(received.get(..len).unwrap_or_default(), frames, log);
            self.received = received;
            turn.spend(1 + frames.len() - before, len);
            if result? == Received::End {
                return Ok(Received::End);
            }
        }
        Ok(Received::Open)
    }

    /// Processes bytes from the socket.
    fn decrypt(
        &mut self,
        mut bytes: &[u8],
        frames: &mut Vec<Frame>,
        log: &Log<'_>,
    ) -> io::Result<Received> {
        while !bytes.is_empty() {
            // TLS takes no bytes after the peer's end of the session.
            if self.tls.read_tls(&mut bytes)? == 0 {
                return Ok(Received::End);
            }
            let state = self.tls.process_new_packets();
            // Sends an alert, which tells the peer the error.
            let written = self.advance();
            state.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            written?;
            if self.read(frames, log)? == Received::End {
                return Ok(Received::End);
            }
        }
        Ok(Received::Open)
    }

    /// Processes decrypted bytes.
    fn read(&mut self, frames: &mut Vec<Frame>, log: &Log<'_>) -> io::Result<Received> {
        loop {
            let mut reader = self.tls.reader();
            let len = match reader.fill_buf() {
                Ok([]) => return Ok(Received::End),
                Ok(bytes) => {
                    let rest = self.greeting.take(bytes)?;
                    self.decoder.feed(rest);
                    bytes.len()
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Received::Open),
                Err(error) => return Err(error),
            };
            reader.consume(len);
            self.decode(frames, log)?;
        }
    }

    /// Takes all whole frames.
    fn decode(&mut self, frames: &mut Vec<Frame>, log: &Log<'_>) -> io::Result<()> {
        loop {
            match self.decoder.next_frame() {
                Ok(Next::Frame(frame)) => frames.push(frame),
                Ok(Next::Runt(len)) => log.dropped(Reason::BadLength, 1, |port| {
                    tracing::warn!(port, "a truncated frame of {len} bytes was dropped");
                }),
                Ok(Next::NeedMore) => return Ok(()),
                Err(error) => {
                    log.status.count_dropped(Reason::BadLength, 1);
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            }
        }
    }
}
