//! The command itself: it creates the adapters, starts the program, and waits for it.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, anyhow, bail, ensure};
use rustix::process::{Resource, getrlimit, setrlimit};
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_control_api::assignment::Assignment;
use vrnic_faults::Rule;
use vrnic_packet::MacAddr;
use vrnic_profiles::Profile;

use crate::adapter::bell::Bell;
use crate::adapter::driver::Driver;
use crate::adapter::host::{ProcessHost, system_clock};
use crate::adapter::traffic::Traffic;
use crate::adapter::waker::Waker;
use crate::adapter::worker::Worker;
use crate::control::Sockets;
use crate::control::files;
use crate::control::report::Report;
use crate::control::shown::Shown;
use crate::memory::spaces::Spaces;
use crate::rdma_cm::ports::Ports;
use crate::rdma_cm::service::CmService;
use crate::supervisor::answers::Answers;
use crate::supervisor::opened::Files;
use crate::supervisor::plugin;
use crate::supervisor::program::{Ended, Watch, end_the_rest};
use crate::trap::filter::filter;
use crate::trap::launch::{Launched, NotExecuted, launch};
use crate::trap::tree::{Face, Tree, guid, ipv4_gid, link_local_gid};
use crate::uverbs::device::{Device, Neighbors};
use crate::uverbs::routes::Routes;

/// Maximum number of adapters.
pub const ADAPTERS_MAX: usize = 64;
/// The address of the first adapter if the user names none.
const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Begin of the MACs of the adapters.
const MAC: [u8; 5] = [0x52, 0x54, 0, 0x0e, 0];
/// Number of descriptors that are reserved for device files at least, and at most.
const DEVICE_FILES_LEAST: u64 = 64;
const DEVICE_FILES_MOST: u64 = 256;
/// The part of a program's descriptors that are reserved.
const RESERVED_PART: u64 = 4;
/// Where these descriptors end at most. A table of descriptors has room for all below.
const DESCRIPTORS_MAX: u64 = 4096;
/// The environment variable that programs below a supervisor have.
const INSIDE: &str = "VRNIC_EXEC";
/// The network interface of the adapters' addresses.
const INTERFACE: &str = "lo";

/// What to run, and with what.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Number of adapters. Each has an address of its own.
    pub adapters: usize,
    /// The address of the first adapter, in 127.0.0.0/8. The next one has the next address. Without
    /// it, they are 127.0.0.1, 127.0.0.2, and so on.
    pub address: Option<Ipv4Addr>,
    /// The most objects that each adapter has, as far as they are fewer than usual.
    pub limits: Assignment,
    /// The device that the adapters are for programs.
    pub profile: Profile,
    /// Rules for deliberate faults, which hold from the start of the program to its end.
    pub faults: Vec<Rule>,
    /// True if a rule that has hit nothing is an error.
    pub must_hit: bool,
    /// The file for a capture of all adapters.
    pub pcap: Option<PathBuf>,
    /// The file for the timelines of all queue pairs: for Perfetto if its name ends in `.json`,
    /// otherwise lines of text.
    pub trace: Option<PathBuf>,
    /// The file for a report on the run, as JSON.
    pub report: Option<PathBuf>,
    /// The folder of the sockets for clients. Without one, they are in a folder of their own, and
    /// the program finds them by environment variables.
    pub sockets: Option<PathBuf>,
    /// The program.
    pub program: OsString,
    /// The arguments of the program.
    pub arguments: Vec<OsString>,
}

/// A program that runs with adapters.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// The thread that answers system calls.
    answering: JoinHandle<bool>,
    watch: Watch,
    traffic: Arc<Traffic>,
    must_hit: bool,
    written: files::Written,
    report: Option<Report>,
    sockets: Option<Sockets>,
    worker: Worker,
    tree: Arc<Tree>,
}

/// Runs a program with adapters. Returns how it has ended.
///
/// # Errors
/// Says what the host does not permit, why the program cannot be executed, or which rule has hit
/// nothing though it must.
pub fn run(options: &Options) -> anyhow::Result<Ended> {
    start(options)?.wait()
}

