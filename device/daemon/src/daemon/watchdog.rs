//! Tells systemd that the daemon's threads make progress (`WatchdogSec=`, sd_watchdog_enabled(3)).
//!
//! A thread of its own pings the threads that all guests depend on, and sends `WATCHDOG=1` when all
//! of them have answered. Threads that serve a single VMM are excluded: a VMM can make its thread
//! wait, and must not end the daemon for the other guests.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use crate::worker::pulse::Pinged;

/// A thread that all guests depend on, and its name.
pub type Member = (String, Arc<dyn Pinged>);

/// The thread of the watchdog. It ends after this has been dropped.
#[derive(Debug)]
pub struct Watchdog {
    _stop: Sender<()>,
}

/// The state of the watchdog's thread.
struct Checks {
    members: Vec<Member>,
    /// Time after which systemd ends a daemon that sends nothing.
    interval: Duration,
    /// The time of the last pings.
    asked: Instant,
    /// True if the log already says which threads have not answered these pings.
    logged: bool,
}

impl Watchdog {
    /// Starts the thread. systemd ends the daemon if it receives no message for `interval`.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn start(interval: Duration, members: Vec<Member>) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let mut checks = Checks { members, interval, asked: Instant::now(), logged: false };
        let run = move || {
            checks.ask();
            while stopped.recv_timeout(interval / 4) == Err(RecvTimeoutError::Timeout) {
                checks.check();
            }
        };
        std::thread::Builder::new().name("watchdog".into()).spawn(run)?;
        Ok(Self { _stop: stop })
    }
}

impl Checks {
    fn ask(&mut self) {
        self.asked = Instant::now();
        for (_, member) in &self.members {
            member.pulse().ask();
            member.wake();
        }
    }

    /// Tells systemd that all threads make progress, if they do.
    fn check(&mut self) {
        let silent = self.members.iter().filter(|(_, member)| !member.pulse().is_answered());
        let silent: Vec<_> = silent.map(|(name, _)| name.as_str()).collect();
        if silent.is_empty() {
            if std::mem::take(&mut self.logged) {
                tracing::info!("all threads answer the watchdog again");
            }
            tell_systemd(&[NotifyState::Watchdog]);
            self.ask();
        } else if !self.logged && self.asked.elapsed() >= self.interval / 2 {
            tracing::error!(
                "these threads have not answered the watchdog for {:?}: {}; if they do not \
                 answer, systemd ends the daemon",
                self.asked.elapsed(),
                silent.join(", ")
            );
            self.logged = true;
        }
    }
}

/// Sends states to systemd, if systemd has started the daemon as a service of type notify.
pub fn tell_systemd(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the state of the daemon cannot be sent to systemd");
    }
}
