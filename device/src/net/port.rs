//! A switch port: one QEMU netdev at a time on a listening socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;

use arrayvec::ArrayVec;
use vrnic_adapter::log_ratelimit::Limiter;

use super::framing::{Decoder, Frame, Next};
use crate::socket::{SocketFile, accept};
use crate::worker::pool::now_ns;

/// Most bytes that wait for a peer; further frames are dropped, as a switch does with a full queue.
const QUEUE_BYTES: usize = 2 << 20;
/// Most bytes taken from a peer in one turn, so that none keeps the others waiting.
const TURN_BYTES: usize = 256 << 10;
/// Most frames written by one system call.
const BATCH: usize = 64;
/// Hears of the link.
pub type LinkListener = Box<dyn Fn(bool) + Send>;

/// A port.
pub struct Port {
    name: String,
    socket: SocketFile,
    link: LinkListener,
    peer: Option<Peer>,
    limiter: Limiter,
}

/// A connected netdev.
struct Peer {
    stream: UnixStream,
    decoder: Decoder,
    queue: VecDeque<Frame>,
    queued: usize,
    /// Bytes of the first queued frame that are sent.
    sent: usize,
}

impl Peer {
    /// The bytes of the first queued frames that are to be written next.
    fn waiting(&self) -> ArrayVec<IoSlice<'_>, BATCH> {
        let frames = self.queue.iter().take(BATCH).map(Frame::wire);
        let mut sent = self.sent;
        // Only of the first frame may a part be sent.
        frames
            .map(|bytes| IoSlice::new(bytes.get(std::mem::take(&mut sent)..).unwrap_or_default()))
            .collect()
    }

    /// Takes frames off the queue after `len` bytes of them have been written.
    fn written(&mut self, len: usize) {
        self.sent += len;
        while let Some(frame) = self.queue.front()
            && self.sent >= frame.wire().len()
        {
            self.sent -= frame.wire().len();
            self.queued -= frame.wire().len();
            self.queue.pop_front();
        }
    }
}

/// State of a peer after an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// The peer is connected.
    Up,
    /// The peer has disconnected.
    Gone,
}

impl Port {
    /// A port that listens on `socket` and tells `link`.
    #[must_use]
    pub fn new(name: &str, socket: SocketFile, link: LinkListener) -> Self {
        Self { name: name.to_owned(), socket, link, peer: None, limiter: Limiter::default() }
    }

    /// The listening socket.
    #[must_use]
    pub fn socket(&self) -> &SocketFile {
        &self.socket
    }

    /// The stream of the peer.
    #[must_use]
    pub fn stream(&self) -> Option<&UnixStream> {
        self.peer.as_ref().map(|peer| &peer.stream)
    }

    /// Returns whether frames wait for the peer to take them.
    #[must_use]
    pub fn is_backed_up(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| !peer.queue.is_empty())
    }

    /// Takes a waiting client; true when it became the peer.
    ///
    /// # Errors
    /// Returns the error of `accept`.
    pub fn accept(&mut self) -> io::Result<bool> {
        let (stream, client) = match accept(self.socket.listener()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            other => other?,
        };
        if self.peer.is_some() {
            self.log(|port| {
                tracing::warn!(
                    port,
                    socket = %self.socket.path().display(),
                    %client,
                    "second client turned away: a netdev is already connected"
                );
            });
            return Ok(false);
        }
        stream.set_nonblocking(true)?;
        let decoder = Decoder::default();
        self.peer = Some(Peer { stream, decoder, queue: VecDeque::new(), queued: 0, sent: 0 });
        self.log(|port| tracing::info!(port, %client, "link up"));
        (self.link)(true);
        Ok(true)
    }

    /// Reads what has arrived, up to a limit, and hands out the frames.
    pub fn receive(&mut self, mut forward: impl FnMut(Frame)) -> PeerState {
        let Self { name, limiter, peer: Some(peer), .. } = self else { return PeerState::Gone };
        let log = |line: &dyn Fn(&str)| limiter.warn(now_ns(), || line(name));
        let mut buffer = [0; 32 << 10];
        let mut budget = TURN_BYTES;
        while budget > 0 {
            let len = match peer.stream.read(&mut buffer) {
                Ok(0) => {
                    let where_ =
                        if peer.decoder.in_frame() { " in the middle of a frame" } else { "" };
                    log(&|port| tracing::info!(port, "the netdev disconnected{where_}"));
                    return PeerState::Gone;
                }
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return PeerState::Up,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    log(&|port| tracing::warn!(port, %error, "the netdev is lost: reading failed"));
                    return PeerState::Gone;
                }
            };
            budget = budget.saturating_sub(len);
            peer.decoder.feed(&buffer[..len]);
            loop {
                match peer.decoder.next_frame() {
                    Ok(Next::Frame(frame)) => forward(frame),
                    Ok(Next::Runt(len)) => {
                        log(&|port| {
                            tracing::warn!(port, "a truncated frame of {len} bytes was dropped");
                        });
                    }
                    Ok(Next::NeedMore) => break,
                    Err(error) => {
                        log(&|port| tracing::error!(port, %error, "the netdev was disconnected"));
                        return PeerState::Gone;
                    }
                }
            }
        }
        PeerState::Up
    }

    /// Queues a frame for the peer, if there is one and it has room.
    pub fn send(&mut self, frame: Frame) {
        let Some(peer) = &mut self.peer else { return };
        let len = frame.wire().len();
        if peer.queued + len > QUEUE_BYTES {
            self.log(|port| {
                tracing::warn!(port, "the netdev does not take its frames; some were dropped");
            });
            return;
        }
        peer.queued += len;
        peer.queue.push_back(frame);
    }

    /// Writes as much of the queue as the peer takes.
    pub fn flush(&mut self) -> PeerState {
        let Some(peer) = &mut self.peer else { return PeerState::Gone };
        while !peer.queue.is_empty() {
            let written = (&peer.stream).write_vectored(&peer.waiting());
            match written {
                Ok(len) => peer.written(len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return PeerState::Up,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.log(
                        |port| tracing::warn!(port, %error, "the netdev is lost: writing failed"),
                    );
                    return PeerState::Gone;
                }
            }
        }
        PeerState::Up
    }

    /// Forgets the peer.
    pub fn disconnect(&mut self) {
        if self.peer.take().is_some() {
            self.log(|port| tracing::info!(port, "link down"));
            (self.link)(false);
        }
    }

    /// Logs that a frame with a forged source was dropped.
    pub fn forged(&self, frame: &Frame) {
        let source = frame.source();
        self.log(|port| {
            tracing::warn!(
                port,
                "a frame was dropped: its source {source} is not an address of this port"
            );
        });
    }

    /// Writes a log line about the port, which is told its name, unless there have been many
    /// lately: the process at the port's other end can cause any number.
    pub fn log(&self, line: impl FnOnce(&str)) {
        self.limiter.warn(now_ns(), || line(&self.name));
    }
}
