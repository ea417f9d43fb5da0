//! Changes to a running daemon, by its control socket (docs/uplinks.md). Only the daemon's own user
//! can connect to it. One client is served at a time, so changes never overlap.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use vrnic_adapter::log_ratelimit::Limiter;
use vrnic_control_api::request::{REQUEST_MAX, Reply, Request};

use crate::event::Event;
use crate::now;
use crate::socket::access::{Access, Peer, SocketMode};
use crate::socket::{SocketFile, accept};

/// Maximum time to wait for data from a client, or for a client to read data.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Pause after a failed accept, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Carries out a request.
pub type Handler = Box<dyn Fn(Request) -> Answer + Send>;

/// The answer to a request.
pub enum Answer {
    /// A reply.
    Reply(Reply),
    /// [`Reply::Done`]. The connection is then passed to this function.
    Stream(Box<dyn FnOnce(UnixStream) -> anyhow::Result<()>>),
}

/// The thread that serves the control socket; on drop it ends.
#[derive(Debug)]
pub struct Reconfig {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Stop {
    asked: AtomicBool,
    event: Event,
}

impl Reconfig {
    /// Starts to listen at `path`. The thread calls `begin` at its start, and drops at its end what
    /// that returns.
    ///
    /// # Errors
    /// Returns an error if the path cannot be used, or if no thread can be started.
    pub fn start<G>(
        path: &Path,
        begin: impl FnOnce() -> G + Send + 'static,
        handler: Handler,
    ) -> anyhow::Result<Self> {
        let access = Access { mode: SocketMode(0o600), group: None };
        let socket = SocketFile::bind(path, &access)?;
        let stop = Arc::new(Stop { asked: AtomicBool::new(false), event: Event::new()? });
        let serving =
            Serving { socket, handler, stop: Arc::clone(&stop), limiter: Limiter::default() };
        let thread = std::thread::Builder::new().name("reconfig".into());
        let run = move || {
            let _until_the_end = begin();
            serving.run();
        };
        let thread = thread.spawn(run).context("cannot start a thread")?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Reconfig {
    fn drop(&mut self) {
        self.stop.asked.store(true, Ordering::SeqCst);
        self.stop.event.step();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the control socket panicked");
        }
    }
}

/// The state of the thread.
struct Serving {
    socket: SocketFile,
    handler: Handler,
    stop: Arc<Stop>,
    limiter: Limiter,
}

impl Serving {
    fn run(self) {
        while self.wait() {
            match accept(self.socket.listener()) {
                Ok(Some((stream, client))) => self.serve(stream, client),
                Ok(None) => {}
                Err(error) => {
                    self.limiter.warn(now(), || {
                        tracing::warn!(%error, "a client of the control socket cannot be accepted");
                    });
                    std::thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Waits for a client. Returns false when it is time to end.
    fn wait(&self) -> bool {
        let mut fds = [
            PollFd::new(&self.stop.event, PollFlags::IN),
            PollFd::new(self.socket.listener(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => !self.stop.asked.load(Ordering::SeqCst),
            Err(error) => {
                tracing::error!(%error, "the control socket was closed: poll failed");
                false
            }
        }
    }

    /// Answers one request.
    fn serve(&self, mut stream: UnixStream, client: Peer) {
        let answer = match receive(&stream) {
            Ok(request) => {
                if request.is_change() {
                    tracing::info!(%client, ?request, "a client of the control socket asks for a change");
                }
                (self.handler)(request)
            }
            Err(error) => {
                Answer::Reply(Reply::Refused(format!("the request cannot be read: {error}")))
            }
        };
        let (reply, then) = match answer {
            Answer::Reply(reply) => (reply, None),
            Answer::Stream(then) => (Reply::Done, Some(then)),
        };
        let sent = serde_json::to_string(&reply)
            .map_err(io::Error::from)
            .and_then(|text| writeln!(stream, "{text}"));
        if let Ok(()) = sent
            && let Some(then) = then
        {
            if let Err(error) = then(stream) {
                tracing::error!(%client, "a request at the control socket failed: {error:#}");
            }
        } else if let Err(error) = sent {
            self.limiter.warn(now(), || {
                tracing::warn!(%client, %error, "a client of the control socket disconnected before it got its reply");
            });
        }
    }
}

/// Receives a request.
fn receive(stream: &UnixStream) -> io::Result<Request> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut line = String::new();
    // CAST: a small number.
    BufReader::new(stream.take(REQUEST_MAX as u64)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
