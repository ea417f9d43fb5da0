//! A guest: a QEMU with the stock kernel, its console, its agent.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::agent::Agent;
use crate::console::{self, tail};
use crate::machine::accel::Accel;
use crate::machine::paths::Paths;
use crate::machine::process::Killed;
use crate::machine::progress::step;
#[cfg(doc)]
use crate::memory::PLUGGED_MEMORY;
use crate::qmp;
use crate::restore::{self, Unfit};
use crate::roots::root::Root;
use crate::setup::Setup;

/// Maximum number of starts of a guest whose kernel panics while it boots under TCG. On a busy
/// host, one of several processors may execute the translation of code that another processor has
/// patched since (a static key of the scheduler), and trap on a breakpoint that does not exist any
/// more. This was seen once in some hundred starts.
const STARTS: u32 = 3;

/// A running guest. It is killed on drop.
#[derive(Debug)]
pub struct Guest {
    setup: Setup,
    qemu: Killed,
    agent: Agent,
}

impl Guest {
    /// Boots a guest and waits for its agent.
    ///
    /// # Errors
    /// If QEMU ends early or the guest does not come up. The text contains the last lines of its
    /// console.
    pub fn boot(paths: &Paths, accel: Accel, setup: Setup) -> anyhow::Result<Self> {
        let mut starts = 1;
        loop {
            let qemu = Self::start(paths, accel, &setup)?;
            let booted = Self::attach(setup.clone(), qemu);
            match console::panic(&setup.console_log()) {
                Some(panic) if booted.is_err() && accel == Accel::Tcg && starts < STARTS => {
                    step(format!("guest {} panicked and is started again:\n{panic}", setup.name));
                    starts += 1;
                }
                _ => return booted,
            }
        }
    }

    /// Starts QEMU.
    fn start(paths: &Paths, accel: Accel, setup: &Setup) -> anyhow::Result<Killed> {
        for stale in [setup.agent_socket(), setup.qmp_socket(), setup.shell_socket()] {
            let _absent = fs::remove_file(stale);
        }
        if let Some(mib) = setup.disk {
            for disk in ["disk", "spare"] {
                fs::File::create(setup.file(disk))?.set_len(u64::from(mib) << 20)?;
            }
        }
        let errors = fs::File::create(setup.dir.join(format!("{}.qemu.log", setup.name)))?;
        let mut command = paths.qemu_command();
        command
            .args(accel.arguments())
            .args(if setup.spare_bars == 0 { &[] } else { accel.zen() })
            .args(setup.arguments())
            .args(setup.root.arguments(paths, &setup.boot_line()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors);
        Killed::start(command).context("cannot start QEMU")
    }

    fn attach(setup: Setup, mut qemu: Killed) -> anyhow::Result<Self> {
        let timeout = setup.root.timeout();
        let end = Instant::now() + timeout;
        let port = loop {
            match UnixStream::connect(setup.agent_socket()) {
                Ok(port) => break port,
                Err(_) if qemu.alive() && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(_) => {
                    bail!(
                        "QEMU of guest {} ended when it started:\n{}",
                        setup.name,
                        setup.qemu_log()
                    )
                }
            }
        };
        let greeted = match &setup.root {
            Root::Snapshot { file, overlay } => resume(&setup, port, file, overlay),
            _ => Agent::connect(&setup.name, port, timeout),
        };
        let agent = greeted.with_context(|| {
            let log = setup.console_log();
            let last = console::panic(&log).unwrap_or_else(|| tail(&log, 30));
            format!("QEMU said: {}\nconsole:\n{last}", setup.qemu_log())
        })?;
        let adapters: Vec<_> = setup.adapters().collect();
        agent.check(&setup.root.addressing(&adapters), Duration::from_secs(60))?;
        Ok(Self { setup, qemu, agent })
    }

    /// Returns the agent.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Returns the guest's parameters.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Returns the IPv4 address of its first adapter, without prefix length.
    #[must_use]
    pub fn ip(&self) -> &str {
        self.setup.adapter.ip()
    }

    /// Returns the process number of its QEMU.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.qemu.pid()
    }

    /// Runs a command of its QEMU, which is JSON text.
    ///
    /// # Errors
    /// If QEMU refuses it.
    pub fn qmp(&self, command: &str) -> anyhow::Result<()> {
        qmp::run(&self.setup.qmp_socket(), command)
    }

    /// Plugs in [`PLUGGED_MEMORY`] MiB of memory. This is possible if the guest's adapter is
    /// plugged in later, too.
    ///
    /// # Errors
    /// If QEMU refuses it.
    pub fn plug_memory(&self) -> anyhow::Result<()> {
        self.setup.more_memory.plug().iter().try_for_each(|command| self.qmp(command))
    }

    /// Asks the guest to return this memory.
    ///
    /// # Errors
    /// If QEMU refuses it.
    pub fn unplug_memory(&self) -> anyhow::Result<()> {
        self.qmp(&self.setup.more_memory.unplug())
    }

    /// Runs a shell command that must succeed; see [`Agent::check`].
    ///
    /// # Errors
    /// Adds the kernel's last messages to the text.
    pub fn check(&self, script: &str, timeout: Duration) -> anyhow::Result<String> {
        self.agent.check(script, timeout).with_context(|| {
            format!(
                "the kernel log of guest {} ends with\n{}",
                self.setup.name,
                self.kernel_log(15)
            )
        })
    }

