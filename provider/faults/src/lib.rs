// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Faults of the vrnic adapter, for tests in a guest: a rule is set for the guest's own device, and
//! ends with its scope. `vrnicfault.h` has the same for C, and `vrnicfault.py` for Python.
//! docs/faults.md has the rules. The process needs `CAP_SYS_ADMIN`, and the operator's permission
//! (`guest-faults=yes`).
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the kernel shows devices, and where debugfs is mounted.
const DEVICES: &str = "/sys/class/infiniband";
const DEBUG: &str = "/sys/kernel/debug";
/// Time between two looks at the hits of a rule.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A rule in force. It ends on drop.
#[derive(Debug)]
pub struct Fault {
    file: PathBuf,
    number: u32,
}

impl Fault {
    /// Adds a rule such as `fail-request status=rem-op-err nth=3` for a device such as `vrnic0`.
    ///
    /// # Errors
    /// With the adapter's reason, if it refuses the rule. `NotFound` if the device has no rules.
    pub fn arm(device: &str, rule: &str) -> io::Result<Self> {
        let file = file_of(device)?;
        let open = File::options().read(true).write(true).open(&file)?;
        // No other rule is added until the number of the new one is known.
        open.lock()?;
        let written = (&open).write_all(rule.as_bytes());
        let mut text = String::new();
        (&open).read_to_string(&mut text)?;
        if let Err(error) = written {
            let reason = text.lines().next().and_then(|line| line.strip_prefix("refused "));
            let reason = reason.filter(|_| error.kind() == ErrorKind::InvalidInput);
            return Err(reason.map_or(error, |it| io::Error::new(ErrorKind::InvalidInput, it)));
        }
        let number = text.lines().filter_map(number).max();
        let number = number.ok_or_else(|| io::Error::other("the new rule is not listed"))?;
        Ok(Self { file, number })
    }

    /// Returns how often the rule has hit.
    ///
    /// # Errors
    /// `NotFound` if the rule has ended, such as by a reset of the device.
    pub fn hits(&self) -> io::Result<u64> {
        let text = fs::read_to_string(&self.file)?;
        let line = text.lines().find(|line| number(line) == Some(self.number));
        let mut words = line.unwrap_or_default().split(' ').skip_while(|word| *word != "hit");
        let hits = words.nth(1).and_then(|hits| hits.parse().ok());
        hits.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "the rule has ended"))
    }

    /// Waits until the rule has hit this often.
    ///
    /// # Errors
    /// `TimedOut` if it has not within this time; see also [`Self::hits`].
    pub fn wait(&self, hits: u64, timeout: Duration) -> io::Result<()> {
        let end = Instant::now() + timeout;
        while self.hits()? < hits {
            if Instant::now() >= end {
                return Err(ErrorKind::TimedOut.into());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Removes the rule, as a drop does.
    ///
    /// # Errors
    /// If it has ended already.
    pub fn clear(self) -> io::Result<()> {
        let this = std::mem::ManuallyDrop::new(self);
        this.end()
    }

    fn end(&self) -> io::Result<()> {
        File::options()
            .write(true)
            .open(&self.file)?
            .write_all(format!("clear {}", self.number).as_bytes())
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        // A reset of the device has ended the rule as well.
        let _ended_before = self.end();
    }
}

/// Returns the number of the rule in a line.
fn number(line: &str) -> Option<u32> {
    line.strip_prefix("rule ")?.split(' ').next()?.parse().ok()
}

/// Returns the path of the file of rules of a device.
fn file_of(device: &str) -> io::Result<PathBuf> {
    let address = fs::canonicalize(Path::new(DEVICES).join(device).join("device"))?;
    let address = address.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Path::new(DEBUG).join(format!("vrnic-{address}")).join("faults"))
}
