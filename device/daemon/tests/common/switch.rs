//! Daemons whose switches have uplinks and ports.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::wait;

use super::ethernet::plug;

/// A folder for sockets.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns settings in which '@' is replaced by this folder.
    pub(crate) fn settings(&self, text: &str) -> String {
        text.replace('@', &format!("{}/", self.0.path().display()))
    }

    /// Starts a daemon with this number of functions and these options.
    pub(crate) fn daemon(&self, functions: usize, options: &[(&str, &str)]) -> Daemon {
        self.start(Path::new(env!("CARGO_BIN_EXE_vrnicd")), functions, options)
    }

    /// Like [`Self::daemon`], with `program` as the daemon.
    pub(crate) fn start(
        &self,
        program: &Path,
        functions: usize,
        options: &[(&str, &str)],
    ) -> Daemon {
        let texts: Vec<_> = options
            .iter()
            .flat_map(|(option, text)| [(*option).to_owned(), self.settings(text)])
            .collect();
        let args: Vec<_> = texts.iter().map(String::as_str).collect();
        Daemon::start(program, functions, &args).expect("vrnicd starts")
    }

    pub(crate) fn plug(&self, name: &str) -> UnixStream {
        plug(&self.path(name))
    }
}

/// Returns the state of a port of a daemon with a monitor.
pub(crate) fn port(monitor: &Path, name: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
    let output = command.arg("--monitor").arg(monitor).args(["show", "port", "--json"]).output();
    let output = output.expect("vrnic runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ports: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let ports = ports.as_array().expect("ports");
    ports.iter().find(|port| port["name"] == name).expect("the port").clone()
}

/// Waits until a port has dropped at least this number of frames for a reason.
pub(crate) fn wait_for_drops(monitor: &Path, name: &str, reason: &str, least: u64) {
    wait::until(reason, || {
        (port(monitor, name)["dropped"][reason].as_u64()? >= least).then_some(())
    });
}
