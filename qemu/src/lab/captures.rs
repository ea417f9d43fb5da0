//! Captures of the traffic of all adapters.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::fleet::Fleet;
use crate::lab::artifacts::make_folder_of;
use crate::machine::process::Killed;

/// Time in which a capture must begin, and in which it must end.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How the last line ends that the command says about a capture that has all packets.
const COMPLETE: &str = "; 0 records were dropped";
/// Time between two looks at a capture.
const POLL: Duration = Duration::from_millis(20);

/// Captures that run, one for each adapter.
#[derive(Debug)]
pub struct Captures(Vec<Capture>);

/// A capture of an adapter.
#[derive(Debug)]
struct Capture {
    process: Killed,
    /// The file with the packets.
    path: PathBuf,
    /// The file with the process's messages.
    log: PathBuf,
}

impl Captures {
    /// Starts them. The file of guest a's first adapter is `file`, whose folder is made if it is
    /// missing; those of the others have the adapter's name before the extension.
    ///
    /// # Errors
    /// If a file cannot be written, or the daemon refuses a capture.
    pub fn start(fleet: &Fleet, file: &Path) -> Result<Self> {
        make_folder_of(file)?;
        let mut captures = Vec::new();
        for function in fleet.functions() {
            let path = named(file, &function);
            captures.push(capture(fleet, &function, path)?);
        }
        Ok(Self(captures))
    }

    /// Ends them, and waits until their files are complete.
    ///
    /// # Errors
    /// If a file lacks something, because its capture has ended too early or was too slow.
    pub fn stop(self) -> Result<()> {
        let stopped: Vec<_> = self.0.into_iter().map(Capture::stop).collect();
        stopped.into_iter().collect()
    }
}

impl Capture {
    /// Ends it. Returns an error if its file is not complete.
    fn stop(mut self) -> Result<()> {
        let early = self.process.ended();
        self.process.stop(Signal::SIGTERM, TIMEOUT.as_secs());
        let passed = self.process.child().wait().is_ok_and(|status| status.success());
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let last = said.lines().last().unwrap_or_default();
        ensure!(
            !early && passed && last.ends_with(COMPLETE),
            "the capture {} is not complete: {last}",
            self.path.display()
        );
        Ok(())
    }
}

/// Starts the capture of an adapter, and waits until it has begun.
fn capture(fleet: &Fleet, function: &str, path: PathBuf) -> Result<Capture> {
    let log = fleet.dir().join(format!("{function}.capture"));
    let said = fs::File::create(&log).context("cannot write the log of a capture")?;
    let mut command = fleet.vrnic()?;
    command.args(["pcap", "--function", function, "--write"]).arg(&path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    let mut process = Killed::start(command).context("cannot run vrnic")?;
    let end = Instant::now() + TIMEOUT;
    loop {
        let text = fs::read_to_string(&log).unwrap_or_default();
        if text.contains("capturing") {
            return Ok(Capture { process, path, log });
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

    /// Stops a capture by a process that says this.
    fn stopped(script: &str, says: &str) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let (path, log) = (folder.path().join("all.pcapng"), folder.path().join("log"));
        fs::write(&log, says)?;
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", script]);
        let process = Killed::start(command)?;
        // Until it heeds the signal.
        thread::sleep(Duration::from_millis(200));
        Capture { process, path, log }.stop()
    }

    #[test]
    fn a_file_that_lacks_packets_is_an_error() {
        const HEEDS: &str = "trap 'exit 0' TERM; while :; do sleep 0.02; done";
        let all = "capturing; Ctrl-C ends it\n7 frames; 0 records were dropped\n";
        let complaint = |script: &str, says: &str| {
            stopped(script, says).map_or_else(|error| error.to_string(), |()| String::new())
        };
        assert_eq!(complaint(HEEDS, all), "");
        let some = complaint(HEEDS, "capturing\n7 frames; 10 records were dropped\n");
        assert!(some.ends_with("is not complete: 7 frames; 10 records were dropped"), "{some}");
        let gone = complaint(HEEDS, "capturing\n7 frames; the daemon has ended\n");
        assert!(gone.ends_with("the daemon has ended"), "{gone}");
        assert!(!complaint("exit 0", all).is_empty(), "it ended early");
        assert!(!complaint(&HEEDS.replace("exit 0", "exit 1"), all).is_empty(), "it failed");
    }

    #[test]
    fn each_adapter_has_its_file() {
        let name = |function| named(Path::new("to/all.pcapng"), function);
        assert_eq!(name("a"), Path::new("to/all.pcapng"));
        assert_eq!(name("b1"), Path::new("to/all.b1.pcapng"));
        assert_eq!(named(Path::new("all"), "b"), Path::new("all.b"));
    }
}
