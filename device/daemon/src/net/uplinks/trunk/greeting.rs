//! The greeting: the first message in each direction of a trunk's socket. It names the protocol,
//! and comes with the shared memory of the direction in which its sender sends frames.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use thiserror::Error;

use super::memory::{Memory, Unfit};

/// The first message, which names the protocol and its version.
pub const HELLO: &[u8] = b"vrnic trunk 2\n";
/// Maximum number of descriptors that are taken from one message. The kernel closes further ones.
const FDS_TAKEN: usize = 4;

/// A message of the greeting, as it arrives.
#[derive(Debug)]
pub enum Greeting {
    /// The greeting, with the peer's memory.
    Memory(Memory),
    /// The greeting has not arrived yet.
    Nothing,
    /// The end of the connection.
    End,
}

/// The reason for which a peer is not accepted.
#[derive(Debug, Error)]
pub enum Refused {
    /// The message is another one.
    #[error("it does not speak this version of the trunk protocol")]
    Version,
    /// There is not one descriptor with the message.
    #[error("its greeting must come with one descriptor of shared memory, but has {0}")]
    Descriptors(&'static str),
    /// The descriptor cannot be used.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The kernel returned an error.
    #[error("reading failed: {0}")]
    Os(#[from] io::Error),
}

/// Sends the greeting.
///
/// # Errors
/// Returns the kernel's error.
pub fn send(socket: &OwnedFd, memory: BorrowedFd<'_>) -> io::Result<()> {
    let files = [memory];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // The space is for one descriptor.
    let _fits = control.push(SendAncillaryMessage::ScmRights(&files));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match sendmsg(socket, &[IoSlice::new(HELLO)], &mut control, flags) {
        // If the connection is already closed, reading from it reports that.
        Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Receives the greeting. Descriptors that are not used are closed.
///
/// # Errors
/// See [`Refused`].
pub fn receive(socket: &OwnedFd) -> Result<Greeting, Refused> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_TAKEN))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // One byte more than the greeting has.
    let mut bytes = [0; HELLO.len() + 1];
    let mut into = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(socket.as_fd(), &mut into, &mut control, flags) {
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Greeting::Nothing),
        Err(Errno::CONNRESET) => return Ok(Greeting::End),
        other => other.map_err(io::Error::from)?,
    };
    let mut files = Vec::with_capacity(FDS_TAKEN);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Ok(Greeting::End);
    }
    if bytes.get(..received.bytes) != Some(HELLO) {
        return Err(Refused::Version);
    }
    if received.flags.contains(ReturnFlags::CTRUNC) || files.len() > 1 {
        return Err(Refused::Descriptors("more"));
    }
    let file = files.pop().ok_or(Refused::Descriptors("none"))?;
    Ok(Greeting::Memory(Memory::of_peer(file)?))
}
