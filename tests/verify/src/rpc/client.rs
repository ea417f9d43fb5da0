//! The suite's handle of an agent. Several handles may name the same agent, so that a case for two
//! ends also runs with both ends on one side.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::failure::Failure;
use super::{frame, process};

/// Time limit for an agent's answer. The timeouts of calls are shorter, and the agent's watchdog
/// ends a process whose call takes too long before this time.
const SILENCE: Duration = Duration::from_secs(150);
/// Time limit of a connection attempt.
const CONNECT: Duration = Duration::from_secs(10);

/// The place of an agent.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In a process that the suite starts.
    Here,
    /// In a process that `vrnic-verify serve` at this address starts.
    There(SocketAddr),
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "spawn" => Ok(Self::Here),
            _ => text
                .parse()
                .map(Self::There)
                .map_err(|_| format!("{text}: want \"spawn\" or ADDRESS:PORT")),
        }
    }
}

/// A call without an answer, or with an invalid one.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The agent's call has failed.
    Failed(Failure),
    /// The agent has ended, or has not answered in time.
    Lost(io::Error),
}

impl CallError {
    /// Returns the errno of the verb that failed.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Failed(failure) => failure.errno,
            Self::Lost(_) => None,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(f),
            Self::Lost(e) => write!(f, "agent lost: {e}"),
        }
    }
}

impl std::error::Error for CallError {}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

struct Connection {
    stream: Box<dyn Stream>,
    child: Option<Child>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // The agent ends by itself at the end of the stream unless it hangs. It must end before
            // the case does, in any case. If these calls fail, it has ended already.
            child.kill().ok();
            child.wait().ok();
        }
    }
}

#[derive(Clone)]
pub(crate) struct Agent {
    /// "a", "b" or another name for messages.
    name: &'static str,
    connection: Rc<RefCell<Connection>>,
}

/// A call whose answer has not been fetched.
#[must_use = "the answer must be fetched before the next call"]
pub(crate) struct Pending<'a, T> {
    agent: &'a Agent,
    answer: PhantomData<T>,
}

/// Makes calls whose answers are fetched later, so that two agents can work at the same time.
pub(crate) struct Begin<'a>(&'a Agent);

impl Agent {
    /// Starts an agent.
    pub(crate) fn start(
        name: &'static str,
        place: &Place,
        start: &process::Start,
    ) -> io::Result<Self> {
        let connection = match place {
            Place::Here => {
                let (ours, theirs) = UnixStream::pair()?;
                ours.set_read_timeout(Some(SILENCE))?;
                let child = process::spawn(OwnedFd::from(theirs), start)?;
                Connection { stream: Box::new(ours), child: Some(child) }
            }
            Place::There(address) => {
                let mut stream = TcpStream::connect_timeout(address, CONNECT)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(SILENCE))?;
                frame::send(&mut stream, start)?;
                Connection { stream: Box::new(stream), child: None }
            }
        };
        Ok(Self { name, connection: Rc::new(RefCell::new(connection)) })
    }

    /// Returns the name for messages.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Makes the next call without waiting for its answer.
    pub(crate) fn begin(&self) -> Begin<'_> {
        Begin(self)
    }
}

impl<'a> Begin<'a> {
    /// Sends a request whose answer is a `T`.
    pub(crate) fn ask<T>(self, request: &impl Serialize) -> Result<Pending<'a, T>, CallError> {
        let connection = &mut self.0.connection.borrow_mut();
        frame::send(&mut connection.stream, request).map_err(CallError::Lost)?;
        Ok(Pending { agent: self.0, answer: PhantomData })
    }
}

impl<T: DeserializeOwned> Pending<'_, T> {
    /// Waits for the answer.
    pub(crate) fn finish(self) -> Result<T, CallError> {
        let stream = &mut self.agent.connection.borrow_mut().stream;
        let answer: Option<Result<T, Failure>> = frame::receive(stream).map_err(CallError::Lost)?;
        answer.ok_or_else(|| CallError::Lost(io::ErrorKind::UnexpectedEof.into()))?.map_err(
            |mut failure| {
                failure.text = format!("{}: {}", self.agent.name, failure.text);
                CallError::Failed(failure)
            },
        )
    }
}
