//! Requests of the daemon to a VMM: to read and write memory of the guest.
//!
//! The thread of the server receives the replies and hands them over ([`Caller::deliver`]). It
//! never waits here, because the VMM may wait for the server before it replies. There is at most
//! one request at a time. A reply that comes too late, and any other reply, belongs to no request.

use std::io::{self, IoSlice};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use vfio_user::Command;
use zerocopy::{FromBytes, IntoBytes};

use super::wire::{DmaAccess, Header, TRANSFER_DEFAULT, TRANSFER_MAX};
use crate::memory::messages::{Messages, Unanswered};

/// Time limit for all requests of a transfer: to send them, and to receive the replies.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The requests on a connection.
#[derive(Debug)]
pub struct Caller {
    socket: UnixStream,
    /// Held while a whole message is sent.
    sending: Mutex<()>,
    /// Held by the thread that makes a request.
    calling: Mutex<()>,
    has_called: AtomicBool,
    state: Mutex<State>,
    /// Notified when the reply has come, or the connection has ended.
    replied: Condvar,
}

#[derive(Debug)]
struct State {
    /// Maximum length of the data of a message.
    limit: usize,
    /// The number of the next request.
    next: u16,
    /// The request that waits for its reply.
    asked: Option<Asked>,
    /// The reply.
    reply: Option<Result<Vec<u8>, Unanswered>>,
    closed: bool,
}

/// A request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    id: u16,
    command: Command,
    access: DmaAccess,
}

impl Caller {
    /// Creates the state of a connection on which no request has been sent.
    #[must_use]
    pub fn new(socket: UnixStream) -> Self {
        let state =
            State { limit: TRANSFER_DEFAULT, next: 0, asked: None, reply: None, closed: false };
        Self {
            socket,
            sending: Mutex::default(),
            calling: Mutex::default(),
            has_called: AtomicBool::new(false),
            state: Mutex::new(state),
            replied: Condvar::new(),
        }
    }

    /// Sets the maximum length of the data of a message, as the VMM has given it.
    pub fn limit(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.state.lock().limit = bytes.min(TRANSFER_MAX);
    }

