//! A daemon process in a temporary folder.

use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use vrnic_abi::regs::Status;

use crate::memory::Ram;
use crate::vmm::relay::Relay;
use crate::vmm::vfio::Guest;
use crate::wait;

/// A running daemon; it is killed on drop.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    folder: TempDir,
}

/// Returns the MAC of function `index`. The scheme has room for thousands of functions.
#[must_use]
pub fn mac(index: usize) -> [u8; 6] {
    let [high, low] = u16::try_from(index + 10).unwrap_or(u16::MAX).to_be_bytes();
    [0x52, 0x54, 0, 0, high, low]
}

impl Daemon {
    /// Starts `program` with functions `f0`, `f1`, … and further arguments.
    pub fn start(program: &Path, functions: usize, args: &[&str]) -> anyhow::Result<Self> {
        Self::start_range(program, 0..functions, args)
    }

    /// Starts `program` with further arguments, and with the functions whose numbers are in this
    /// range, so that several daemons on one Ethernet have different functions.
    ///
    /// # Errors
    /// If the program does not exist.
    pub fn start_range(
        program: &Path,
        functions: Range<usize>,
        args: &[&str],
    ) -> anyhow::Result<Self> {
        Self::start_of(program, functions, "roce", args)
    }

    /// Starts `program` as [`Self::start_range`] does, with functions of this personality.
    ///
    /// # Errors
    /// If the program does not exist.
    pub fn start_of(
        program: &Path,
        functions: Range<usize>,
        personality: &str,
        args: &[&str],
    ) -> anyhow::Result<Self> {
        let count = functions.len();
        let folder = TempDir::new()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let mut command = Command::new(program);
        command.stderr(log).args(["--log", "info,vrnic_device=debug,vrnic_adapter=debug"]);
        for index in functions {
            let at = folder.path().display();
            command.arg("--function").arg(format!(
                "name=f{index},mac={},socket={at}/{index}.sock,net={at}/{index}.net,\
                 personality={personality}",
                mac(index).map(|byte| format!("{byte:02x}")).join(":")
            ));
        }
        let child = command.args(args).spawn().context("start of vrnicd")?;
        let mut this = Self { child, folder };
        wait::until("sockets of vrnicd", || {
            this.check();
            // The last message that is logged at the start. The arguments may add functions.
            (this.log().matches("is ready for a VMM").count() >= count).then_some(())
        });
        Ok(this)
    }

    /// Returns the vfio-user socket of function `index`.
    #[must_use]
    pub fn socket(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("{index}.sock"))
    }

    /// Returns the Ethernet socket of function `index`.
    #[must_use]
    pub fn net(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("{index}.net"))
    }

    /// Connects to the Ethernet socket of function `index`.
    #[must_use]
    pub fn plug(&self, index: usize) -> UnixStream {
        let stream = UnixStream::connect(self.net(index)).expect("Ethernet socket");
        stream.set_read_timeout(Some(wait::LIMIT)).expect("a limit");
        stream
    }

    /// Connects to function `index` and gives it guest memory.
    #[must_use]
    pub fn guest(&self, index: usize) -> Guest {
        Guest::connect(&self.socket(index), mac(index)).expect("a VMM")
    }

    /// Connects to function `index`, connects a netdev and enables the adapter.
    #[must_use]
    pub fn ready_guest(&self, index: usize) -> Guest {
        self.prepare(index, self.guest(index))
    }

    /// Connects as a VMM, with the caller's memory.
    #[must_use]
    pub fn ready_guest_with(&self, index: usize, ram: Arc<Ram>) -> Guest {
        let guest = Guest::connect_with(&self.socket(index), mac(index), ram);
        self.prepare(index, guest.expect("a VMM"))
    }

    /// Connects to function `index` through a relay, connects a netdev and enables the adapter.
    #[must_use]
    pub fn ready_guest_behind(&self, index: usize, relay: &Relay) -> Guest {
        self.prepare(index, Guest::connect(relay.socket(), mac(index)).expect("a VMM"))
    }

    fn prepare(&self, index: usize, guest: Guest) -> Guest {
        *guest.cable.lock() = Some(self.plug(index));
        // The link comes up before the adapter is enabled, so that the first events are not events
        // of the port.
        guest.wait_status("link", |status| status.contains(Status::LINK_UP));
        guest.bring_up();
        guest
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what the daemon has logged.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("the log")
    }

    /// Waits until the log has `text`.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str) {
        wait::until(text, || self.log().contains(text).then_some(()));
    }

    /// Checks that the daemon still runs and has not panicked.
    #[track_caller]
    pub fn check(&mut self) {
        assert_eq!(self.child.try_wait().expect("a child"), None, "vrnicd has ended");
        assert!(!self.log().contains("panicked"), "vrnicd panicked");
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a signal");
    }

    /// Waits for the end of the daemon.
    pub fn end(&mut self) -> ExitStatus {
        wait::until("end of vrnicd", || self.child.try_wait().expect("a child"))
    }

    /// Sends a signal to the daemon and waits for its end.
    pub fn stop(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.end()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let gone = matches!(self.child.try_wait(), Ok(Some(_)));
        if !gone && self.child.kill().is_ok() {
            let _status = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("log of vrnicd:\n{}", self.log());
        }
    }
}
