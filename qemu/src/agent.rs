//! The harness's side of a guest's agent: runs commands, copies files.

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use parking_lot::Mutex;

use crate::protocol::{Event, PIECE, Request, receive, send};

/// Time for reading output that has already arrived when the time limit has ended.
const GRACE: Duration = Duration::from_millis(500);
/// Time limit for the confirmation that something is stored, and what is added for each MiB of an
/// archive that a guest unpacks.
const STORING: Duration = Duration::from_secs(30);
const UNPACKING: Duration = Duration::from_secs(1);
/// The path in the guest of an archive that it unpacks.
const ARCHIVE: &str = "/vrnic.cpio";

/// An output stream of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Result of a command.
#[derive(Clone, Debug)]
pub struct Output {
    /// Exit code, or 128 + signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Returns whether the exit code is 0.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.code == 0
    }
}

#[derive(Debug, Default)]
struct Inbox {
    commands: HashMap<u32, Sender<Event>>,
    stored: Option<Sender<Event>>,
    /// Number of times that the agent has started again.
    greetings: u32,
    closed: bool,
}

/// A connection to an agent. All clones use the same connection.
#[derive(Clone, Debug)]
pub struct Agent {
    name: String,
    port: Arc<Mutex<UnixStream>>,
    inbox: Arc<Mutex<Inbox>>,
    next: Arc<AtomicU32>,
}

impl Agent {
    /// Waits for the first message of the agent behind `port`.
    ///
    /// # Errors
    /// If it does not come within `timeout`, or is another message.
    pub fn connect(name: &str, port: UnixStream, timeout: Duration) -> anyhow::Result<Self> {
        Self::greeted(name, port, timeout)
    }

    /// Asks the agent of a guest that was restored for its first message, and waits for that.
    ///
    /// # Errors
    /// Fails as [`Self::connect`] does.
    pub fn resume(name: &str, mut port: UnixStream, timeout: Duration) -> anyhow::Result<Self> {
        send(&mut port, &Request::Greet)?;
        Self::greeted(name, port, timeout)
    }

    fn greeted(name: &str, port: UnixStream, timeout: Duration) -> anyhow::Result<Self> {
        let mut reader = port.try_clone()?;
        reader.set_read_timeout(Some(timeout))?;
        match receive(&mut reader) {
            Ok(Event::Ready) => {}
            Ok(other) => {
                bail!("the agent of guest {name} began with {other:?} instead of its greeting")
            }
            Err(error) => {
                bail!("the agent of guest {name} did not answer within {timeout:?}: {error}")
            }
        }
        reader.set_read_timeout(None)?;
        let inbox: Arc<Mutex<Inbox>> = Arc::default();
        let sorter = Arc::clone(&inbox);
        std::thread::spawn(move || {
            while let Ok(event) = receive::<Event>(&mut reader) {
                sort(&sorter, event);
            }
            let mut inbox = sorter.lock();
            // Callers that wait see the closed channel.
            *inbox = Inbox { closed: true, ..Inbox::default() };
        });
        let port = Arc::new(Mutex::new(port));
        Ok(Self { name: name.to_owned(), port, inbox, next: Arc::default() })
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        // The connection may have ended already.
        let _ended = self.port.lock().shutdown(Shutdown::Both);
    }

    /// Returns the number of times that the agent has started again.
    #[must_use]
    pub fn greetings(&self) -> u32 {
        self.inbox.lock().greetings
    }

