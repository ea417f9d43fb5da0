//! The terminal of a person, connected with a guest's second serial line.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// The key that leaves: Ctrl-].
const LEAVE: u8 = 0x1d;

/// Connects this terminal with the serial line of `socket`, until the user leaves or input
/// ends. Types `first` into the guest's shell before.
///
/// # Errors
/// If the guest does not listen on the socket, or ends, or another terminal is connected with it.
pub fn attach(socket: &Path, first: &str) -> Result<()> {
    let failure = || format!("no guest listens on {}", socket.display());
    let mut line = UnixStream::connect(socket).with_context(failure)?;
    let _alone = alone(socket)?;
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

/// Locks the guest's line, which has one reader: QEMU lets a second one wait without a word.
fn alone(socket: &Path) -> Result<Flock<File>> {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    let failure = || format!("cannot lock {}", socket.display());
    let file = File::create(&path).with_context(failure)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((_, Errno::EWOULDBLOCK)) => {
            bail!("another terminal is in this guest; leave it there with Ctrl-]")
        }
        Err((_, error)) => Err(error).with_context(failure),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_terminal_is_told_of_the_first() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("a.shell");
        let first = alone(&socket)?;
        let error = alone(&socket).map(drop).map_err(|error| error.to_string());
        assert_eq!(
            error,
            Err("another terminal is in this guest; leave it there with Ctrl-]".into())
        );
        drop(first);
        assert!(alone(&socket).is_ok());
        Ok(())
    }
}
