//! Daemons and guests, ready for RDMA. Most users need one daemon and two guests.

use std::iter;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use parking_lot::Mutex;

use crate::adapter::{Adapter, Transport, guest_name};
use crate::daemon::{Daemon, Launch};
use crate::guest::Guest;
use crate::machine::accel::Accel;
use crate::machine::clock::Clock;
use crate::machine::paths::Paths;
use crate::machine::progress::step;
use crate::machine::rundir::RunDir;
use crate::modules::LOAD_RDMA;
pub use crate::options::{GUESTS_MAX, Host, Options};
use crate::restore::Unfit;
use crate::roots::hosts;
#[cfg(doc)]
use crate::roots::overlay::TREE;
use crate::roots::overlay::{Contents, write_contents, write_initramfs};
use crate::roots::root::Root;
#[cfg(doc)]
use crate::roots::system::KIT;
use crate::roots::system::System;
use crate::setup::Setup;
use crate::snapshot;

/// Number of guests that boot at the same time. If there were more, each would boot too slowly
/// under TCG.
const BOOT_TOGETHER: usize = 4;
/// Time limit of a command that only configures something. It allows for a loaded machine.
const SHORT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of [`Options::prepare`], which may load many modules.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(180);

/// The guests and their daemons. Everything ends when this is dropped.
#[derive(Debug)]
pub struct Pair {
    /// Guest a, usually the client.
    pub a: Guest,
    /// Guest b, usually the server.
    pub b: Guest,
    /// Guests c, d and so on.
    pub more: Vec<Guest>,
    /// The daemon. If each guest has a daemon, this is the daemon of guest a.
    pub daemon: Daemon,
    /// The daemons of the other guests, if each has one.
    pub others: Vec<Daemon>,
    paths: Paths,
    accel: Accel,
    options: Options,
    dir: RunDir,
}

impl Pair {
    /// Starts the daemons and boots the guests at the same time.
    ///
    /// # Errors
    /// If a part does not come up.
    pub fn boot(options: Options) -> anyhow::Result<Self> {
        ensure!((2..=GUESTS_MAX).contains(&options.guests), "2 to {GUESTS_MAX} guests");
        let booted = boot(&options, RunDir::new()?)?;
        let mut daemons = booted.daemons.into_iter();
        let daemon = daemons.next().context("no daemon")?;
        let mut guests = booted.guests.into_iter();
        let mut next = || guests.next().context("no guest");
        let (a, b) = (next()?, next()?);
        let (more, others) = (guests.collect(), daemons.collect());
        let Booted { paths, accel, dir, .. } = booted;
        Ok(Self { a, b, more, daemon, others, paths, accel, options, dir })
    }

    /// Returns all guests in order.
    pub fn guests(&self) -> impl Iterator<Item = &Guest> {
        [&self.a, &self.b].into_iter().chain(&self.more)
    }

    /// Returns all daemons. The first is the daemon of guest a.
    pub fn daemons(&mut self) -> impl Iterator<Item = &mut Daemon> {
        iter::once(&mut self.daemon).chain(&mut self.others)
    }

    /// Kills guest b and starts it again with the same daemon.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn reboot_b(&mut self) -> anyhow::Result<()> {
        self.b.kill();
        let root = self.b.setup().root.clone();
        let setup = self.options.setup(self.dir.path(), 1, root);
        self.b = start_guest(&self.paths, self.accel, setup, &self.options)?;
        if self.options.module {
            load_module(&self.b)?;
        }
        Ok(())
    }

    /// Returns everything that helps to understand a failure: logs of the daemons and of all
    /// kernels.
    #[must_use]
    pub fn report(&self) -> String {
        let mut text = String::from("--- vrnicd\n");
        for daemon in iter::once(&self.daemon).chain(&self.others) {
            text += &daemon.log(40);
        }
        for guest in self.guests() {
            text += &format!("\n--- guest {}\n{}", guest.setup().name, guest.report(40));
        }
        text + "\n"
    }

    /// Returns the daemon's view of an adapter: `vrnic show function` as JSON.
    ///
    /// # Errors
    /// If it says nothing.
    pub fn function(&self, name: &str) -> anyhow::Result<String> {
        let mut daemons = iter::once(&self.daemon).chain(&self.others);
        let daemon = daemons.find(|daemon| daemon.has(name)).context("no daemon has it")?;
        daemon.ask(&["show", "function", "--json", "--function", name])
    }

    /// Returns the output of `vrnic` with these arguments, from the daemon of guest a.
    ///
    /// # Errors
    /// If it fails, with its complaint.
    pub fn monitor(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.daemon.ask(arguments)
    }

    /// Returns the folder with sockets and logs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the accelerator of the guests.
    #[must_use]
    pub fn accel(&self) -> Accel {
        self.accel
    }
}

/// The parts of what has booted.
#[derive(Debug)]
pub(crate) struct Booted {
    /// The guests in order.
    pub(crate) guests: Vec<Guest>,
    /// The daemon of all guests, or one for each.
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) paths: Paths,
    pub(crate) accel: Accel,
    pub(crate) dir: RunDir,
    /// The time that each step took, in order. The guests take their steps at the same time, so
    /// theirs are those of the slowest guest.
    pub(crate) steps: Vec<(&'static str, Duration)>,
}

