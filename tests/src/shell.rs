//! The shell on a guest's second serial line. It still works after a sleep of the machine. The
//! agent's port does not.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use vrnic_qemu::guest::Guest;

/// Time limit of one read.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The shell of a guest. Each guest has one.
pub struct Shell(UnixStream);

impl Shell {
    /// Connects to the shell of this guest.
    pub fn of(guest: &Guest) -> Result<Self> {
        let stream = UnixStream::connect(guest.shell_socket())?;
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        Ok(Self(stream))
    }

    /// Runs a command, which must succeed within `timeout`. Returns the terminal's output.
    pub fn check(&mut self, command: &str, timeout: Duration) -> Result<String> {
        // The terminal shows the command, too, but without this end.
        writeln!(self.0, "{{ {command}; }}; echo \"end\"\":$?:\"")?;
        let end = Instant::now() + timeout;
        let mut shown = String::new();
        loop {
            let mut buffer = [0; 4096];
            match self.0.read(&mut buffer) {
                Ok(length) => {
                    let bytes = buffer.get(..length).unwrap_or_default();
                    shown.push_str(&String::from_utf8_lossy(bytes));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if let Some((_, rest)) = shown.split_once("end:")
                && let Some((code, _)) = rest.split_once(':')
            {
                ensure!(code == "0", "'{command}' failed: {shown}");
                return Ok(shown);
            }
            ensure!(Instant::now() < end, "'{command}' did not end within {timeout:?}: {shown}");
        }
    }
}
