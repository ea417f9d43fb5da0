//! Receives and sends whole messages.

use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use thiserror::Error;
use zerocopy::{FromZeros, IntoBytes};

use super::session::{Descriptors, Message, Reply};
use super::wire::{FDS_MAX, Header};

/// Number of bytes by which the buffer grows. A length in a header therefore allocates no memory
/// before the bytes arrive.
const STEP: usize = 64 << 10;
/// Room for descriptors: one more than a message may have, so that too many are noticed.
const FDS_TAKEN: usize = FDS_MAX + 1;

/// The reason for which no further message can be received.
#[derive(Debug, Error)]
pub enum End {
    /// The VMM has closed the connection.
    #[error("the VMM disconnected")]
    Closed,
    /// The VMM has disconnected in the middle of a message.
    #[error("the VMM disconnected in the middle of a message")]
    Cut,
    /// The client has not sent a whole message in time.
    #[error("the client did not agree on a version in time")]
    Late,
    /// The client has sent a header that does not show where the next message begins.
    #[error("the connection was closed after a message that cannot be followed by another")]
    Refused,
    /// The connection is lost.
    #[error(transparent)]
    Os(#[from] io::Error),
}

/// A connected socket.
pub struct Stream {
    socket: UnixStream,
    /// The time by which a whole message must have arrived, if there is a limit.
    deadline: Option<Instant>,
    body: Vec<u8>,
}

impl Stream {
    /// Creates the stream of a socket in blocking mode. Each message must arrive within `timeout`
    /// from now on.
    #[must_use]
    pub fn new(socket: UnixStream, timeout: Duration) -> Self {
        Self { socket, deadline: Instant::now().checked_add(timeout), body: Vec::new() }
    }

    /// Removes the time limit for messages.
    pub fn be_patient(&mut self) {
        self.deadline = None;
    }

    /// Waits for a whole message. If its length is not valid, it has no body.
    ///
    /// # Errors
    /// See [`End`].
    pub fn receive(&mut self) -> Result<Message<'_>, End> {
        let mut header = Header::new_zeroed();
        let mut descriptors = Descriptors::default();
        self.fill(header.as_mut_bytes(), &mut descriptors).map_err(|end| match end {
            Filled { done: 0, end: End::Cut } => End::Closed,
            Filled { end, .. } => end,
        })?;
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        body.shrink_to(STEP);
        let len = header.body_len().unwrap_or(0);
        while body.len() < len {
            let from = body.len();
            body.resize(len.min(from + STEP), 0);
            self.fill(&mut body[from..], &mut descriptors).map_err(|failed| failed.end)?;
        }
        self.body = body;
        Ok(Message { header, body: &self.body, descriptors })
    }

    /// Fills `into`, and receives the descriptors that come with these bytes.
    fn fill(&self, into: &mut [u8], descriptors: &mut Descriptors) -> Result<(), Filled> {
        let mut done = 0;
        while done < into.len() {
            match self.receive_some(&mut into[done..], descriptors) {
                Ok(0) => return Err(Filled { done, end: End::Cut }),
                Ok(len) => done += len,
                Err(end) => return Err(Filled { done, end }),
            }
        }
        Ok(())
    }

    fn receive_some(&self, into: &mut [u8], descriptors: &mut Descriptors) -> Result<usize, End> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_TAKEN))];
        loop {
            self.wait()?;
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut bytes = [IoSliceMut::new(into)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let received = match recvmsg(&self.socket, &mut bytes, &mut control, flags) {
                Err(Errno::INTR) => continue,
                other => other.map_err(io::Error::from)?,
            };
            let mut taken = 0;
            for message in control.drain() {
                let RecvAncillaryMessage::ScmRights(files) = message else { continue };
                for file in files {
                    taken += 1;
                    if descriptors.files.len() < FDS_TAKEN {
                        descriptors.files.push(file.into());
                    }
                }
            }
            // The kernel drops descriptors for which there is no room, in the buffer or in the
            // process.
            let dropped = received.flags.contains(ReturnFlags::CTRUNC);
            descriptors.lost |= dropped && taken < FDS_TAKEN;
            return Ok(received.bytes);
        }
    }

    /// Waits for bytes until the time limit.
    fn wait(&self) -> Result<(), End> {
        let Some(deadline) = self.deadline else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| End::Late)?;
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Ok(0) => Err(End::Late),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Sends a reply.
    ///
    /// # Errors
    /// Returns an error if the connection is lost.
    pub fn send(&mut self, reply: &Reply<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = reply.file.map(|file| [file]);
        if let Some(files) = &files
            && !control.push(SendAncillaryMessage::ScmRights(files))
        {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let bytes = [IoSlice::new(&reply.bytes)];
        let sent = loop {
            match sendmsg(&self.socket, &bytes, &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        self.socket.write_all(reply.bytes.get(sent..).unwrap_or_default())
    }
}

/// The progress of [`Stream::fill`] before the end of the connection.
struct Filled {
    done: usize,
    end: End,
}
