//! A hostile daemon's end of a trunk. It reads and writes the shared memory as files.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    recvmsg, sendmsg, socket_with,
};
use vrnic_testdriver::wait;

/// The first message of a trunk.
pub(crate) const HELLO: &[u8] = b"vrnic trunk 2\n";
/// Bytes of the ring.
pub(crate) const CAPACITY: u64 = 1 << 20;
/// Offset of the ring.
pub(crate) const DATA: u64 = 4096;
/// Length of the memory of one direction.
pub(crate) const LEN: u64 = DATA + CAPACITY;
/// Offsets of the words.
pub(crate) const HEAD: u64 = 0;
pub(crate) const TAIL: u64 = 256;

/// Returns the seals that the memory needs.
pub(crate) fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

/// Returns a memory file.
pub(crate) fn memory(len: u64, seals: SealFlags) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create("trunk", flags).expect("memfd"));
    file.set_len(len).expect("length");
    rustix::fs::fcntl_add_seals(&file, seals).expect("seals");
    file
}

/// A peer with its memory, and with the daemon's memory after it has received the daemon's
/// greeting.
pub(crate) struct Peer {
    socket: OwnedFd,
    /// The memory in which the peer sends.
    pub(crate) out: File,
    /// The memory in which the daemon sends.
    pub(crate) back: Option<File>,
    /// The position of the next frame to send.
    pub(crate) head: u64,
    /// The position of the next frame to receive.
    pub(crate) tail: u64,
}

impl Peer {
    pub(crate) fn connect(path: &Path) -> Self {
        let socket = wait::until("a trunk", || {
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
            let socket = socket.expect("a socket");
            let address = SocketAddrUnix::new(path).expect("address");
            connect(&socket, &address).ok().map(|()| socket)
        });
        Self { socket, out: memory(LEN, seals()), back: None, head: 0, tail: 0 }
    }

    /// Connects a peer and sends the greeting that a daemon sends.
    pub(crate) fn greeted(path: &Path) -> Self {
        let mut peer = Self::connect(path);
        peer.greet(HELLO, &[peer.out.as_fd()]);
        assert_eq!(peer.receive_greeting(), HELLO);
        peer
    }

    /// Sends a message with descriptors.
    pub(crate) fn greet(&self, message: &[u8], files: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(files.is_empty() || control.push(SendAncillaryMessage::ScmRights(files)));
        let slices = [IoSlice::new(message)];
        let sent = sendmsg(&self.socket, &slices, &mut control, SendFlags::NOSIGNAL);
        // The daemon may have ended the connection.
        assert!(matches!(sent, Ok(_) | Err(Errno::PIPE | Errno::CONNRESET)), "{sent:?}");
    }

    /// Receives the daemon's greeting, and keeps its memory.
    pub(crate) fn receive_greeting(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 100];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let mut into = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(&self.socket, &mut into, &mut control, flags).expect("receive");
        for message in control.drain() {
            let RecvAncillaryMessage::ScmRights(mut files) = message else { continue };
            self.back = files.next().map(File::from);
            assert!(files.next().is_none(), "one descriptor");
        }
        bytes.truncate(received.bytes);
        bytes
    }

    /// Sends a message of these bytes, such as a wake-up.
    pub(crate) fn message(&self, bytes: &[u8]) {
        self.greet(bytes, &[]);
    }

    /// Writes a length and the bytes of a frame into the ring, and reports them to the daemon.
    pub(crate) fn send_with_length(&mut self, len: u64, frame: &[u8]) {
        self.write(self.head, &len.to_le_bytes());
        self.write(self.head + 8, frame);
        self.publish(self.head + 8 + (frame.len() as u64).next_multiple_of(8));
    }

    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.send_with_length(frame.len() as u64, frame);
    }

    /// Reports this position to the daemon, and wakes it.
    pub(crate) fn publish(&mut self, head: u64) {
        self.head = head;
        self.out.write_all_at(&head.to_le_bytes(), HEAD).expect("write");
        self.message(&[0]);
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let at = at % CAPACITY;
        let end = bytes.len().min(usize::try_from(CAPACITY - at).expect("small"));
        let (first, rest) = bytes.split_at(end);
        self.out.write_all_at(first, DATA + at).expect("write");
        self.out.write_all_at(rest, DATA).expect("write");
    }

    /// Receives a frame, and frees its place in the ring.
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        let back = self.back.as_ref().expect("the daemon's memory");
        let word = |at| {
            let mut word = [0; 8];
            back.read_exact_at(&mut word, at).expect("read");
            u64::from_le_bytes(word)
        };
        let tail = self.tail;
        wait::until("a frame", || (word(HEAD) != tail).then_some(()));
        let len = word(DATA + tail % CAPACITY);
        assert!(len <= 65_553, "a frame of {len} bytes");
        let mut frame = vec![0; usize::try_from(len).expect("small")];
        let at = (tail + 8) % CAPACITY;
        let end = frame.len().min(usize::try_from(CAPACITY - at).expect("small"));
        let (first, rest) = frame.split_at_mut(end);
        back.read_exact_at(first, DATA + at).expect("read");
        back.read_exact_at(rest, DATA).expect("read");
        self.tail += 8 + len.next_multiple_of(8);
        back.write_all_at(&self.tail.to_le_bytes(), TAIL).expect("write");
        self.message(&[0]);
        frame
    }

    /// Writes the position up to which the peer has read.
    pub(crate) fn set_tail(&self, tail: u64) {
        let back = self.back.as_ref().expect("the daemon's memory");
        back.write_all_at(&tail.to_le_bytes(), TAIL).expect("write");
    }

    /// Waits for the end of the connection.
    pub(crate) fn is_ended(&self) -> bool {
        loop {
            match recv(&self.socket, &mut [0; 100], RecvFlags::empty()) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
}
