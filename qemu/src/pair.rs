//! A daemon and two guests, ready for RDMA.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::accel::Accel;
use crate::adapter::{Adapter, guest_name};
use crate::daemon::Daemon;
use crate::guest::{Guest, Setup};
use crate::overlay::write_initramfs;
use crate::paths::Paths;
use crate::rundir::RunDir;

const GUESTS: u8 = 2;
/// For a command that only configures something, on a loaded machine.
const SHORT: Duration = Duration::from_secs(60);

/// Settings of a pair.
#[derive(Clone, Debug)]
pub struct Options {
    /// Virtual processors of each guest.
    pub cpus: u32,
    /// Memory of each guest in MiB.
    pub memory: u32,
    /// Adapters of each guest, at least 1.
    pub adapters: u8,
    /// True if each guest has a second network card with its adapter's MAC, and without a cable.
    pub twins: bool,
    /// True if each guest has a daemon of its own. A trunk joins the two, so all that the guests
    /// send each other are packets.
    pub apart: bool,
    /// True if the adapters of both guests are plugged in later, by [`Guest::plug`].
    pub plugged: bool,
    /// True if to load vrnic.ko and wait for the RDMA devices.
    pub module: bool,
    /// More files for the guests: path and content.
    pub files: Vec<(String, Vec<u8>)>,
    /// More arguments for the daemon.
    pub daemon: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cpus: 1,
            memory: 1536,
            adapters: 1,
            twins: false,
            apart: false,
            plugged: false,
            module: true,
            files: Vec::new(),
            daemon: Vec::new(),
        }
    }
}

/// A daemon and two guests. Everything ends when this is dropped.
#[derive(Debug)]
pub struct Pair {
    /// Guest a, usually the client.
    pub a: Guest,
    /// Guest b, usually the server.
    pub b: Guest,
    /// The daemon; of guest a alone, if each has one.
    pub daemon: Daemon,
    /// The daemon of guest b, if each has one.
    pub other: Option<Daemon>,
    paths: Paths,
    accel: Accel,
    options: Options,
    dir: RunDir,
}

impl Pair {
    /// Starts the daemon and boots both guests side by side.
    ///
    /// # Errors
    /// When any part does not come up.
    pub fn boot(options: Options) -> anyhow::Result<Self> {
        let paths = Paths::from_env()?;
        let accel = Accel::choose(&paths)?;
        let dir = RunDir::new()?;
        let initramfs = dir.path().join("initramfs");
        write_initramfs(&paths, &options.files, &initramfs)?;
        let (daemon, other) = daemons(&paths, dir.path(), &options)?;
        let boot = |guest: u8| {
            let setup = setup(dir.path().into(), guest, &options);
            let guest = Guest::boot(&paths, accel, setup)?;
            if options.module {
                load_module(&guest)?;
            }
            anyhow::Ok(guest)
        };
        let (a, b) = std::thread::scope(|scope| {
            let a = scope.spawn(|| boot(0));
            let b = boot(1);
            (a.join(), b)
        });
        let Ok(a) = a else { bail!("the thread that boots guest a panicked") };
        let told = || format!("the log of vrnicd ends with\n{}", daemon.log(20));
        let (a, b) = (a.with_context(told)?, b.with_context(told)?);
        Ok(Self { a, b, daemon, other, paths, accel, options, dir })
    }