/// Starts a program with adapters. Below another supervisor, the program takes the place of this
/// process.
///
/// # Errors
/// Says what the host does not permit, or why the program cannot be executed.
pub fn start(options: &Options) -> anyhow::Result<Running> {
    if is_inside() {
        return Err(below(options));
    }
    let spaces = Arc::new(Spaces::default());
    let routes = Arc::new(Routes::default());
    let waker = Arc::new(Waker::default());
    let fabric = Arc::default();
    let (drivers, devices) = create(options, &spaces, &waker, &routes, &fabric)?;
    let host = drivers.first().context("no adapter")?.host().clone();
    let traffic = Arc::new(Traffic::new(&fabric, host, &options.faults)?);
    let shown = Shown { drivers: Arc::clone(&drivers), traffic: Arc::clone(&traffic) };
    let faces: Vec<_> = devices.iter().map(|device| face(device)).collect();
    let tree = Arc::new(Tree::new(&faces)?);
    let library = plugin::offer(&plugin::find()?, &tree.place("/lib"))?;
    let sockets = open_sockets(options.sockets.as_deref(), &tree, &shown)?;
    let (capture, timelines) = (options.pcap.as_deref(), options.trace.as_deref());
    let written = files::Written::begin(capture, timelines, &drivers, &traffic)?;
    let command = std::iter::once(&options.program).chain(&options.arguments);
    let report = options.report.as_deref().map(|path| Report::begin(path, command, shown));
    let report = report.transpose()?;
    let mut environment = vec![library, (INSIDE.into(), "1".into())];
    environment.extend(sockets.iter().flat_map(Sockets::environment));
    let first_descriptor = first_descriptor()?;
    let bell = Arc::new(Bell::new().context("no event file can be opened")?);
    routes.set_bell(&bell);
    let watch = Watch::new()?;
    let files = Files::new(&spaces).context("inotify cannot be used")?;
    let served = Arc::clone(&tree);
    let connections = CmService::new(&devices, Ports::default());
    let answer = move |listener| {
        let tree = served;
        Answers { listener, tree, devices, files, connections, spaces, bell, first_descriptor }
            .run();
    };
    let rules = Arc::clone(&fabric.faults);
    let worker =
        Worker::start(drivers, routes, &waker, rules).context("no thread can be started")?;
    let Launched { child, answering } = launch(
        &options.program,
        &options.arguments,
        &environment,
        filter(first_descriptor),
        answer,
    )?;
    raise_file_limit();
    let must_hit = options.must_hit;
    Ok(Running {
        child,
        answering,
        watch,
        traffic,
        must_hit,
        written,
        report,
        sockets,
        worker,
        tree,
    })
}

impl Running {
    /// Waits until the program and all processes that it leaves behind have ended. Returns how it
    /// has ended.
    ///
    /// # Errors
    /// Says which file could not be written, or which rule has hit nothing though it must.
    pub fn wait(self) -> anyhow::Result<Ended> {
        let ended = self.watch.wait(&self.child);
        end_the_rest();
        // There is no process left that could make a system call.
        let _panicked = self.answering.join();
        let written = self.written.end();
        let reported = self.report.map_or(Ok(()), |report| report.end(ended));
        drop((self.sockets, self.worker, self.tree));
        written.and(reported)?;
        let missed = if self.must_hit { self.traffic.missed() } else { Vec::new() };
        ensure!(missed.is_empty(), "{}", missed.join("; "));
        Ok(ended)
    }
}

/// Executes a program below another supervisor, which answers for this program, too. Returns the
/// reason for which that fails.
fn below(options: &Options) -> anyhow::Error {
    let files = [&options.sockets, &options.pcap, &options.trace, &options.report];
    let usual = (&Profile::default(), &Assignment::default(), None);
    let is_other = (&options.profile, &options.limits, options.address) != usual;
    if is_other || !options.faults.is_empty() || files.iter().any(|file| file.is_some()) {
        return anyhow!(
            "profiles, limits, addresses, faults, sockets and files are for the outer `vrnic exec`, not \
             for this one"
        );
    }
    execute(options)
}

/// Executes the program in the place of this process, without adapters of its own. Returns the
/// reason for which that fails.
#[must_use]
pub fn execute(options: &Options) -> anyhow::Error {
    let error = Command::new(&options.program).args(&options.arguments).exec();
    let what = format!("{} cannot be executed", options.program.display());
    anyhow::Error::new(NotExecuted(error)).context(what)
}

/// Creates a folder for sockets, if it does not exist, and returns its absolute path. Nobody else
/// may put other sockets in the place of those in it.
fn own_folder(folder: &Path) -> anyhow::Result<PathBuf> {
    let folder = std::path::absolute(folder)?;
    let what = || format!("the folder {} cannot be used", folder.display());
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).with_context(what)?;
    let metadata = folder.metadata().with_context(what)?;
    ensure!(
        metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0,
        "the folder {} for sockets must belong to the user, and no other user may write to it",
        folder.display()
    );
    Ok(folder)
}

