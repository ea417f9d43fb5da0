//! Daemons and guests of any number, also a single guest.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::daemon::Daemon;
use crate::guest::Guest;
use crate::machine::accel::Accel;
use crate::machine::rundir::RunDir;
use crate::pair::{Booted, GUESTS_MAX, Options, boot};

/// The guests and their daemon. Everything ends when this is dropped.
#[derive(Debug)]
pub struct Fleet {
    booted: Booted,
}

impl Fleet {
    /// Starts the daemon, and boots the guests at the same time. With `controlled`, the daemon has
    /// a control socket.
    ///
    /// # Errors
    /// If a part does not come up.
    pub fn boot(mut options: Options, controlled: bool) -> Result<Self> {
        ensure!((1..=GUESTS_MAX).contains(&options.guests), "1 to {GUESTS_MAX} guests");
        options.controlled |= controlled;
        Ok(Self { booted: boot(&options, RunDir::new()?)? })
    }

    /// Returns all guests in order.
    pub fn guests(&self) -> impl Iterator<Item = &Guest> {
        self.booted.guests.iter()
    }

    /// Returns guest a.
    ///
    /// # Errors
    /// None, because there is at least one guest.
    pub fn first(&self) -> Result<&Guest> {
        self.booted.guests.first().context("there is no guest")
    }

    /// Returns what has ended, if a guest or a daemon has. Does not wait for a guest that is slow.
    #[must_use]
    pub fn ended(&self) -> Option<String> {
        if self.booted.daemons.iter().any(Daemon::ended) {
            return Some("the daemon has ended".to_owned());
        }
        let gone = self.guests().find(|guest| guest.ended())?;
        Some(format!("guest {} has ended", gone.setup().name))
    }

    /// Returns the names of the adapters of all guests.
    #[must_use]
    pub fn functions(&self) -> Vec<String> {
        let adapters = self.guests().flat_map(|guest| guest.setup().adapters());
        adapters.map(|adapter| adapter.name.clone()).collect()
    }

    /// Returns everything that helps to understand a failure: logs of the daemons and of all
    /// kernels.
    #[must_use]
    pub fn report(&self) -> String {
        let mut text = String::from("--- vrnicd\n");
        for daemon in &self.booted.daemons {
            text += &daemon.log(40);
        }
        for guest in self.guests() {
            text += &format!("\n--- guest {}\n{}", guest.setup().name, guest.report(40));
        }
        text + "\n"
    }

    /// Returns the command `vrnic` for the daemon, without arguments.
    ///
    /// # Errors
    /// If there is no daemon.
    pub fn vrnic(&self) -> Result<Command> {
        let daemon: &Daemon = self.booted.daemons.first().context("there is no daemon")?;
        Ok(daemon.vrnic())
    }

    /// Returns the folder with sockets and logs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.booted.dir.path()
    }

    /// Returns the accelerator of the guests.
    #[must_use]
    pub fn accel(&self) -> Accel {
        self.booted.accel
    }

    /// Returns the time that each step of the start took.
    #[must_use]
    pub fn steps(&self) -> &[(&'static str, Duration)] {
        &self.booted.steps
    }
}
