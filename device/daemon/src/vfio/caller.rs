//! Requests of the daemon to a VMM: to read and write memory of the guest.
//!
//! The thread of the server receives the replies and hands them over ([`Caller::deliver`]). It
//! never waits here, because the VMM may wait for the server before it replies. There is at most
//! one request at a time. A reply that comes too late, and any other reply, belongs to no request.
//! It only shows that a write of memory has taken place, and will not do so later.

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
use crate::memory::messages::{End, Messages, Unanswered};

/// Time limit for all requests of a transfer: to send them, and to receive the replies.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of writes that a VMM may leave unanswered. It is disconnected at the next one.
const MAX_OWED: usize = 16;

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
    /// The writes that were not answered in time, and may still take place.
    owed: Vec<Asked>,
    /// The VMM's reply to the message in progress, when it has come.
    reply: Option<Result<Vec<u8>, Unanswered>>,
    closed: bool,
}

/// A message to the VMM that waits for a reply.
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
        let (limit, owed) = (TRANSFER_DEFAULT, Vec::new());
        let state = State { limit, next: 0, asked: None, owed, reply: None, closed: false };
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
        let is_of = |asked: &Asked| header.id == asked.id && header.command == asked.command as u16;
        let Some(asked) = state.asked.take_if(|asked| is_of(asked)) else {
            state.owed.retain(|asked| !is_of(asked));
            return false;
        };
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
        until: Until<'_>,
    ) -> Result<Vec<u8>, Unanswered> {
        self.has_called.store(true, Ordering::Relaxed);
        let asked = {
            let mut state = self.state.lock();
            let asked = Asked { id: state.next_id(), command, access };
            (state.asked, state.reply) = (Some(asked), None);
            asked
        };
        let len = size_of::<DmaAccess>() + data.len();
        let header = Header::command(asked.id, command as u16, len);
        let parts = [header.as_bytes(), access.as_bytes(), data];
        if let Err(error) = self.send(parts, until) {
            tracing::debug!(%error, "a request cannot be sent to the VMM");
            self.state.lock().asked = None;
            return Err(match error.kind() {
                io::ErrorKind::TimedOut => Unanswered::Late,
                io::ErrorKind::Interrupted => Unanswered::Ended,
                _ => Unanswered::Closed,
            });
        }
        self.wait(until.deadline)
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
                let asked = state.asked.take();
                let late = asked.filter(|asked| asked.command as u16 == Command::DmaWrite as u16);
                state.owed.extend(late);
                if state.owed.len() > MAX_OWED {
                    self.disconnect();
                }
                return state.reply.take().unwrap_or(Err(Unanswered::Late));
            }
        }
    }

    /// Sends a whole message, unless the access has been ended. If the VMM does not take all of it
    /// in time, the connection is closed, because the VMM could not find the next message.
    fn send(&self, parts: [&[u8]; 3], Until { deadline, end }: Until<'_>) -> io::Result<()> {
        let alone = self.sending.try_lock_until(deadline);
        let _alone = alone.ok_or(io::ErrorKind::TimedOut)?;
        // While the lock is held, no reply to the VMM overtakes the message.
        if end.is_set() {
            return Err(io::ErrorKind::Interrupted.into());
        }
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

/// The end of a request that is not answered.
#[derive(Clone, Copy, Debug)]
struct Until<'a> {
    deadline: Instant,
    end: &'a End,
}

impl<'a> Until<'a> {
    fn now(end: &'a End) -> Self {
        Self { deadline: Instant::now() + TIMEOUT, end }
    }
}

impl State {
    /// Returns the number of the next request. No write whose reply is owed has it.
    fn next_id(&mut self) -> u16 {
        loop {
            let id = self.next;
            self.next = id.wrapping_add(1);
            if self.owed.iter().all(|asked| asked.id != id) {
                return id;
            }
        }
    }
}

impl Asked {
    /// Returns the data of a reply.
    fn data_of(&self, header: &Header, body: &[u8]) -> Result<Vec<u8>, Unanswered> {
        if let Some(error) = header.error() {
            return Err(Unanswered::Refused(error));
        }
        // QEMU answers a write with only a header.
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
    fn read(&self, addr: u64, len: usize, end: &End) -> Result<Vec<u8>, Unanswered> {
        let _one_at_a_time = self.calling.lock();
        let (mut all, until) = (Vec::with_capacity(len), Until::now(end));
        self.each_message(addr, len, |access, _, _| {
            all.extend_from_slice(&self.call(Command::DmaRead, access, &[], until)?);
            Ok(())
        })?;
        Ok(all)
    }

    fn write(&self, addr: u64, bytes: &[u8], end: &End) -> Result<(), Unanswered> {
        let _one_at_a_time = self.calling.lock();
        let until = Until::now(end);
        self.each_message(addr, bytes.len(), |access, from, count| {
            let part = from.checked_add(count).and_then(|end| bytes.get(from..end));
            self.call(Command::DmaWrite, access, part.ok_or(Unanswered::Wrong)?, until)?;
            Ok(())
        })
    }

    fn is_owed(&self, addr: u64, len: u64) -> bool {
        let state = self.state.lock();
        let is_in = |access: &DmaAccess| access.addr.checked_sub(addr).is_some_and(|at| at < len);
        !state.closed && state.owed.iter().any(|asked| is_in(&asked.access))
    }

    /// Ends the connection. The thread of the server learns of it as of the end by the VMM.
    fn disconnect(&self) {
        // A socket without a peer has been shut down.
        let _ended = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests;
