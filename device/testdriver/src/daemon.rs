//! A daemon process in a temporary folder.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use vrnic_abi::regs::Status;

use crate::guest::Guest;
use crate::ram::Ram;
use crate::wait;

/// A running daemon; it is killed on drop.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    folder: TempDir,
}

/// The last byte of the MAC of function `index`.
fn mac_byte(index: usize) -> u8 {
    10 + u8::try_from(index).unwrap_or(0)
}

/// The MAC of function `index`.
#[must_use]
pub fn mac(index: usize) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, mac_byte(index)]
}

impl Daemon {
    /// Starts `program` with functions `f0`, `f1`, … and further arguments.
    ///
    /// # Errors
    /// When it does not start or does not listen.
    pub fn start(program: &Path, functions: usize, args: &[&str]) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let mut command = Command::new(program);
        command.stderr(log).args(["--log", "info,vrnic_device=debug,vrnic_adapter=debug"]);
        for index in 0..functions {
            let at = folder.path().display();
            command.arg("--function").arg(format!(
                "name=f{index},mac=52:54:00:00:00:{:02x},socket={at}/{index}.sock,net={at}/{index}.net",
                mac_byte(index)
            ));
        }
        let child = command.args(args).spawn().context("start of vrnicd")?;
        let mut this = Self { child, folder };
        wait::until("sockets of vrnicd", || {
            if let Some(status) = this.child.try_wait()? {
                bail!("vrnicd ended with {status}: {}", this.log()?);
            }
            // The last thing that a start logs.
            let serving = this.log()?.matches("is ready for a VMM").count();
            Ok((serving == functions).then_some(()))
        })?;
        Ok(this)
    }

    /// The vfio-user socket of function `index`.
    #[must_use]
    pub fn socket(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("{index}.sock"))
    }

    /// The Ethernet socket of function `index`.
    #[must_use]
    pub fn net(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("{index}.net"))
    }

    /// Connects to the Ethernet socket of function `index`.
    ///
    /// # Errors
    /// Returns the error of `connect`.
    pub fn plug(&self, index: usize) -> anyhow::Result<UnixStream> {
        let stream = UnixStream::connect(self.net(index)).context("Ethernet socket")?;
        stream.set_read_timeout(Some(wait::LIMIT))?;
        Ok(stream)
    }

    /// Connects to function `index` and gives it guest memory.
    ///
    /// # Errors
    /// See [`Guest::connect`].
    pub fn guest(&self, index: usize) -> anyhow::Result<Guest> {
        Guest::connect(&self.socket(index), mac(index))
    }

    /// Connects to function `index`, plugs a netdev in and enables the adapter.
    ///
    /// # Errors
    /// When the adapter does not come up.
    pub fn ready_guest(&self, index: usize) -> anyhow::Result<Guest> {
        self.prepare(index, self.guest(index)?)
    }

    /// Connects as a VMM with memory of the caller's.
    ///
    /// # Errors
    /// When the adapter does not come up.
    pub fn ready_guest_with(&self, index: usize, ram: Arc<Ram>) -> anyhow::Result<Guest> {
        self.prepare(index, Guest::connect_with(&self.socket(index), mac(index), ram)?)
    }

    fn prepare(&self, index: usize, mut guest: Guest) -> anyhow::Result<Guest> {
        guest.cable = Some(self.plug(index)?);
        // First the link, then the adapter: so that no event of the port is among the first.
        guest.wait_status("link", |status| status.contains(Status::LINK_UP))?;
        guest.bring_up()?;
        Ok(guest)
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what the daemon has logged.
    ///
    /// # Errors
    /// Returns the file system's error.
    pub fn log(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        std::fs::File::open(self.folder.path().join("log"))?.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Waits until the log has `text`.
    ///
    /// # Errors
    /// When it does not come; the error shows the log.
    pub fn wait_for_log(&self, text: &str) -> anyhow::Result<()> {
        let found = wait::until(text, || Ok(self.log()?.contains(text).then_some(())));
        found.with_context(|| self.log().unwrap_or_default())
    }

    /// Returns whether it still runs and has not panicked anywhere.
    ///
    /// # Errors
    /// When it has.
    pub fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("vrnicd ended with {status}: {}", self.log()?);
        }
        ensure!(!self.log()?.contains("panicked"), "vrnicd panicked: {}", self.log()?);
        Ok(())
    }

    /// Asks it to end and waits.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self, signal: Signal) -> anyhow::Result<ExitStatus> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("pid")?;
        kill_process(pid, signal)?;
        wait::until("end of vrnicd", || Ok(self.child.try_wait()?))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let gone = matches!(self.child.try_wait(), Ok(Some(_)));
        if !gone && self.child.kill().is_ok() {
            let _status = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("log of vrnicd:\n{}", self.log().unwrap_or_default());
        }
    }
}
