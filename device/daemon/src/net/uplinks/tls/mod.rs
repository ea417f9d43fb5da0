//! The line to a daemon on another host: TLS 1.3 over TCP. Both daemons have the same key, and
//! accept no other peer. One listens, and the other one connects. It tries once a second until it
//! succeeds.
//!
//! The first bytes in each direction are [`HELLO`]. Frames follow as in the stream of a netdev.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`key`] | the shared key |
//! | [`connection`] | a connection |

pub mod connection;
pub mod key;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use self::connection::{Connection, Received};
use self::key::SharedKey;
use crate::net::frame::Frame;
use crate::net::line::{Change, Line, Log};
use crate::net::queue::SendQueue;
use crate::net::turn::Turn;

/// Time for which clients at the address of a client without a handshake are turned away.
const LATE_PAUSE: Duration = Duration::from_secs(4);

/// The way in which a connection is made.
#[derive(Debug)]
pub enum End {
    /// The other daemon connects to this socket.
    Listen(TcpListener),
    /// The other daemon listens at this address.
    Connect(SocketAddr),
}

/// The line to a daemon on another host.
pub struct TlsTrunk {
    end: End,
    key: SharedKey,
    connection: Option<Connection>,
    /// Reasons for the missing connection that are already in the log.
    logged: BTreeSet<Trouble>,
    /// The last client that has blocked the trunk without a handshake, and when that ended.
    late: Option<(IpAddr, Instant)>,
}

/// The reason why no connection exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    /// No peer listens at the address.
    Unreachable,
    /// Another peer is already connected.
    Taken,
    /// The peer has not completed the handshake in time.
    Late,
    /// The peer has disconnected before it completed the handshake.
    Ended,
    /// The peer has another key or violates the protocol, or the connection was lost.
    Lost,
}

impl End {
    /// Listens at an address.
    ///
    /// # Errors
    /// Returns an error if the address is in use, or is not an address of this host.
    pub fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self::Listen(listener))
    }
}

impl TlsTrunk {
    /// Creates a line without a connection.
    #[must_use]
    pub const fn new(end: End, key: SharedKey) -> Self {
        Self { end, key, connection: None, logged: BTreeSet::new(), late: None }
    }

    /// Writes a log line, unless this reason is already in the log.
    fn log_once(&mut self, trouble: Trouble, log: &Log<'_>, write: impl FnOnce(&str)) {
        if self.logged.insert(trouble) {
            log.line(write);
        }
    }
}

impl Line for TlsTrunk {
    fn door(&self) -> Option<BorrowedFd<'_>> {
        match &self.end {
            End::Listen(listener) => Some(listener.as_fd()),
            End::Connect(_) => None,
        }
    }

    fn wire(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(Connection::wire)
    }

    fn is_up(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_greeted)
    }

    fn needs_thread(&self) -> bool {
        // A handshake takes about a millisecond.
        !self.is_up()
    }

    fn admit(&mut self, log: &Log<'_>) -> io::Result<Change> {
        let End::Listen(listener) = &self.end else { return Ok(Change::None) };
        let (stream, client) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Change::None),
            // The client has already disconnected.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
                return Ok(Change::None);
            }
            Err(error) => return Err(error),
        };
        if self.connection.is_some() {
            self.log_once(Trouble::Taken, log, |port| {
                tracing::warn!(port, %client, "second client turned away: another peer is already connected");
            });
            return Ok(Change::None);
        }
        // Otherwise a silent client could block the trunk again and again.
        if self.late.is_some_and(|(ip, at)| ip == client.ip() && at.elapsed() < LATE_PAUSE) {
            return Ok(Change::None);
        }
        let connection = Connection::new(stream.into(), self.key.server()?, client);
        self.connection = Some(connection?);
        Ok(Change::Connected)
    }

    fn wants_ticks(&self) -> bool {
        match &self.connection {
            Some(connection) => !connection.is_greeted(),
            None => matches!(self.end, End::Connect(_)),
        }
    }

    fn tick(&mut self, log: &Log<'_>) -> Change {
        if let Some(connection) = &mut self.connection {
            if connection.is_greeted() {
                return Change::None;
            }
            if !connection.is_late() && connection.advance().is_ok() {
                return Change::None;
            }
            let peer = connection.peer();
            self.late = Some((peer.ip(), Instant::now()));
            self.log_once(Trouble::Late, log, |port| {
                tracing::warn!(port, %peer, "connection closed: the peer has not completed the TLS handshake in time");
            });
            return Change::Gone;
        }
        let End::Connect(peer) = self.end else { return Change::None };
        let opened = dial(peer).and_then(|socket| {
            let mut connection = Connection::new(socket, self.key.client(peer)?, peer)?;
            connection.advance()?;
            Ok(connection)
        });
        match opened {
            Ok(connection) => {
                self.connection = Some(connection);
                Change::Connected
            }
            Err(error) => {
                self.log_once(Trouble::Unreachable, log, |port| {
                    tracing::info!(port, %peer, %error, "the other daemon cannot be reached; vrnicd tries again every second");
                });
                Change::None
            }
        }
    }

    fn receive(&mut self, frames: &mut Vec<Frame>, turn: &mut Turn, log: &Log<'_>) -> Change {
        let Some(connection) = &mut self.connection else { return Change::None };
        let was_up = connection.is_greeted();
        match connection.receive(frames, turn, log) {
            Ok(Received::Open) => {
                if connection.is_greeted() {
                    self.logged.clear();
                }
                Change::None
            }
            Ok(Received::End) if was_up => {
                log.line(|port| tracing::info!(port, "the other daemon has disconnected"));
                Change::Gone
            }
            Ok(Received::End) => {
                let peer = connection.peer();
                self.log_once(Trouble::Ended, log, |port| {
                    tracing::warn!(port, %peer, "the peer has disconnected during the handshake; it may already be connected to another peer, or have another key");
                });
                Change::Gone
            }
            Err(error) => {
                let peer = connection.peer();
                self.log_once(Trouble::Lost, log, |port| {
                    tracing::warn!(port, %peer, %error, "the connection to the other daemon is lost");
                });
                Change::Gone
            }
        }
    }

    fn flush(&mut self, queue: &mut SendQueue, turn: &mut Turn, _log: &Log<'_>) -> io::Result<()> {
        self.connection.as_mut().map_or(Ok(()), |connection| connection.flush(queue, turn))
    }

    fn close(&mut self) {
        self.connection = None;
    }
}

/// Begins to connect. The connection may not be established yet on return.
fn dial(peer: SocketAddr) -> io::Result<OwnedFd> {
    let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &peer) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}