    /// Returns the last `lines` of the kernel's log, or of the console if the guest does not
    /// answer.
    #[must_use]
    pub fn kernel_log(&self, lines: usize) -> String {
        match self.agent.run(&format!("dmesg | tail -n {lines}"), Duration::from_secs(10)) {
            Ok(output) => output.stdout,
            Err(_) => tail(&self.setup.console_log(), lines),
        }
    }

    /// Returns whether its agent answers.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.agent.run("true", Duration::from_secs(10)).is_ok()
    }

    /// Returns whether its QEMU has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.qemu.ended()
    }

    /// Returns the end of its console's log: the first fault of the kernel, or the last `lines`.
    #[must_use]
    pub fn console_end(&self, lines: usize) -> String {
        let log = self.setup.console_log();
        console::panic(&log).unwrap_or_else(|| tail(&log, lines))
    }

    /// Waits until a program listens (state 0A) on a TCP port. Connections of an earlier program
    /// may still exist there.
    ///
    /// # Errors
    /// If no program does within half a minute.
    pub fn listens_on(&self, port: u16) -> anyhow::Result<()> {
        let script = format!(
            "for n in $(seq 600); do grep -q ':{port:04X} [0-9A-F:]* 0A ' /proc/net/tcp /proc/net/tcp6 && exit 0; \
             sleep 0.05; done; echo nothing listens on port {port}; exit 1"
        );
        self.check(&script, Duration::from_secs(120))?;
        Ok(())
    }

    /// Returns the last `lines` of the kernel's log, and QEMU's messages.
    #[must_use]
    pub fn report(&self, lines: usize) -> String {
        format!("{}\nQEMU said: {}", self.kernel_log(lines), self.setup.qemu_log())
    }

    /// Returns the lines of the kernel's log that report faults.
    #[must_use]
    pub fn kernel_faults(&self) -> Vec<String> {
        const FAULTS: [&str; 10] = [
            "WARNING:",
            "BUG:",
            "Oops",
            "Kernel panic",
            "Call Trace",
            "general protection",
            "hung task",
            "leaked",
            "UBSAN",
            "blocked for more than",
        ];
        let log = self.kernel_log(5000);
        // The guest's console has lines of programs, too, such as warnings of modprobe.
        log.lines()
            .filter(|line| line.starts_with('['))
            .filter(|line| FAULTS.iter().any(|fault| line.contains(fault)))
            .map(str::to_owned)
            .collect()
    }

    /// Plugs the adapter into the running guest, if it is one that is plugged in later.
    ///
    /// # Errors
    /// If QEMU refuses it.
    pub fn plug(&self) -> anyhow::Result<()> {
        let socket = self.setup.adapter.socket.display();
        let device = format!(
            r#""driver": "vfio-user-pci", "bus": "plug", "socket": {{"type": "unix", "path": "{socket}"}}"#
        );
        let command = format!(r#"{{"execute": "device_add", "arguments": {{{device}}}}}"#);
        self.qmp(&command)
    }

    /// Plugs in a second disk of the same size, with a controller of its own, whose serial number
    /// is "spare", below the switch of [`Setup::disk`].
    ///
    /// # Errors
    /// If QEMU refuses it.
    pub fn plug_disk(&self) -> anyhow::Result<()> {
        let device = r#""driver": "nvme", "id": "spare", "drive": "spare", "serial": "spare", "bus": "third""#;
        self.qmp(&format!(r#"{{"execute": "device_add", "arguments": {{{device}}}}}"#))
    }

    /// Connects to the agent again, which then starts again: after the machine has slept, its port
    /// does not serve the earlier connection.
    ///
    /// # Errors
    /// If the agent does not answer within `timeout`.
    pub fn reattach(&mut self, timeout: Duration) -> anyhow::Result<()> {
        self.agent.close();
        let port = UnixStream::connect(self.setup.agent_socket())?;
        self.agent = Agent::connect(&self.setup.name, port, timeout)?;
        Ok(())
    }

    /// Runs a command after which the machine reboots, and waits until its agent has started again.
    ///
    /// # Errors
    /// If the command fails, or the agent does not come back.
    pub fn restarts(&self, script: &str) -> anyhow::Result<()> {
        let before = self.agent.greetings();
        self.agent.check(script, Duration::from_secs(60))?;
        self.agent.greets_after(before, self.setup.root.timeout())
    }

    /// Kills it, as in a power cut.
    pub fn kill(&mut self) {
        self.qemu.kill();
    }

    /// Returns the path of the socket of its shell (second serial line).
    #[must_use]
    pub fn shell_socket(&self) -> PathBuf {
        self.setup.shell_socket()
    }
}

/// Lets a guest go on from a snapshot. Returns its agent.
fn resume(setup: &Setup, port: UnixStream, file: &Path, overlay: &Path) -> anyhow::Result<Agent> {
    let mut qmp = restore::load(setup, file).context(Unfit)?;
    let agent = Agent::resume(&setup.name, port, setup.root.timeout()).context(Unfit)?;
    restore::complete(setup, &mut qmp, &agent, overlay)?;
    Ok(agent)
}
