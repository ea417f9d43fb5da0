//! Records what a program writes to a terminal.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::recording::Output;

/// Keys that are pressed at a time after the start of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Keys {
    /// The time.
    pub after: Duration,
    /// The characters of the keys.
    pub text: String,
}

/// Runs a program on a terminal of this size, presses the keys, and returns what the program has
/// written when it has ended. Fails if the program does, and says what it has written.
pub fn record(program: &[String], columns: u16, rows: u16, keys: Vec<Keys>) -> Result<Vec<Output>> {
    let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("cannot open a terminal")?;
    grantpt(&main)?;
    unlockpt(&main)?;
    let name = ptsname(&main, Vec::new())?.into_string()?;
    let mut main = File::from(main);
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&main, size)?;
    let no_tty = i32::try_from(OFlags::NOCTTY.bits())?;
    let tty = OpenOptions::new().read(true).write(true).custom_flags(no_tty).open(name)?;
    // The terminal becomes the controlling terminal of the program. This process keeps no copy of
    // the program's side, so that the output ends when the program does.
    let mut child = Command::new("setsid")
        .args(["--ctty", "--wait"])
        .args(program)
        .env("TERM", "xterm-256color")
        .stdin(Stdio::from(tty.try_clone()?))
        .stdout(Stdio::from(tty.try_clone()?))
        .stderr(Stdio::from(tty))
        .spawn()
        .context("cannot run setsid, a program of util-linux")?;
    let start = Instant::now();
    press(main.try_clone()?, start, keys);
    let outputs = collect(&mut main, start)?;
    let status = child.wait()?;
    let said = || outputs.iter().map(|output| output.text.as_str()).collect::<String>();
    ensure!(status.success(), "'{}' failed: {status}; it printed:\n{}", program.join(" "), said());
    Ok(outputs)
}

/// Presses the keys at their times. Keys after the end of the program have no effect.
fn press(mut terminal: File, start: Instant, keys: Vec<Keys>) {
    thread::spawn(move || {
        for key in keys {
            thread::sleep(key.after.saturating_sub(start.elapsed()));
            if terminal.write_all(key.text.as_bytes()).is_err() {
                return;
            }
        }
    });
}

/// Reads until no program has the terminal open any more.
fn collect(terminal: &mut File, start: Instant) -> Result<Vec<Output>> {
    let mut outputs = Vec::new();
    let mut bytes = [0; 4096];
    let mut pending = Vec::new();
    loop {
        let count = match terminal.read(&mut bytes) {
            // The kernel reports the end of the other side as an error.
            Ok(0) => break,
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                break;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("cannot read the terminal"),
            Ok(count) => count,
        };
        pending.extend(bytes.iter().take(count));
        let text = take_text(&mut pending);
        if !text.is_empty() {
            outputs.push(Output { time: u64::try_from(start.elapsed().as_millis())?, text });
        }
    }
    Ok(outputs)
}

/// Takes all whole characters from bytes that may end in the middle of one.
fn take_text(bytes: &mut Vec<u8>) -> String {
    let whole = match std::str::from_utf8(bytes) {
        // Bytes that are no text at all become characters that say so.
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    };
    let rest = bytes.split_off(whole);
    let text = String::from_utf8_lossy(bytes).into_owned();
    *bytes = rest;
    text
}