    /// Waits until the agent has started again more often than `before`.
    ///
    /// # Errors
    /// If it does not within `timeout`, or the guest has ended.
    pub fn greets_after(&self, before: u32, timeout: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + timeout;
        while self.greetings() == before {
            ensure!(!self.inbox.lock().closed, "the agent of guest {} has disconnected", self.name);
            ensure!(
                Instant::now() < end,
                "the agent of guest {} did not start again within {timeout:?}",
                self.name
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Starts a shell command.
    ///
    /// # Errors
    /// If the guest has ended.
    pub fn start(&self, script: &str) -> anyhow::Result<Running> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, events) = channel();
        {
            let mut inbox = self.inbox.lock();
            ensure!(!inbox.closed, "the agent of guest {} has disconnected", self.name);
            inbox.commands.insert(id, sender);
        }
        send(&mut *self.port.lock(), &Request::Exec { id, script: script.to_owned() })
            .with_context(|| format!("the agent of guest {} has disconnected", self.name))?;
        Ok(Running { agent: self.clone(), id, script: script.to_owned(), events })
    }

    /// Runs a shell command to its end.
    ///
    /// # Errors
    /// If it takes longer than `timeout` (it is then killed) or the guest has ended.
    pub fn run(&self, script: &str, timeout: Duration) -> anyhow::Result<Output> {
        self.start(script)?.wait(timeout)
    }

    /// Runs a shell command that must succeed. Returns its standard output.
    ///
    /// # Errors
    /// Fails as [`Self::run`] does, and if the exit code is not 0.
    pub fn check(&self, script: &str, timeout: Duration) -> anyhow::Result<String> {
        let output = self.run(script, timeout)?;
        ensure!(
            output.ok(),
            "guest {}: '{script}' ended with {}\n{}{}",
            self.name,
            output.code,
            output.stdout,
            output.stderr
        );
        Ok(output.stdout)
    }

    /// Copies a file of this machine into the guest.
    ///
    /// # Errors
    /// If it cannot be read here or written there.
    pub fn put(&self, from: &Path, to: &str, mode: u32) -> anyhow::Result<()> {
        let data =
            std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        let (sender, stored) = channel();
        self.inbox.lock().stored = Some(sender);
        for (index, piece) in data.chunks(PIECE).enumerate() {
            let request = Request::Put {
                path: to.to_owned(),
                offset: (index * PIECE) as u64,
                mode,
                data: piece.to_vec(),
            };
            self.store(&request, &stored, to, STORING)?;
        }
        Ok(())
    }

    /// Copies a cpio archive of this machine into the guest and unpacks it there.
    ///
    /// # Errors
    /// If it cannot be read here or unpacked there.
    pub fn unpack(&self, archive: &Path) -> anyhow::Result<()> {
        self.put(archive, ARCHIVE, 0o600)?;
        let size = u32::try_from(std::fs::metadata(archive)?.len() >> 20).unwrap_or(u32::MAX);
        let timeout = STORING.saturating_add(UNPACKING.saturating_mul(size));
        let (sender, stored) = channel();
        self.inbox.lock().stored = Some(sender);
        self.store(&Request::Unpack { path: ARCHIVE.to_owned() }, &stored, ARCHIVE, timeout)
    }

    /// Sends a request, and waits until the agent confirms that something is stored at `to`.
    fn store(
        &self,
        request: &Request,
        stored: &Receiver<Event>,
        to: &str,
        timeout: Duration,
    ) -> anyhow::Result<()> {
        send(&mut *self.port.lock(), request)?;
        match stored.recv_timeout(timeout) {
            Ok(Event::Stored { error }) if error.is_empty() => Ok(()),
            Ok(event) => bail!("guest {} cannot store the file: {event:?}", self.name),
            Err(error) => {
                bail!("guest {} did not confirm that it stored {to}: {error}", self.name)
            }
        }
    }
}

fn sort(inbox: &Mutex<Inbox>, event: Event) {
    let mut inbox = inbox.lock();
    let receiver = match &event {
        Event::Ready => {
            // Commands of the former agent have ended with it: their callers see a closed channel.
            let greetings = inbox.greetings.wrapping_add(1);
            *inbox = Inbox { greetings, ..Inbox::default() };
            None
        }
        Event::Output { id, .. } => inbox.commands.get(id).cloned(),
        Event::Exit { id, .. } => inbox.commands.remove(id),
        Event::Stored { .. } => inbox.stored.clone(),
    };
    if let Some(receiver) = receiver {
        // If the command was given up, its caller no longer waits.
        let _unread = receiver.send(event);
    }
}

/// A command that runs.
#[derive(Debug)]
pub struct Running {
    agent: Agent,
    id: u32,
    script: String,
    events: Receiver<Event>,
}

impl Running {
    /// Kills the command and its children.
    ///
    /// # Errors
    /// If the guest has ended.
    pub fn kill(&self) -> anyhow::Result<()> {
        Ok(send(&mut *self.agent.port.lock(), &Request::Kill { id: self.id })?)
    }

    /// Passes the command's output to `sink` as it arrives, until the command ends. Returns its
    /// exit code, or nothing if it has not ended within `timeout`.
    ///
    /// # Errors
    /// If the guest has ended, or `sink` fails.
    pub fn follow(
        &self,
        timeout: Duration,
        mut sink: impl FnMut(Stream, &[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<i32>> {
        let end = Instant::now() + timeout;
        loop {
            match self.events.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Event::Output { stderr, data, .. }) => {
                    sink(if stderr { Stream::Stderr } else { Stream::Stdout }, &data)?;
                }
                Ok(Event::Exit { code, .. }) => return Ok(Some(code)),
                Ok(Event::Ready | Event::Stored { .. }) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!(
                        "the agent of guest {} disconnected while it ran '{}'",
                        self.agent.name,
                        self.script
                    )
                }
            }
            // A command that never pauses must not keep its caller waiting for ever.
            if Instant::now() >= end + GRACE {
                return Ok(None);
            }
        }
    }

    /// Waits for the end of the command.
    ///
    /// # Errors
    /// If it does not end within `timeout` (it is then killed) or the guest has ended.
    pub fn wait(self, timeout: Duration) -> anyhow::Result<Output> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let code = self.follow(timeout, |stream, data| {
            match stream {
                Stream::Stdout => stdout.extend_from_slice(data),
                Stream::Stderr => stderr.extend_from_slice(data),
            }
            Ok(())
        })?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&stdout), text(&stderr));
        if let Some(code) = code {
            return Ok(Output { code, stdout, stderr });
        }
        let _gone = self.kill();
        bail!(
            "guest {}: '{}' did not end within {timeout:?}\n{stdout}{stderr}",
            self.agent.name,
            self.script
        )
    }
}
