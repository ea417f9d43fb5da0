//! Captures of the traffic of all adapters.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::fleet::Fleet;
use crate::process::Killed;

/// Time in which a capture must begin, and in which it must end.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two looks at a capture.
const POLL: Duration = Duration::from_millis(20);

/// Captures that run, one for each adapter.
#[derive(Debug)]
pub struct Captures(Vec<Killed>);

impl Captures {
    /// Starts them. The file of guest a's first adapter is `file`; those of the others have the
    /// adapter's name before the extension.
    ///
    /// # Errors
    /// If a file cannot be written, or the daemon refuses a capture.
    pub fn start(fleet: &Fleet, file: &Path) -> Result<Self> {
        let mut captures = Vec::new();
        for function in fleet.functions() {
            let path = named(file, &function);
            captures.push(capture(fleet, &function, &path)?);
        }
        Ok(Self(captures))
    }

    /// Ends them, and waits until their files are complete.
    pub fn stop(self) {
        for mut capture in self.0 {
            capture.stop(Signal::SIGTERM, TIMEOUT.as_secs());
        }
    }
}

/// Starts the capture of an adapter, and waits until it has begun.
fn capture(fleet: &Fleet, function: &str, path: &Path) -> Result<Killed> {
    let log = fleet.dir().join(format!("{function}.capture"));
    let said = fs::File::create(&log).context("cannot write the log of a capture")?;
    let mut command = fleet.vrnic()?;
    command.args(["pcap", "--function", function, "--write"]).arg(path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    let mut process = Killed::start(command).context("cannot run vrnic")?;
    let end = Instant::now() + TIMEOUT;
    loop {
        let text = fs::read_to_string(&log).unwrap_or_default();
        if text.contains("capturing") {
            return Ok(process);
        }
        let failure = || format!("cannot capture into {}: {}", path.display(), text.trim());
        ensure!(process.alive() && Instant::now() < end, failure());
        thread::sleep(POLL);
    }
}

/// Returns the path of an adapter's file.
fn named(file: &Path, function: &str) -> PathBuf {
    if function == "a" {
        return file.to_owned();
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let name = match file.extension() {
        Some(extension) => format!("{stem}.{function}.{}", extension.to_string_lossy()),
        None => format!("{stem}.{function}"),
    };
    file.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_adapter_has_its_file() {
        let name = |function| named(Path::new("to/all.pcapng"), function);
        assert_eq!(name("a"), Path::new("to/all.pcapng"));
        assert_eq!(name("b1"), Path::new("to/all.b1.pcapng"));
        assert_eq!(named(Path::new("all"), "b"), Path::new("all.b"));
    }
}