/// Opens the sockets for clients in a folder. Without one, they are with the files of the adapters,
/// and the program runs without them if that fails.
fn open_sockets(
    folder: Option<&Path>,
    tree: &Tree,
    shown: &Shown,
) -> anyhow::Result<Option<Sockets>> {
    if let Some(folder) = folder {
        let folder = own_folder(folder)?;
        return Sockets::open(&folder, shown).map(Some);
    }
    let folder = tree.place("/run");
    let opened = std::fs::create_dir(&folder)
        .map_err(anyhow::Error::from)
        .and_then(|()| Sockets::open(&folder, shown));
    opened.map(Some).or_else(|error| {
        eprintln!("vrnic exec: the program runs without sockets for the command vrnic: {error:#}");
        Ok(None)
    })
}

/// Returns whether this process runs below a supervisor.
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Adapters, and how their device files show them.
type Adapters = (Arc<[Driver]>, Vec<Arc<Device>>);

/// Returns the addresses of the adapters.
fn addresses(options: &Options) -> anyhow::Result<Vec<Ipv4Addr>> {
    let count = options.adapters;
    ensure!((1..=ADAPTERS_MAX).contains(&count), "there can be 1 to {ADAPTERS_MAX} adapters");
    let first = options.address.unwrap_or(ADDRESS);
    // An address above the highest one does not exist, and is not of this host either.
    let addresses = (u32::from(first)..=u32::MAX).take(count).map(Ipv4Addr::from);
    let own: Vec<_> = addresses.filter(Ipv4Addr::is_loopback).collect();
    ensure!(
        own.len() == count,
        "the addresses of {count} adapters from {first} on are not all in 127.0.0.0/8"
    );
    Ok(own)
}

/// Creates the adapters, all in one network.
fn create(
    options: &Options,
    spaces: &Arc<Spaces>,
    waker: &Arc<Waker>,
    routes: &Arc<Routes>,
    fabric: &Arc<Fabric<ProcessHost>>,
) -> anyhow::Result<Adapters> {
    let start = system_clock();
    let mut drivers = Vec::new();
    let mut gids = Vec::new();
    let mut neighbors = Neighbors::new();
    let limits = options.limits.lower(&Driver::limits(&options.profile))?;
    for (number, address) in addresses(options)?.into_iter().enumerate() {
        let last = u8::try_from(number + 1).context("too many adapters")?;
        let [a, b, c, d, e] = MAC;
        let mac = [a, b, c, d, e, last];
        let host = ProcessHost::new(spaces, waker, start).context("no memory for an adapter")?;
        let (name, profile) = (format!("vrnic{number}"), options.profile.clone());
        let driver = Driver::with_profile(&name, MacAddr(mac), host, limits, profile, fabric)?;
        let own = vec![link_local_gid(mac), ipv4_gid(address)];
        for (index, gid) in (0..).zip(&own) {
            driver.set_gid(index, *gid).context("the adapter refuses an address")?;
            neighbors.insert(*gid, mac);
        }
        drivers.push(driver);
        gids.push(own);
    }
    let drivers: Arc<[Driver]> = drivers.into();
    let neighbors = Arc::new(neighbors);
    let devices = (0..)
        .zip(gids)
        .map(|(number, gids)| Arc::new(Device::new(&drivers, number, gids, &neighbors, routes)));
    let devices = devices.collect();
    Ok((drivers, devices))
}

/// Returns what programs see of an adapter in sysfs.
fn face(device: &Device) -> Face {
    let version = device.driver().caps().fw_version.get();
    let part = |shift: u32| version >> shift & 0xffff;
    Face {
        name: device.name().to_owned(),
        guid: guid(device.driver().adapter().mac().0),
        gids: device.gids().to_vec(),
        interface: INTERFACE,
        version: format!("{}.{}.{}", part(32), part(16), part(0)),
    }
}

/// Returns the lowest descriptor of a device file: few below the highest that a program may have.
fn first_descriptor() -> anyhow::Result<u32> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS_MAX);
    let least = RESERVED_PART * DEVICE_FILES_LEAST;
    if limit < least {
        bail!("the limit of open files is {limit}: it must be at least {least}");
    }
    let reserved = (limit / RESERVED_PART).min(DEVICE_FILES_MOST);
    u32::try_from(limit.min(DESCRIPTORS_MAX) - reserved).context("the limit of open files")
}

/// Lets this process, but not the program, have as many files as it may.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _kept = setrlimit(Resource::Nofile, limit);
}