/// Starts the daemons, and boots the guests at the same time. Uses `dir` for sockets and logs.
///
/// # Errors
/// If a part does not come up.
pub(crate) fn boot(options: &Options, dir: RunDir) -> anyhow::Result<Booted> {
    let paths = Paths::from_env()?;
    let accel = Accel::choose(&paths)?;
    let mut clock = Clock::start();
    let root = root(&paths, accel, dir.path(), options)?;
    clock.step("the guests' files");
    let daemons = daemons(&paths, dir.path(), options)?;
    clock.step("the daemon");
    let up = Mutex::new(Duration::ZERO);
    let boot = |guest: u8| {
        let start = Instant::now();
        let setup = options.setup(dir.path(), guest, root.clone());
        let guest = start_guest(&paths, accel, setup, options)?;
        let took = start.elapsed();
        let mut slowest = up.lock();
        *slowest = took.max(*slowest);
        drop(slowest);
        if !options.prepare.is_empty() {
            guest.check(&options.prepare, PREPARE_TIMEOUT)?;
        }
        if options.module {
            load_module(&guest)?;
        }
        if options.root.is_some() {
            // Rules of udev may give the devices other names.
            guest.check("udevadm settle --timeout=60 || true", SHORT_TIMEOUT * 2)?;
        }
        anyhow::Ok(guest)
    };
    let failure = || match daemons.first() {
        Some(daemon) => format!("the log of vrnicd ends with\n{}", daemon.log(20)),
        None => "there is no daemon".to_owned(),
    };
    let guests = boot_all(options.guests, boot).with_context(failure)?;
    let up = *up.lock();
    clock.split("the kernels", up, "the modules and devices");
    let steps = clock.steps;
    Ok(Booted { guests, daemons, paths, accel, dir, steps })
}

/// Starts a guest. A guest that cannot start from its snapshot boots.
fn start_guest(
    paths: &Paths,
    accel: Accel,
    setup: Setup,
    options: &Options,
) -> anyhow::Result<Guest> {
    let Root::Snapshot { file, .. } = &setup.root else { return Guest::boot(paths, accel, setup) };
    let file = file.clone();
    match Guest::boot(paths, accel, setup.clone()) {
        Err(error) => {
            let name = &setup.name;
            step(format!("guest {name} does not start from the snapshot, so it boots: {error:#}"));
            // Other failures may have other reasons.
            if error.is::<Unfit>() && file.exists() {
                snapshot::refuse(&file, &error);
            }
            let initramfs = setup.dir.join(format!("{name}.initramfs"));
            let names = hosts::table(options.guests, options.adapters);
            write_initramfs(paths, contents(options, &names), &initramfs)?;
            Guest::boot(paths, accel, Setup { root: Root::Memory(initramfs), ..setup })
        }
        started => started,
    }
}

/// Returns what guests get in addition to what was built.
fn contents<'a>(options: &'a Options, names: &'a str) -> Contents<'a> {
    Contents { files: &options.files, tree: options.tree.as_deref(), names }
}

/// Boots the guests, a few at a time. Returns them in order.
fn boot_all(
    guests: u8,
    boot: impl Fn(u8) -> anyhow::Result<Guest> + Sync,
) -> anyhow::Result<Vec<Guest>> {
    let boot = &boot;
    let numbers: Vec<u8> = (0..guests).collect();
    let mut booted = Vec::new();
    for group in numbers.chunks(BOOT_TOGETHER) {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                group.iter().map(|guest| scope.spawn(move || boot(*guest))).collect();
            for (thread, number) in threads.into_iter().zip(group) {
                let name = guest_name(*number);
                let Ok(guest) = thread.join() else {
                    bail!("the thread that boots guest {name} panicked");
                };
                booted.push(guest.with_context(|| format!("guest {name}"))?);
            }
            Ok(())
        })?;
    }
    Ok(booted)
}

/// Starts the daemon of all guests, or several daemons.
fn daemons(paths: &Paths, dir: &Path, options: &Options) -> anyhow::Result<Vec<Daemon>> {
    let alone = options.apart || !options.hosts.is_empty();
    let daemons = if alone { options.guests } else { options.daemons.max(1) };
    let share = options.guests.div_ceil(daemons);
    let start = |daemon: u8| {
        let uplinks = match options.hosts.get(usize::from(daemon)) {
            Some(host) => vec![format!("name=up,{}", host.uplink)],
            None => trunks(dir, daemon, daemons),
        };
        let mut arguments = options.daemon.clone();
        arguments.extend(uplinks.into_iter().flat_map(|uplink| ["--uplink".to_owned(), uplink]));
        let folder = match daemon {
            0 => dir.to_owned(),
            _ => dir.join(guest_name(daemon)),
        };
        std::fs::create_dir_all(&folder).context("cannot make a folder for a daemon")?;
        let first = daemon.saturating_mul(share);
        let guests = first..first.saturating_add(share).min(options.guests);
        let adapters = functions(dir, guests, options);
        let host = options.hosts.get(usize::from(daemon));
        let namespace = host.map(|host| host.namespace.clone());
        let controlled = options.controlled;
        Daemon::start(paths, Launch { dir: folder, adapters, arguments, namespace, controlled })
    };
    (0..daemons).map(start).collect()
}

