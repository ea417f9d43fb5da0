//! The thread that serves the VMMs of an adapter, one after another.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use vrnic_adapter::log_ratelimit::Limiter;

use super::busy_socket::BusySocket;
use super::caller::Caller;
use super::device::Device;
use super::session::Session;
use super::stream::{End, Stream};
use crate::memory::stall::Watched;
use crate::worker::pool::now;
use vrnic_control::socket::access::Peer;
use vrnic_control::socket::{SocketFile, accept};

/// Time limit for a client's VERSION. A silent client delays others for this time.
const GREETING: Duration = Duration::from_secs(3);
/// Pause after a failed accept, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running server.
#[derive(Debug)]
pub struct ServerThread {
    name: String,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    socket: Arc<SocketFile>,
    busy: Arc<AtomicBool>,
}

/// Ends the thread's wait for clients, and the connection.
#[derive(Debug)]
struct Stop {
    asked: AtomicBool,
    event: OwnedFd,
    /// The connection, while there is one.
    current: Mutex<Option<UnixStream>>,
}

impl ServerThread {
    /// Serves `device` on `socket`.
    ///
    /// # Errors
    /// Returns an error if no descriptor or thread can be created.
    pub fn start(
        name: &str,
        socket: SocketFile,
        device: Box<dyn Device>,
    ) -> io::Result<(Self, BusySocket)> {
        let stop = Stop {
            asked: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            current: Mutex::default(),
        };
        let stop = Arc::new(stop);
        let socket = Arc::new(socket);
        let busy = Arc::new(AtomicBool::new(false));
        let listener = socket.listener().try_clone()?;
        let busy_socket = BusySocket::new(name, &socket, &busy);
        let session = Listening {
            name: name.to_owned(),
            listener,
            stop: Arc::clone(&stop),
            busy: Arc::clone(&busy),
            device,
            limiter: Limiter::default(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("vfio-{name}"))
            .spawn(move || session.serve())?;
        Ok((Self { name: name.to_owned(), stop, thread: Some(thread), socket, busy }, busy_socket))
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        self.socket.path()
    }

    /// Returns whether a VMM is connected.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst)
    }

    /// Ends the connection of a VMM, if there is one, and the thread.
    pub fn end(mut self) {
        self.ask();
        if let Some(connection) = &*self.stop.current.lock() {
            // A connection that is already closed needs no shutdown.
            let _closed = connection.shutdown(Shutdown::Both);
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(function = self.name, "the server thread panicked");
        }
    }

    fn ask(&self) {
        self.stop.asked.store(true, Ordering::SeqCst);
        if let Err(error) = rustix::io::write(&self.stop.event, &1u64.to_ne_bytes()) {
            tracing::warn!(function = self.name, %error, "the server thread cannot be stopped");
        }
    }
}

impl Drop for ServerThread {
    /// Ends the thread if no VMM is connected. Otherwise the thread runs until the process ends.
    fn drop(&mut self) {
        self.ask();
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished())
            && thread.join().is_err()
        {
            tracing::error!(function = self.name, "the server thread panicked");
        }
    }
}

/// The state of the thread.
struct Listening {
    name: String,
    listener: UnixListener,
    stop: Arc<Stop>,
    /// True if a VMM is connected.
    busy: Arc<AtomicBool>,
    device: Box<dyn Device>,
    limiter: Limiter,
}

impl Listening {
    fn serve(mut self) {
        let _watched = Watched::begin();
        while self.wait_for_client() {
            match accept(&self.listener) {
                Ok(Some((socket, client))) => self.connection(socket, client),
                // The housekeeping thread has already turned the client away.
                Ok(None) => {}
                Err(error) => {
                    self.limiter.warn(now(), || {
                        tracing::warn!(function = self.name, %error, "a VMM cannot be accepted");
                    });
                    std::thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Serves a client until its connection ends.
    fn connection(&mut self, socket: UnixStream, client: Peer) {
        let clones = (|| Ok((socket.try_clone()?, socket.try_clone()?, socket.try_clone()?)))();
        let (connection, caller) = match clones {
            Ok((current, connection, calls)) => {
                *self.stop.current.lock() = Some(current);
                (connection, Arc::new(Caller::new(calls)))
            }
            Err::<_, io::Error>(error) => {
                let name = &self.name;
                self.limiter.warn(now(), || {
                    tracing::warn!(function = name, %error, "a VMM cannot be served");
                });
                return;
            }
        };
        // [`ServerThread::end`] may have been called before there was a connection to shut down.
        if !self.stop.asked.load(Ordering::SeqCst) {
            self.converse(socket, connection.into(), caller, client);
        }
        *self.stop.current.lock() = None;
    }

    /// Serves a client whose connection other threads can shut down. `connection` is the same
    /// socket, for the adapter, and `caller` uses it, too. A panic ends only this connection.
    fn converse(
        &mut self,
        socket: UnixStream,
        connection: OwnedFd,
        caller: Arc<Caller>,
        client: Peer,
    ) {
        let Self { name, busy, device, limiter, .. } = self;
        let calls = Arc::clone(&caller);
        let mut session = Session::new(name, &mut **device, limiter, connection, calls);
        let end = catch_unwind(AssertUnwindSafe(|| {
            converse(&mut session, &caller, Stream::new(socket, GREETING), || {
                busy.store(true, Ordering::SeqCst);
                limiter.warn(now(), || {
                    tracing::info!(function = name, %client, "VMM connected");
                });
            })
        }));
        let was_open = session.is_open();
        session.close();
        busy.store(false, Ordering::SeqCst);
        limiter.warn(now(), || match end {
            Ok(End::Closed) if was_open => tracing::info!(function = name, "VMM disconnected"),
            Ok(end) if was_open => tracing::warn!(function = name, "VMM lost: {end}"),
            Ok(end) => tracing::info!(function = name, %client, "a client disconnected before it agreed on a version: {end}"),
            Err(_) => tracing::error!(function = name, "the connection was closed because its thread panicked, which is a bug of vrnicd"),
        });
    }

    /// Blocks until a client connects. Returns false when it is time to stop.
    fn wait_for_client(&self) -> bool {
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.stop.event.as_fd(), PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
            ];
            if let Err(error) = poll(&mut fds, None)
                && error != rustix::io::Errno::INTR
            {
                tracing::error!(function = self.name, %error, "the vfio-user socket was closed: poll failed");
                return false;
            }
            if self.stop.asked.load(Ordering::SeqCst) {
                return false;
            }
            if fds[1].revents().contains(PollFlags::IN) {
                return true;
            }
        }
    }
}

/// Answers messages until the connection ends. Calls `opened` when a version is agreed on. A
/// refusal ends the connection before that, and also if the next message cannot be found.
fn converse(
    session: &mut Session<'_>,
    caller: &Caller,
    mut stream: Stream,
    opened: impl FnOnce(),
) -> End {
    let mut opened = Some(opened);
    let mut step = || -> Result<(), End> {
        let message = stream.receive()?;
        let in_step = message.header.body_len().is_some();
        if let Some(reply) = session.handle(message) {
            let _alone = caller.lock_sending();
            stream.send(&reply)?;
        }
        if !in_step || !session.is_open() {
            return Err(End::Refused);
        }
        if let Some(opened) = opened.take() {
            stream.be_patient();
            opened();
        }
        Ok(())
    };
    loop {
        if let Err(end) = step() {
            return end;
        }
    }
}
