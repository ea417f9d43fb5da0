//! The terminal of a person, connected with a guest's second serial line.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// The key that leaves: Ctrl-].
const LEAVE: u8 = 0x1d;

/// Connects this terminal with the serial line behind `socket`, until the user leaves or input
/// ends. Types `first` into the guest's shell before.
///
/// # Errors
/// If the guest does not listen on the socket, or ends.
pub fn attach(socket: &Path, first: &str) -> Result<()> {
    let failure = || format!("no guest listens on {}", socket.display());
    let mut line = UnixStream::connect(socket).with_context(failure)?;
    let _raw = RawTerminal::new();
    let mut output = line.try_clone()?;
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = output.read(&mut buffer) {
            let mut stdout = io::stdout();
            let shown = stdout.write_all(buffer.get(..len).unwrap_or_default());
            if shown.and_then(|()| stdout.flush()).is_err() {
                break;
            }
        }
    });
    line.write_all(first.as_bytes())?;
    line.write_all(b"\r")?;
    let mut buffer = [0; 256];
    while let Ok(len @ 1..) = io::stdin().read(&mut buffer) {
        let typed = buffer.get(..len).unwrap_or_default();
        if typed.contains(&LEAVE) {
            break;
        }
        line.write_all(typed)?;
    }
    // Input that does not come from a terminal may end before its commands do.
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

/// The terminal in raw mode. Its former mode is restored on drop.
struct RawTerminal(Option<Termios>);

impl RawTerminal {
    fn new() -> Self {
        let stdin = io::stdin();
        let Ok(before) = tcgetattr(stdin.as_fd()) else { return Self(None) };
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        let set = tcsetattr(stdin.as_fd(), SetArg::TCSANOW, &raw);
        Self(set.ok().map(|()| before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // Nothing can be done if the terminal is closed.
            let _gone = tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, before);
        }
    }
}
