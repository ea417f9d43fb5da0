//! A running `vrnicd`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::signal::Signal;

use crate::adapter::{Adapter, Transport};
use crate::console::tail;
use crate::machine::paths::Paths;
use crate::machine::process::Killed;

/// A daemon with a function for each adapter of the guests. It is ended on drop.
#[derive(Debug)]
pub struct Daemon {
    process: Killed,
    /// Names of its functions.
    functions: Vec<String>,
    log: PathBuf,
    monitor: PathBuf,
    /// The control socket, if the daemon has one.
    control: Option<PathBuf>,
    /// The program `vrnic`.
    vrnic: PathBuf,
}

/// Parameters of a daemon.
#[derive(Debug)]
pub struct Launch {
    /// Folder for its own files.
    pub dir: PathBuf,
    /// The adapters that are its functions.
    pub adapters: Vec<Adapter>,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Name of the network namespace in which it runs, if that is not the namespace of this
    /// process.
    pub namespace: Option<String>,
    /// True if it has a control socket.
    pub controlled: bool,
}

impl Daemon {
    /// Starts a daemon and waits until it serves.
    ///
    /// # Errors
    /// If it ends, or does not serve within seconds. The text contains the end of its log.
    pub fn start(paths: &Paths, launch: Launch) -> anyhow::Result<Self> {
        let Launch { dir, adapters, arguments, namespace, controlled } = launch;
        paths.need(&paths.vrnicd(), "cargo build --release")?;
        let log = dir.join("vrnicd.log");
        let out = File::options().create(true).append(true).open(&log)?;
        let mut command = match namespace {
            // The process of `ip` becomes the daemon.
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &namespace]).arg(paths.vrnicd());
                command
            }
            None => Command::new(paths.vrnicd()),
        };
        for Adapter { name, mac, socket, net, personality, guest_faults, .. } in &adapters {
            let (socket, net) = (socket.display(), net.display());
            let mut function = format!("name={name},mac={mac},socket={socket},net={net}");
            // Daemons of former versions, which are measured, do not have these settings.
            if *personality != Transport::Roce {
                function += &format!(",personality={}", personality.name());
            }
            if *guest_faults {
                function += ",guest-faults=yes";
            }
            command.arg("--function").arg(function);
        }
        command.args(arguments);
        let control = controlled.then(|| dir.join("control"));
        if let Some(control) = &control {
            command.arg("--control").arg(control);
        }
        let extra = std::env::var("VRNICD_ARGS").unwrap_or_default();
        command.args(extra.split_whitespace());
        let monitor = dir.join("monitor");
        if !extra.contains("--monitor") {
            command.arg("--monitor").arg(&monitor);
        }
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let process = Killed::start(command).context("cannot start vrnicd")?;
        let functions = adapters.iter().map(|adapter| adapter.name.clone()).collect();
        let vrnic = paths.bin.join("vrnic");
        let mut daemon = Self { process, functions, log, monitor, control, vrnic };
        daemon.wait_for(&adapters)?;
        Ok(daemon)
    }

    fn wait_for(&mut self, adapters: &[Adapter]) -> anyhow::Result<()> {
        let end = Instant::now() + Duration::from_secs(30);
        while !adapters.iter().all(|adapter| adapter.socket.exists()) {
            let waiting = self.process.alive() && Instant::now() < end;
            ensure!(waiting, "vrnicd did not become ready:\n{}", self.log(20));
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Returns whether it has a function with this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.functions.iter().any(|function| function == name)
    }

    /// Returns the last lines of its log.
    #[must_use]
    pub fn log(&self, lines: usize) -> String {
        tail(&self.log, lines)
    }

    /// Returns its monitor socket, unless the user has named another one.
    #[must_use]
    pub fn monitor(&self) -> &Path {
        &self.monitor
    }

    /// Returns the command `vrnic` for this daemon, without arguments.
    #[must_use]
    pub fn vrnic(&self) -> Command {
        let mut command = Command::new(&self.vrnic);
        command.arg("--monitor").arg(&self.monitor);
        if let Some(control) = &self.control {
            command.arg("--control").arg(control);
        }
        command
    }

    /// Returns the output of `vrnic` with these arguments.
    ///
    /// # Errors
    /// If it fails, with its complaint.
    pub fn ask(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.vrnic().args(arguments).output().context("cannot run vrnic")?;
        ensure!(output.status.success(), "vrnic: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Returns whether it runs.
    pub fn alive(&mut self) -> bool {
        self.process.alive()
    }

    /// Returns whether it has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.process.ended()
    }

    /// Returns its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Stops the daemon, as a debugger or a host without memory does.
    ///
    /// # Errors
    /// If it does not run.
    pub fn pause(&mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::SIGSTOP).context("cannot pause vrnicd")
    }

    /// Continues the daemon after [`Self::pause`].
    ///
    /// # Errors
    /// If it does not run.
    pub fn resume(&mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::SIGCONT).context("cannot resume vrnicd")
    }

    /// Ends it as systemd does.
    pub fn end(&mut self) {
        self.process.stop(Signal::SIGTERM, 10);
    }

    /// Kills it, as in a crash.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}