/// Returns the settings of the trunks of a daemon to all other daemons.
fn trunks(dir: &Path, daemon: u8, daemons: u8) -> Vec<String> {
    let trunk = |other: u8| {
        let name = guest_name;
        let (end, first, last) =
            if daemon < other { ("listen", daemon, other) } else { ("connect", other, daemon) };
        let path = dir.join(format!("{}-{}", name(first), name(last)));
        format!("name=to-{},{end}={}", name(other), path.display())
    };
    (0..daemons).filter(|other| *other != daemon).map(trunk).collect()
}

/// Returns the adapters of these guests.
fn functions(dir: &Path, guests: Range<u8>, options: &Options) -> Vec<Adapter> {
    let rail = |rail| {
        let adapter = move |guest| {
            Adapter::new(dir, guest, rail).of(options.personality, options.guest_faults)
        };
        guests.clone().map(adapter)
    };
    (0..options.adapters.max(1)).flat_map(rail).collect()
}

/// Writes the root from which all guests start.
fn root(paths: &Paths, accel: Accel, dir: &Path, options: &Options) -> anyhow::Result<Root> {
    if options.system {
        ensure!(options.adapters == 1, "a whole system has one adapter");
        let kit = dir.join("kit");
        return Ok(Root::Disk(System::new(paths, options.tree.as_deref(), &kit)?));
    }
    let names = hosts::table(options.guests, options.adapters);
    if let Some(file) = snapshot(paths, accel, dir, options) {
        let overlay = dir.join("overlay");
        write_contents(paths, contents(options, &names), &overlay)?;
        return Ok(Root::Snapshot { file, overlay });
    }
    let initramfs = dir.join("initramfs");
    write_initramfs(paths, contents(options, &names), &initramfs)?;
    Ok(match &options.root {
        None => Root::Memory(initramfs),
        Some(disk) => Root::Image { initramfs, disk: disk.clone() },
    })
}

/// Makes the snapshot from which guests with these options start, unless it exists or they boot.
/// Guests that need it while it is made wait for it.
///
/// # Errors
/// If it cannot be made. Such guests boot.
pub fn make_snapshot(options: &Options) -> anyhow::Result<()> {
    if options.obstacle().is_some() {
        return Ok(());
    }
    let paths = Paths::from_env()?;
    let accel = Accel::choose(&paths)?;
    let guest = options.setup(Path::new(""), 0, Root::Template(PathBuf::new()));
    snapshot::find_or_make(&paths, accel, &guest).map(drop)
}

/// Returns the snapshot from which the guests start, if they do not boot.
fn snapshot(paths: &Paths, accel: Accel, dir: &Path, options: &Options) -> Option<PathBuf> {
    let why = match options.obstacle() {
        Some(why) => why.to_owned(),
        None => {
            let guest = options.setup(dir, 0, Root::Template(PathBuf::new()));
            match snapshot::find_or_make(paths, accel, &guest) {
                Ok(file) => return Some(file),
                Err(error) => format!("{error:#}"),
            }
        }
    };
    step(format!("the guests boot, and do not start from a snapshot: {why}"));
    None
}

/// Loads vrnic.ko and waits until each RDMA device is ready.
///
/// # Errors
/// If that does not come about.
pub fn load_module(guest: &Guest) -> anyhow::Result<()> {
    load_module_with(guest, "")
}

/// Loads the module with parameters.
///
/// # Errors
/// Fails as [`load_module`] does.
pub fn load_module_with(guest: &Guest, parameters: &str) -> anyhow::Result<()> {
    guest.check(LOAD_RDMA, SHORT_TIMEOUT)?;
    guest.check(&format!("insmod /vrnic/vrnic.ko {parameters}"), SHORT_TIMEOUT)?;
    ready(guest)
}

/// Waits until each RDMA device has its port, and with RoCE its IPv4 GID.
///
/// # Errors
/// If this is not so within half a minute.
pub fn ready(guest: &Guest) -> anyhow::Result<()> {
    let devices = guest.setup().adapters().count();
    let gid = match guest.setup().adapter.personality {
        Transport::Roce => "0000:0000:0000:0000:0000:ffff",
        // The MAC.
        Transport::Iwarp => "5254:0076",
    };
    guest.check(
        &format!(
            "for n in $(seq 300); do ready=0; for p in /sys/class/infiniband/*/ports/1; do \
               grep -q ACTIVE $p/state 2>/dev/null && grep -qs {gid} $p/gids/* && \
               ready=$((ready+1)); \
             done; [ $ready -ge {devices} ] && exit 0; sleep 0.1; done; \
             echo 'not every RDMA device became active'; rdma link; exit 1"
        ),
        SHORT_TIMEOUT,
    )?;
    Ok(())
}
