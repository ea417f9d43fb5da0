//! The program's processes: signals, the exit status, and what the program leaves behind.

use std::process::{Child, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Time that the processes which the program leaves behind have to end.
const GRACE: Duration = Duration::from_secs(5);
/// Interval at which they are looked at.
const LOOK: Duration = Duration::from_millis(2);

/// The signals of this process that concern the program. It is created before the program, so that
/// none is lost.
#[derive(Debug)]
pub struct Watch(Signals);

/// How a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this exit status.
    Exited(u8),
    /// By the signal of this number. It may be one without a name.
    Killed(i32),
}

impl Ended {
    /// Returns the exit status: 128 and the number of the signal if one has ended the program.
    #[must_use]
    pub fn status(self) -> u8 {
        match self {
            Self::Exited(status) => status,
            // CAST: signals are numbers from 1 to 64.
            Self::Killed(signal) => 128 + signal as u8,
        }
    }

    /// Returns the exit status, unless SIGINT has ended the program: then it ends this process,
    /// too. A shell stops its script only if its child has ended by this signal.
    #[must_use]
    pub fn exit(self) -> ExitCode {
        if self == Self::Killed(SIGINT) {
            // If it fails, the status says the same.
            let _not_ended = emulate_default_handler(SIGINT);
        }
        self.status().into()
    }
}

impl Watch {
    /// Begins to receive the signals, and becomes the parent of processes whose own parent ends.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new() -> anyhow::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .context("this process cannot become the parent of orphans")?;
        let all = [SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];
        Signals::new(all).context("signals cannot be received").map(Self)
    }

    /// Passes signals on until the program ends. Returns how.
    pub fn wait(mut self, child: &Child) -> Ended {
        // CAST: process numbers are positive 32-bit numbers.
        let program = Pid::from_raw(child.id() as i32);
        loop {
            if let Some(ended) = reap(program) {
                return ended;
            }
            for number in self.0.wait() {
                let Ok(signal) = Signal::try_from(number) else { continue };
                // A terminal has sent these to the program, too.
                let shared = matches!(signal, Signal::SIGINT | Signal::SIGQUIT | Signal::SIGWINCH)
                    && rustix::termios::isatty(rustix::stdio::stdin());
                if signal != Signal::SIGCHLD && !shared {
                    let _ended = kill(program, signal);
                }
            }
        }
    }
}

/// Collects children that have ended. Returns how the program has ended, if it is one of them.
fn reap(program: Pid) -> Option<Ended> {
    let mut found = None;
    loop {
        let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) else {
            return found;
        };
        if pid.as_raw_nonzero().get() == program.as_raw() {
            found = ended(status).or(found);
        }
    }
}

/// Returns how a process has ended, if it has.
fn ended(status: WaitStatus) -> Option<Ended> {
    // CAST: an exit status is a byte.
    let exited = status.exit_status().map(|status| Ended::Exited(status as u8));
    exited.or(status.terminating_signal().map(Ended::Killed))
}

/// Waits until all processes that the program has left behind have ended, and kills those that do
/// not end in time.
pub fn end_the_rest() {
    let start = Instant::now();
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Err(Errno::CHILD) => return,
            Ok(None) => {}
            _ => continue,
        }
        if start.elapsed() > GRACE {
            children().into_iter().for_each(|child| {
                let _ended = kill(child, Signal::SIGKILL);
            });
        }
        std::thread::sleep(LOOK);
    }
}

/// Returns the children of this process, among which are all orphans of the program.
fn children() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let numbers = lists.flat_map(|list| {
        list.split_whitespace().filter_map(|number| number.parse().ok()).collect::<Vec<i32>>()
    });
    numbers.map(Pid::from_raw).collect()
}