    /// Keeps other threads from sending on the socket.
    pub fn lock_sending(&self) -> MutexGuard<'_, ()> {
        self.sending.lock()
    }

    /// Returns whether there has ever been a request.
    #[must_use]
    pub fn has_called(&self) -> bool {
        self.has_called.load(Ordering::Relaxed)
    }

    /// Takes a reply of the VMM. Returns false if it belongs to no request.
    pub fn deliver(&self, header: &Header, body: &[u8]) -> bool {
        let mut state = self.state.lock();
        let asked = state
            .asked
            .take_if(|asked| header.id == asked.id && header.command == asked.command as u16);
        let Some(asked) = asked else { return false };
        state.reply = Some(asked.data_of(header, body));
        self.replied.notify_all();
        true
    }

    /// Ends the request in progress and all later ones.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.replied.notify_all();
    }

    /// Sends a request and waits for the reply. Returns its data.
    fn call(
        &self,
        command: Command,
        access: DmaAccess,
        data: &[u8],
        deadline: Instant,
    ) -> Result<Vec<u8>, Unanswered> {
        self.has_called.store(true, Ordering::Relaxed);
        let asked = {
            let mut state = self.state.lock();
            let asked = Asked { id: state.next, command, access };
            state.next = state.next.wrapping_add(1);
            (state.asked, state.reply) = (Some(asked), None);
            asked
        };
        let len = size_of::<DmaAccess>() + data.len();
        let header = Header::command(asked.id, command as u16, len);
        let parts = [header.as_bytes(), access.as_bytes(), data];
        if let Err(error) = self.send(parts, deadline) {
            tracing::debug!(%error, "a request cannot be sent to the VMM");
            self.state.lock().asked = None;
            let is_late = error.kind() == io::ErrorKind::TimedOut;
            return Err(if is_late { Unanswered::Late } else { Unanswered::Closed });
        }
        self.wait(deadline)
    }

    /// Waits for the reply.
    fn wait(&self, deadline: Instant) -> Result<Vec<u8>, Unanswered> {
        let mut state = self.state.lock();
        loop {
            if let Some(reply) = state.reply.take() {
                return reply;
            }
            if state.closed {
                return Err(Unanswered::Closed);
            }
            if self.replied.wait_until(&mut state, deadline).timed_out() {
                // The reply may have come at the last moment.
                state.asked = None;
                return state.reply.take().unwrap_or(Err(Unanswered::Late));
            }
        }
    }

    /// Sends a whole message. If the VMM does not take all of it in time, the connection is closed,
    /// because the VMM could not find the next message.
    fn send(&self, parts: [&[u8]; 3], deadline: Instant) -> io::Result<()> {
        let alone = self.sending.try_lock_until(deadline);
        let _alone = alone.ok_or(io::ErrorKind::TimedOut)?;
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let mut sent = 0;
        while sent < total {
            let mut skip = sent;
            let rest = parts.map(|part| {
                let from = skip.min(part.len());
                skip -= from;
                IoSlice::new(part.get(from..).unwrap_or_default())
            });
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.socket, &rest, &mut SendAncillaryBuffer::default(), flags) {
                Ok(len) => sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if let Err(error) = self.wait_for_room(deadline) {
                        if sent > 0 {
                            self.socket.shutdown(std::net::Shutdown::Both)?;
                        }
                        return Err(error);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits until the socket takes more bytes.
    fn wait_for_room(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::TimedOut)?;
        match poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], Some(&left)) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Calls `each` with the addresses, the start and the length of each message for `len` bytes.
    fn each_message(
        &self,
        addr: u64,
        len: usize,
        mut each: impl FnMut(DmaAccess, usize, usize) -> Result<(), Unanswered>,
    ) -> Result<(), Unanswered> {
        // A VMM that takes no data at all cannot be asked.
        let limit = self.state.lock().limit;
        let mut done = 0;
        while done < len {
            let count = (len - done).min(limit);
            let at = addr.checked_add(done as u64).filter(|_| count > 0);
            let access = DmaAccess { addr: at.ok_or(Unanswered::Wrong)?, count: count as u64 };
            each(access, done, count)?;
            done += count;
        }
        Ok(())
    }
}

impl Asked {
    /// Returns the data of a reply.
    fn data_of(&self, header: &Header, body: &[u8]) -> Result<Vec<u8>, Unanswered> {
        if let Some(error) = header.error() {
            return Err(Unanswered::Refused(error));
        }
        // QEMU answers a write by a header alone.
        let is_write = matches!(self.command, Command::DmaWrite);
        if is_write && body.is_empty() {
            return Ok(Vec::new());
        }
        let (access, data) = DmaAccess::read_from_prefix(body).map_err(|_| Unanswered::Wrong)?;
        let count = if is_write { 0 } else { self.access.count };
        if access != self.access || data.len() as u64 != count {
            return Err(Unanswered::Wrong);
        }
        Ok(data.to_vec())
    }
}

impl Messages for Caller {
    fn read(&self, addr: u64, len: usize) -> Result<Vec<u8>, Unanswered> {
        let _one_at_a_time = self.calling.lock();
        let (mut all, deadline) = (Vec::with_capacity(len), Instant::now() + TIMEOUT);
        self.each_message(addr, len, |access, _, _| {
            all.extend_from_slice(&self.call(Command::DmaRead, access, &[], deadline)?);
            Ok(())
        })?;
        Ok(all)
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), Unanswered> {
        let _one_at_a_time = self.calling.lock();
        let deadline = Instant::now() + TIMEOUT;
        self.each_message(addr, bytes.len(), |access, from, count| {
            let part = from.checked_add(count).and_then(|end| bytes.get(from..end));
            self.call(Command::DmaWrite, access, part.ok_or(Unanswered::Wrong)?, deadline)?;
            Ok(())
        })
    }
}
