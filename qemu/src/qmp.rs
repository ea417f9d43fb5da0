//! Commands to a guest's QEMU (its machine protocol, QMP).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Time limit for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for a QEMU that starts to make its socket, and the time between two looks.
const STARTING: Duration = Duration::from_secs(10);
const LOOKING: Duration = Duration::from_millis(10);

/// A connection to the control socket of a QEMU. QEMU serves one at a time.
#[derive(Debug)]
pub struct Qmp {
    stream: UnixStream,
    lines: std::io::Lines<BufReader<UnixStream>>,
}

impl Qmp {
    /// Connects to the control socket of a QEMU that may be starting.
    ///
    /// # Errors
    /// Fails as [`Self::connect`] does.
    pub fn connect_early(socket: &Path) -> Result<Self> {
        let end = Instant::now() + STARTING;
        while UnixStream::connect(socket).is_err() && Instant::now() < end {
            std::thread::sleep(LOOKING);
        }
        Self::connect(socket)
    }

    /// Connects to the control socket.
    ///
    /// # Errors
    /// If QEMU does not answer.
    pub fn connect(socket: &Path) -> Result<Self> {
        let stream =
            UnixStream::connect(socket).context("cannot connect to QEMU's control socket")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let lines = BufReader::new(stream.try_clone()?).lines();
        let mut connection = Self { stream, lines };
        connection.run(r#"{"execute":"qmp_capabilities"}"#)?;
        Ok(connection)
    }

    /// Runs a command, which is JSON text. Returns QEMU's answer.
    ///
    /// # Errors
    /// If QEMU refuses the command or does not answer.
    pub fn run(&mut self, command: &str) -> Result<Value> {
        self.stream.write_all(format!("{command}\n").as_bytes())?;
        for line in self.lines.by_ref() {
            let mut message: Value = serde_json::from_str(&line?)?;
            // The greeting and events may come before the answer.
            if let Some(answer) = message.get_mut("return") {
                return Ok(answer.take());
            }
            if message.get("error").is_some() {
                bail!("QEMU refused {command}: {message}");
            }
        }
        bail!("QEMU closed its control socket")
    }
}

/// Runs a command, which is JSON text, in a connection of its own.
///
/// # Errors
/// Fails as [`Qmp::run`] does.
pub fn run(socket: &Path, command: &str) -> Result<()> {
    Qmp::connect(socket)?.run(command).map(drop)
}
