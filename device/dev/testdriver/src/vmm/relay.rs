//! A relay between a vfio-user client and a daemon. It forwards their messages, and answers the
//! daemon's own requests (DMA_READ and DMA_WRITE) as a test says, because the client does not know
//! them.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::ensure;
use parking_lot::Mutex;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tempfile::TempDir;

/// Length of a message header in bytes.
const HEADER: usize = 16;
/// Maximum length of a message.
const MESSAGE_MAX: usize = 2 << 20;
/// Length of the address and the count in a request.
const ACCESS: usize = 16;
/// Number of the command DMA_WRITE.
const DMA_WRITE: u16 = 12;
/// Flags of a header: a reply, and a reply that reports an error.
const REPLY: u32 = 1;
const ERROR: u32 = 1 << 5;

/// A request of the daemon.
#[derive(Clone, Debug)]
pub struct Request {
    /// The number of the request.
    pub id: u16,
    /// The number of the command.
    pub command: u16,
    /// The first address.
    pub addr: u64,
    /// The length.
    pub count: u64,
    /// The data of a write.
    pub data: Vec<u8>,
}

impl Request {
    fn parse(message: &[u8]) -> Option<Self> {
        let number = |from: usize, len: usize| {
            let bytes = message.get(from..from + len)?;
            Some(bytes.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte)))
        };
        Some(Self {
            id: number(0, 2)? as u16,
            command: number(2, 2)? as u16,
            addr: number(HEADER, 8)?,
            count: number(HEADER + 8, 8)?,
            data: message.get(HEADER + ACCESS..)?.to_vec(),
        })
    }

    /// Returns whether it is a DMA_WRITE, and not a DMA_READ.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.command == DMA_WRITE
    }

    /// Returns the reply with this data.
    #[must_use]
    pub fn reply(&self, data: &[u8]) -> Vec<u8> {
        let mut body = self.addr.to_le_bytes().to_vec();
        body.extend(self.count.to_le_bytes());
        body.extend_from_slice(data);
        self.message(REPLY, 0, &body)
    }

    /// Returns the reply of QEMU to a write: only a header.
    #[must_use]
    pub fn bare_reply(&self) -> Vec<u8> {
        self.message(REPLY, 0, &[])
    }

    /// Returns the reply that refuses the request.
    #[must_use]
    pub fn refusal(&self, errno: u32) -> Vec<u8> {
        self.message(REPLY | ERROR, errno, &[])
    }

    fn message(&self, flags: u32, errno: u32, body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
        let mut message = self.id.to_le_bytes().to_vec();
        message.extend(self.command.to_le_bytes());
        message.extend([size, flags, errno].iter().flat_map(|word| word.to_le_bytes()));
        message.extend_from_slice(body);
        message
    }
}

/// Returns the bytes that answer a request. They may be none.
pub type Answer = dyn Fn(&Request) -> Vec<u8> + Send + Sync;

/// A relay for one client.
#[derive(Debug)]
pub struct Relay {
    socket: PathBuf,
    _folder: TempDir,
    daemon: Arc<Mutex<UnixStream>>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Connects to the socket of a daemon, and waits in the background for a client.
    ///
    /// # Errors
    /// If there is no daemon.
    pub fn start(daemon: &Path, answer: Arc<Answer>) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let socket = folder.path().join("relay.sock");
        let listener = UnixListener::bind(&socket)?;
        let requests = UnixStream::connect(daemon)?;
        let replies = requests.try_clone()?;
        let daemon = Arc::new(Mutex::new(requests.try_clone()?));
        let to_daemon = Arc::clone(&daemon);
        let thread = std::thread::spawn(move || {
            let Ok((client, _)) = listener.accept() else { return };
            let Ok(to_client) = client.try_clone() else { return };
            let answers = Arc::clone(&to_daemon);
            let back = std::thread::spawn(move || {
                while let Ok(message) = Message::receive(&replies) {
                    if message.is_reply() {
                        if message.send(&to_client).is_err() {
                            break;
                        }
                    } else if let Some(request) = Request::parse(&message.bytes) {
                        let bytes = answer(&request);
                        if answers.lock().write_all(&bytes).is_err() {
                            break;
                        }
                    }
                }
                let _closed = to_client.shutdown(Shutdown::Both);
            });
            while let Ok(message) = Message::receive(&client) {
                if message.send(&to_daemon.lock()).is_err() {
                    break;
                }
            }
            let _closed = requests.shutdown(Shutdown::Both);
            let _ended = back.join();
        });
        Ok(Self { socket, _folder: folder, daemon, threads: vec![thread] })
    }

    /// Returns the socket for the client.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends bytes to the daemon.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn send(&self, bytes: &[u8]) -> std::io::Result<()> {
        self.daemon.lock().write_all(bytes)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _closed = self.daemon.lock().shutdown(Shutdown::Both);
        // The accept of a relay without a client ends by this connection.
        let _client = UnixStream::connect(&self.socket);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

/// A message with its descriptors.
struct Message {
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Message {
    fn receive(mut from: &UnixStream) -> anyhow::Result<Self> {
        let mut bytes = vec![0; HEADER];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
        let received = recvmsg(from, &mut parts, &mut control, flags)?;
        ensure!(received.bytes == HEADER, "the end of a connection");
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                files.extend(some);
            }
        }
        let size = bytes.get(4..8).and_then(|size| size.try_into().ok()).map(u32::from_le_bytes);
        let size = usize::try_from(size.unwrap_or(0))?;
        ensure!((HEADER..=MESSAGE_MAX).contains(&size), "a message of {size} bytes");
        bytes.resize(size, 0);
        from.read_exact(bytes.get_mut(HEADER..).unwrap_or_default())?;
        Ok(Self { bytes, files })
    }

    fn is_reply(&self) -> bool {
        self.bytes.get(8).is_some_and(|flags| flags & 0xf == 1)
    }

    fn send(&self, mut to: &UnixStream) -> anyhow::Result<()> {
        let files: Vec<_> = self.files.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            ensure!(control.push(SendAncillaryMessage::ScmRights(&files)), "too many descriptors");
        }
        let bytes = [IoSlice::new(&self.bytes)];
        let sent = sendmsg(to, &bytes, &mut control, SendFlags::NOSIGNAL)?;
        Ok(to.write_all(self.bytes.get(sent..).unwrap_or_default())?)
    }
}
