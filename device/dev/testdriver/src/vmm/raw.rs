//! vfio-user messages byte by byte, for messages that a correct client does not send.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, ensure};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::wait;

/// Length of a message header in bytes.
const HEADER: usize = 16;
/// The number that vfio gives to the MSI-X interrupts.
const MSIX: u32 = 2;
/// Maximum length of a reply that a test expects.
const REPLY_MAX: usize = 2 << 20;

/// Commands (vfio-user specification, "Commands").
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum Command {
    Version = 1,
    DmaMap = 2,
    DmaUnmap = 3,
    GetInfo = 4,
    SetIrqs = 8,
    RegionRead = 9,
    RegionWrite = 10,
    Reset = 13,
}

/// A reply: its error, and the bytes after the header.
#[derive(Debug)]
pub struct Reply {
    /// True if the error bit is set.
    pub error: bool,
    /// The error number.
    pub errno: u32,
    /// The payload.
    pub body: Vec<u8>,
}

/// A connection on which a test can send any bytes.
#[derive(Debug)]
pub struct RawClient {
    stream: UnixStream,
    next: u16,
}

impl RawClient {
    /// Connects without sending anything.
    pub fn connect(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket).context("vfio-user socket")?;
        stream.set_read_timeout(Some(wait::LIMIT))?;
        stream.set_write_timeout(Some(wait::LIMIT))?;
        Ok(Self { stream, next: 1 })
    }

    /// Connects and negotiates the version.
    pub fn open(socket: &Path) -> anyhow::Result<Self> {
        let mut this = Self::connect(socket)?;
        let mut body = vec![0, 0, 1, 0];
        body.extend_from_slice(b"{\"capabilities\":{}}\0");
        let reply = this.call(Command::Version, &body, &[])?;
        ensure!(!reply.error, "version refused");
        Ok(this)
    }

    /// Sends a message and waits for the reply.
    pub fn call(
        &mut self,
        command: Command,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> anyhow::Result<Reply> {
        self.send(command as u16, body, fds)?;
        self.reply()
    }

    /// Sends a message with a proper header.
    pub fn send(
        &mut self,
        command: u16,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> anyhow::Result<()> {
        let message = message(self.next, command, body);
        self.next = self.next.wrapping_add(1);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ensure!(control.push(SendAncillaryMessage::ScmRights(fds)), "too many descriptors");
        }
        sendmsg(&self.stream, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Closes the connection for sending.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        Ok(self.stream.shutdown(Shutdown::Write)?)
    }

    /// Waits for a reply.
    pub fn reply(&mut self) -> anyhow::Result<Reply> {
        let mut header = [0; HEADER];
        self.stream.read_exact(&mut header)?;
        let [_, _, _, _, a, b, c, d, flags, _, _, _, errno @ ..] = header;
        let size = usize::try_from(u32::from_le_bytes([a, b, c, d]))?;
        ensure!((HEADER..REPLY_MAX).contains(&size), "reply of {size} bytes");
        let mut body = vec![0; size - HEADER];
        self.stream.read_exact(&mut body)?;
        let errno = u32::from_le_bytes(errno);
        Ok(Reply { error: flags & 1 << 5 != 0, errno, body })
    }

    /// Waits for the server to close the connection.
    pub fn wait_closed(&mut self) -> anyhow::Result<()> {
        let mut rest = Vec::new();
        // A reset is as good as an orderly end.
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(error).context("the server keeps the connection"),
        }
    }
}

/// Returns a message with a proper header.
#[must_use]
pub fn message(id: u16, command: u16, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut message = id.to_le_bytes().to_vec();
    message.extend(command.to_le_bytes());
    message.extend(size.to_le_bytes());
    message.extend([0; 8]);
    message.extend_from_slice(body);
    message
}

/// Returns the body of a region access.
#[must_use]
pub fn region_access(region: u32, offset: u64, count: u32, data: &[u8]) -> Vec<u8> {
    let mut body = offset.to_le_bytes().to_vec();
    body.extend(region.to_le_bytes());
    body.extend(count.to_le_bytes());
    body.extend_from_slice(data);
    body
}

/// Returns the body of a DMA_MAP. The flags are 1 for reading and 2 for writing.
#[must_use]
pub fn dma_map(flags: u32, offset: u64, iova: u64, size: u64) -> Vec<u8> {
    let mut body = 32u32.to_le_bytes().to_vec();
    body.extend(flags.to_le_bytes());
    body.extend([offset, iova, size].iter().flat_map(|word| word.to_le_bytes()));
    body
}

/// Returns the body of a SET_IRQS about MSI-X.
#[must_use]
pub fn set_irqs(flags: u32, start: u32, count: u32) -> Vec<u8> {
    [20, flags, MSIX, start, count].iter().flat_map(|word: &u32| word.to_le_bytes()).collect()
}

/// Returns the body of a DMA_UNMAP.
#[must_use]
pub fn dma_unmap(iova: u64, size: u64) -> Vec<u8> {
    let mut body = 24u32.to_le_bytes().to_vec();
    body.extend(0u32.to_le_bytes());
    body.extend([iova, size].iter().flat_map(|word| word.to_le_bytes()));
    body
}
