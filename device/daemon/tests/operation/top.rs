//! `vrnic top` on a terminal, with a real daemon: what a user sees after pressing keys.
//!
//! Shows: views

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::common::{connected, pair, start_with};

/// Time limit of each step.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A terminal with `vrnic top` on it.
struct Terminal {
    keys: File,
    /// The program's side of the terminal, from which the test reads the modes.
    tty: File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    top: Child,
}

impl Terminal {
    fn start(monitor: &str) -> Self {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&main).expect("its rights");
        unlockpt(&main).expect("its other side");
        let name = ptsname(&main, Vec::new()).expect("its name").into_string().expect("text");
        let no_tty = i32::try_from(OFlags::NOCTTY.bits()).expect("a flag");
        let tty = {
            use std::os::unix::fs::OpenOptionsExt;
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(no_tty).open(name).expect("its other side")
        };
        let stdio = || Stdio::from(tty.try_clone().expect("a copy"));
        let mut keys = File::from(main);
        set_size(&keys, 20, 100);
        // The terminal becomes the controlling terminal of the program, so that it gets signals
        // about new sizes.
        let top = Command::new("setsid")
            .args(["--ctty", "--wait", env!("CARGO_BIN_EXE_vrnic")])
            .args(["--monitor", monitor, "top", "--interval", "0.2"])
            .env("TERM", "xterm-256color")
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .expect("setsid, a program of util-linux");
        let (to, output) = channel();
        let mut from = keys.try_clone().expect("a copy");
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if to.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        keys.flush().expect("the terminal");
        Self { keys, tty, output, screen: vt100::Parser::new(some(20), some(100), 0), top }
    }

    /// Waits until the screen has this text.
    fn shows(&mut self, text: &str) {
        let end = Instant::now() + TIMEOUT;
        while !self.screen.screen().contents().contains(text) {
            match self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("no '{text}' on the screen:\n{}", self.screen.screen().contents());
                }
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.screen_mut().set_size(some(rows), some(columns));
        set_size(&self.keys, rows, columns);
    }

    /// Returns whether typed characters are shown, as in a terminal that no program has changed.
    fn echoes(&self) -> bool {
        tcgetattr(&self.tty).expect("modes").local_modes.contains(LocalModes::ECHO)
    }
}

fn some(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("a size")
}

fn set_size(terminal: &File, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a size");
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ended = self.top.kill();
        let _status = self.top.wait();
    }
}

#[test]
fn keys_lead_from_the_functions_to_one_queue_pair() {
    let folder = tempfile::tempdir().expect("folder");
    let monitor = folder.path().join("monitor.sock");
    let monitor = monitor.to_str().expect("text");
    let mut daemon = start_with(2, &["--monitor", monitor]);
    let guests = pair(&daemon);
    let [mut a, b] = connected(&guests, Setup::default());
    for wr_id in 0..5 {
        let write = Wr::new(Opcode::Write, &[a.sge(0, 100)]).id(wr_id).to(b.buffer, b.key);
        a.run_expecting(&write, Status::Success);
    }
    let mut terminal = Terminal::start(monitor);
    terminal.shows("vrnicd: functions: 2");
    terminal.shows("Enter queue pairs");
    assert!(!terminal.echoes(), "keys are echoed onto the screen");
    terminal.press("\r");
    terminal.shows("queue pairs: 1");
    terminal.press("\r");
    terminal.shows(&format!("queue pair {}", a.qpn));
    terminal.shows("posted 5  taken 5");
    terminal.shows("tx_write_req");
    // The screen shows new counts without a key.
    a.run_expecting(&Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key), Status::Success);
    terminal.shows("posted 6  taken 6");
    // In a terminal of another size, the line of help is at the new bottom.
    terminal.resize(12, 60);
    let end = Instant::now() + TIMEOUT;
    while !terminal.screen.screen().rows(0, 60).nth(11).is_some_and(|row| row.contains("q quit")) {
        assert!(Instant::now() < end, "{}", terminal.screen.screen().contents());
        if let Ok(bytes) = terminal.output.recv_timeout(Duration::from_millis(100)) {
            terminal.screen.process(&bytes);
        }
    }
    // The program recognises the single key Esc by the pause after it: other keys also begin with
    // that character.
    terminal.press("\x1b");
    terminal.shows("queue pairs: 1");
    terminal.press("q");
    let status = terminal.top.wait().expect("an end");
    assert!(status.success(), "{status}");
    assert!(terminal.echoes(), "the terminal is left in another mode");
    daemon.check();
}