    /// Kills guest b and boots it anew, against the same daemon.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn reboot_b(&mut self) -> anyhow::Result<()> {
        self.b.kill();
        let setup = setup(self.dir.path().into(), 1, &self.options);
        self.b = Guest::boot(&self.paths, self.accel, setup)?;
        if self.options.module {
            load_module(&self.b)?;
        }
        Ok(())
    }

    /// Everything that helps to understand a failure: logs of the daemon and of both kernels.
    #[must_use]
    pub fn report(&self) -> String {
        format!(
            "--- vrnicd\n{}{}\n--- guest a\n{}\n--- guest b\n{}\n",
            self.daemon.log(40),
            self.other.as_ref().map_or(String::new(), |daemon| daemon.log(40)),
            self.a.report(40),
            self.b.report(40)
        )
    }

    /// Returns the daemon's view of an adapter: `vrnic show function` as JSON.
    ///
    /// # Errors
    /// When it says nothing.
    pub fn function(&self, name: &str) -> anyhow::Result<String> {
        self.monitor(&["show", "function", "--json", "--function", name])
    }

    /// Returns the output of `vrnic` with these arguments.
    ///
    /// # Errors
    /// When it fails, with its complaint.
    pub fn monitor(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(self.paths.bin.join("vrnic"))
            .arg("--monitor")
            .arg(self.daemon.monitor())
            .args(arguments)
            .output()
            .context("cannot run vrnic")?;
        ensure!(output.status.success(), "vrnic: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The folder with sockets and logs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The accelerator of the guests.
    #[must_use]
    pub fn accel(&self) -> Accel {
        self.accel
    }
}

/// Returns the daemon's functions: the adapters of all guests, the first ones first.
/// Starts the daemon of both guests, or one for each.
fn daemons(
    paths: &Paths,
    dir: &Path,
    options: &Options,
) -> anyhow::Result<(Daemon, Option<Daemon>)> {
    if !options.apart {
        let functions = functions(dir, 0..GUESTS, options);
        return Ok((Daemon::start(paths, dir, &functions, &options.daemon)?, None));
    }
    let start = |guest: u8, folder: &Path, end: &str| {
        let trunk = format!("name=trunk,{end}={}", dir.join("trunk").display());
        let mut arguments = options.daemon.clone();
        arguments.extend(["--uplink".to_owned(), trunk]);
        Daemon::start(paths, folder, &functions(dir, guest..guest + 1, options), &arguments)
    };
    let folder = dir.join("other");
    std::fs::create_dir(&folder).context("cannot make a folder for the second daemon")?;
    let daemon = start(0, dir, "listen")?;
    Ok((daemon, Some(start(1, &folder, "connect")?)))
}

/// The adapters of these guests.
fn functions(dir: &Path, guests: Range<u8>, options: &Options) -> Vec<Adapter> {
    let rail = |rail| guests.clone().map(move |guest| Adapter::new(dir, guest, rail));
    (0..options.adapters.max(1)).flat_map(rail).collect()
}

fn setup(dir: PathBuf, guest: u8, options: &Options) -> Setup {
    Setup {
        name: guest_name(guest),
        adapter: Adapter::new(&dir, guest, 0),
        more: (1..options.adapters).map(|rail| Adapter::new(&dir, guest, rail)).collect(),
        plugged: options.plugged,
        cpus: options.cpus,
        memory: options.memory,
        twins: options.twins,
        initramfs: dir.join("initramfs"),
        dir,
    }
}

/// Loads vrnic.ko and waits until each RDMA device has its port and its IPv4 GID.
///
/// # Errors
/// When that does not come about.
pub fn load_module(guest: &Guest) -> anyhow::Result<()> {
    load_module_with(guest, "")
}

/// Loads the module with parameters.
///
/// # Errors
/// Fails as [`load_module`] does.
pub fn load_module_with(guest: &Guest, parameters: &str) -> anyhow::Result<()> {
    guest.check("modprobe -a ib_uverbs rdma_ucm", SHORT)?;
    guest.check(&format!("insmod /vrnic/vrnic.ko {parameters}"), SHORT)?;
    ready(guest)
}

/// Waits until each RDMA device has its port and its IPv4 GID.
///
/// # Errors
/// When that does not come about within half a minute.
pub fn ready(guest: &Guest) -> anyhow::Result<()> {
    let devices = guest.setup().adapters().count();
    guest.check(
        &format!(
            "for n in $(seq 300); do ready=0; for p in /sys/class/infiniband/*/ports/1; do \
               grep -q ACTIVE $p/state 2>/dev/null && grep -qs 0000:0000:0000:0000:0000:ffff $p/gids/* && \
               ready=$((ready+1)); \
             done; [ $ready -ge {devices} ] && exit 0; sleep 0.1; done; \
             echo 'not every RDMA device became active'; rdma link; exit 1"
        ),
        SHORT,
    )?;
    Ok(())
}
