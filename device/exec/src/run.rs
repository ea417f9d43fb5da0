//! The command itself: it creates the adapters, starts the program, and waits for it.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, anyhow, bail, ensure};
use rustix::process::{Resource, getrlimit, setrlimit};
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_cm::parameters::Gid;
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
use crate::join::folder::own_folder;
use crate::join::membership::{self, Join, Joined, Joining};
use crate::join::neighbors::Neighbors;
use crate::memory::spaces::Spaces;
use crate::rdma_cm::ports::Ports;
use crate::rdma_cm::service::CmService;
use crate::supervisor::answers::Answers;
use crate::supervisor::deferred::Deferred;
use crate::supervisor::opened::Files;
use crate::supervisor::plugin;
use crate::supervisor::program::{Ended, Watch, end_the_rest};
use crate::trap::filter::filter;
use crate::trap::launch::{Launched, NotExecuted, launch};
use crate::trap::tree::{Face, Tree, guid, ipv4_gid, link_local_gid};
use crate::uverbs::device::Device;
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
    /// The address of the first adapter, which is in 127.0.0.0/8 unless a network is joined. The
    /// next one has the next address. Without it, they are 127.0.0.1, 127.0.0.2, and so on, or
    /// those that are free in the network.
    pub address: Option<Ipv4Addr>,
    /// The network of others that the adapters join.
    pub join: Option<Join>,
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
    membership: Option<Joined>,
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
    let network = network(options)?;
    let Network { spaces, drivers, devices, traffic, bell, .. } = network;
    let shown = Shown { drivers: Arc::clone(&drivers), traffic: Arc::clone(&traffic) };
    let faces: Vec<_> = devices.iter().map(|device| face(device)).collect();
    let tree = Arc::new(Tree::new(&faces)?);
    let (sockets, environment) = offer(options, &tree, &shown)?;
    let [capture, timelines] = [&options.pcap, &options.trace].map(Option::as_deref);
    let written = files::Written::begin(capture, timelines, &drivers, &traffic)?;
    let command = std::iter::once(&options.program).chain(&options.arguments);
    let begin = |path| Report::begin(path, command, shown);
    let report = options.report.as_deref().map(begin).transpose()?;
    let first_descriptor = first_descriptor()?;
    let watch = Watch::new()?;
    let files = Files::new(&spaces).context("inotify cannot be used")?;
    let connections = CmService::new(&devices, Ports::default());
    let served = Arc::clone(&tree);
    let answer = move |listener| {
        let answers = Answers {
            listener,
            tree: served,
            devices,
            files,
            connections,
            deferred: Deferred::default(),
            spaces,
            bell,
            first_descriptor,
        };
        answers.run();
    };
    let Network { routes, waker, fabric, membership, .. } = network;
    let switch = membership.as_ref().map(|membership| Arc::clone(membership.switch()));
    let worker = Worker::start(drivers, routes, &waker, Arc::clone(&fabric.faults), switch)
        .context("no thread can be started")?;
    let Launched { child, answering } = launch(
        &options.program,
        &options.arguments,
        &environment,
        filter(first_descriptor),
        answer,
    )?;
    raise_file_limit();
    Ok(Running {
        child,
        answering,
        watch,
        traffic,
        must_hit: options.must_hit,
        written,
        report,
        sockets,
        worker,
        membership,
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
        // Other members receive the last frames of the adapters.
        drop((self.sockets, self.worker, self.membership, self.tree));
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
    let is_other =
        (&options.profile, &options.limits, options.address) != usual || options.join.is_some();
    if is_other || !options.faults.is_empty() || files.iter().any(|file| file.is_some()) {
        return anyhow!(
            "profiles, limits, addresses, networks, faults, sockets and files are for the outer \
             `vrnic exec`, not for this one"
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

/// Environment variables, with their values.
type Environment = Vec<(OsString, OsString)>;

/// Offers the plugin and the sockets for clients. Returns the sockets, and the environment
/// variables by which the program finds both.
fn offer(
    options: &Options,
    tree: &Tree,
    shown: &Shown,
) -> anyhow::Result<(Option<Sockets>, Environment)> {
    let library = plugin::offer(&plugin::find()?, &tree.place("/lib"))?;
    let sockets = open_sockets(options.sockets.as_deref(), tree, shown)?;
    let mut environment = vec![library, (INSIDE.into(), "1".into())];
    environment.extend(sockets.iter().flat_map(Sockets::environment));
    Ok((sockets, environment))
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

/// The adapters and their network.
struct Network {
    spaces: Arc<Spaces>,
    routes: Arc<Routes>,
    waker: Arc<Waker>,
    fabric: Arc<Fabric<ProcessHost>>,
    drivers: Arc<[Driver]>,
    devices: Vec<Arc<Device>>,
    traffic: Arc<Traffic>,
    bell: Arc<Bell>,
    membership: Option<Joined>,
}

/// Creates the adapters, and joins the network of others if there is one.
fn network(options: &Options) -> anyhow::Result<Network> {
    let spaces = Arc::new(Spaces::default());
    let routes = Arc::new(Routes::default());
    let waker = Arc::new(Waker::default());
    let fabric = Arc::default();
    let joining = joining(options)?;
    let addresses = match &joining {
        Some(joining) => joining.addresses.clone(),
        None => addresses(options)?,
    };
    let drivers = create(options, &addresses, &spaces, &waker, &fabric)?;
    let host = drivers.first().context("no adapter")?.host().clone();
    let traffic = Arc::new(Traffic::new(&fabric, host, &options.faults)?);
    let bell = Arc::new(Bell::new().context("no event file can be opened")?);
    routes.set_bell(&bell);
    let neighbors = Arc::new(neighbors(&drivers, &addresses));
    if let Some(joining) = &joining {
        fabric.attach(joining.uplink());
        neighbors.attach(joining.uplink(), &bell);
        for driver in &*drivers {
            joining.add(driver.adapter(), &neighbors, traffic.captures())?;
        }
    }
    let devices = devices(&drivers, &addresses, &neighbors, &routes)?;
    let membership = joining.map(|joining| joining.connect(&neighbors)).transpose()?;
    Ok(Network { spaces, routes, waker, fabric, drivers, devices, traffic, bell, membership })
}

/// Returns this many addresses from one on. An address above the highest one does not exist.
fn from(first: Ipv4Addr, count: usize) -> Vec<Ipv4Addr> {
    (u32::from(first)..=u32::MAX).take(count).map(Ipv4Addr::from).collect()
}

/// Checks the number of adapters.
fn check_count(count: usize) -> anyhow::Result<()> {
    ensure!((1..=ADAPTERS_MAX).contains(&count), "there can be 1 to {ADAPTERS_MAX} adapters");
    Ok(())
}

/// Returns the addresses of the adapters in a network of their own.
fn addresses(options: &Options) -> anyhow::Result<Vec<Ipv4Addr>> {
    let (count, first) = (options.adapters, options.address.unwrap_or(ADDRESS));
    check_count(count)?;
    let mut own = from(first, count);
    own.retain(Ipv4Addr::is_loopback);
    ensure!(
        own.len() == count,
        "the addresses of {count} adapters from {first} on are not all in 127.0.0.0/8"
    );
    Ok(own)
}

/// Begins to join the network of others, if there is one.
fn joining(options: &Options) -> anyhow::Result<Option<Joining>> {
    let Some(join) = &options.join else { return Ok(None) };
    let count = options.adapters;
    check_count(count)?;
    let wanted = options.address.map(|first| from(first, count));
    let is_station = |address: &Ipv4Addr| {
        !(address.is_multicast() || address.is_unspecified() || address.is_broadcast())
    };
    if let Some(wanted) = &wanted {
        ensure!(
            wanted.len() == count && wanted.iter().all(is_station),
            "an adapter cannot have each of the {count} addresses that --as names"
        );
    }
    let joining = Joining::begin(join, wanted.as_deref(), count);
    let what = || format!("the network {} cannot be joined", join.place.display());
    joining.with_context(what).map(Some)
}

/// Creates the adapters, all in one network.
fn create(
    options: &Options,
    addresses: &[Ipv4Addr],
    spaces: &Arc<Spaces>,
    waker: &Arc<Waker>,
    fabric: &Arc<Fabric<ProcessHost>>,
) -> anyhow::Result<Arc<[Driver]>> {
    let start = system_clock();
    let mut drivers = Vec::new();
    let limits = options.limits.lower(&Driver::limits(&options.profile))?;
    for (number, address) in addresses.iter().enumerate() {
        let last = u8::try_from(number + 1).context("too many adapters")?;
        let [a, b, c, d, e] = MAC;
        let own = [a, b, c, d, e, last];
        let mac = if options.join.is_some() { membership::mac(*address) } else { own };
        let host = ProcessHost::new(spaces, waker, start).context("no memory for an adapter")?;
        let (name, profile) = (format!("vrnic{number}"), options.profile.clone());
        let driver = Driver::with_profile(&name, MacAddr(mac), host, limits, profile, fabric)?;
        drivers.push(driver);
    }
    Ok(drivers.into())
}

/// Returns the GIDs of an adapter with an address.
fn gids(driver: &Driver, address: Ipv4Addr) -> [Gid; 2] {
    [link_local_gid(driver.adapter().mac().0), ipv4_gid(address)]
}

/// Returns the MACs of the GIDs of adapters.
fn neighbors(drivers: &[Driver], addresses: &[Ipv4Addr]) -> Neighbors {
    let of = |(driver, address): (&Driver, &Ipv4Addr)| {
        gids(driver, *address).map(|gid| (gid, driver.adapter().mac().0))
    };
    drivers.iter().zip(addresses).flat_map(of).collect()
}

/// Gives adapters their addresses. Returns what their device files show.
fn devices(
    drivers: &Arc<[Driver]>,
    addresses: &[Ipv4Addr],
    neighbors: &Arc<Neighbors>,
    routes: &Arc<Routes>,
) -> anyhow::Result<Vec<Arc<Device>>> {
    let mut devices = Vec::new();
    for (number, (driver, address)) in drivers.iter().zip(addresses).enumerate() {
        let own = gids(driver, *address);
        for (index, gid) in (0..).zip(own) {
            driver.set_gid(index, gid).context("the adapter refuses an address")?;
        }
        devices.push(Arc::new(Device::new(drivers, number, own.to_vec(), neighbors, routes)));
    }
    Ok(devices)
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
