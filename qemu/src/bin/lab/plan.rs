//! The plan of a run: the requests of the options, checked before a guest boots.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use vrnic_qemu::adapter::names;
use vrnic_qemu::command::Command;
use vrnic_qemu::container::{self, Container, PLUGIN, ROOT, check};
use vrnic_qemu::lab::bundled;
use vrnic_qemu::lab::job::Job;
use vrnic_qemu::lab::scenario::{Scenario, text};
use vrnic_qemu::lab::script::Place;
use vrnic_qemu::machine::accel::Accel;
use vrnic_qemu::machine::paths::Paths;
use vrnic_qemu::machine::progress::step;
use vrnic_qemu::machine::room;
use vrnic_qemu::pair::Options;
use vrnic_qemu::roots::disk::{Disk, Start};
use vrnic_qemu::roots::kernel;
use vrnic_qemu::roots::overlay::{CHECKER, checker};
use vrnic_qemu::roots::stock::{self, Stock};
use vrnic_qemu::setup::SHARE;

use crate::args::Args;

const NO_TIMING: &str = "\
the guests are not under KVM, so --timing is refused: QEMU would translate their code, and times \
of translated programs say nothing about hardware. Use a machine with KVM, or leave the option out";
/// The libibverbs of the guests' image.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1";

/// What a run needs.
pub(crate) struct Plan {
    /// The guests.
    pub(crate) options: Options,
    /// The commands.
    pub(crate) job: Job,
    /// The faults, if there are any.
    pub(crate) scenario: Option<Scenario>,
    /// The time that the preparation took.
    pub(crate) steps: Vec<(&'static str, Duration)>,
}

impl Plan {
    /// Checks the options, and unpacks what they name.
    ///
    /// # Errors
    /// If the guests could not boot or the command could not start. The text is one sentence.
    pub(crate) fn new(args: &Args) -> Result<Self> {
        let start = Instant::now();
        let paths = Paths::from_env()?;
        let accel = Accel::choose(&paths)?;
        ensure!(!args.timing || accel == Accel::Kvm, NO_TIMING);
        let memory = memory(args, &paths)?;
        let command = Command::new(args.command.clone());
        let container = container(args, &paths, &command)?;
        let disk = args.disk.as_deref().map(|file| Disk::open(&paths, file)).transpose()?;
        let kernel = Kernel::new(args, &paths)?;
        let modules = modules(args, &paths, &kernel)?;
        let mut files = modules.files;
        let mut share = container.as_ref().map(|container| container.folder.clone());
        if let Some(disk) = &disk {
            files.extend(starting(disk, &paths, &kernel)?);
            share = kernel.stock.then(|| paths.stock.clone());
        }
        let mut prepare = modules.script;
        if let Some(container) = &container {
            files.extend(plugin(container, &paths)?);
            prepare += &container.mounting();
        }
        if args.check.is_some() {
            files.push(checker(&paths)?);
            prepare += &container.as_ref().map_or(Ok(String::new()), checking)?;
        }
        let uplinks = args.uplinks.iter().enumerate().flat_map(|(number, settings)| {
            ["--uplink".to_owned(), format!("name=up{number},{settings}")]
        });
        let scenario = scenario(args)?;
        let packets = scenario.as_ref().is_some_and(|scenario| scenario.packets);
        let fabric = packets.then(|| ["--fabric".to_owned(), "wire".to_owned()]);
        let options = Options {
            guests: args.guests,
            cpus: args.cpus,
            memory,
            adapters: args.adapters,
            personality: args.personality,
            guest_faults: true,
            tree: args.copy.clone(),
            daemon: uplinks.chain(fabric.into_iter().flatten()).collect(),
            image: args.kernel.clone(),
            share,
            root: disk,
            files,
            prepare,
            ..Options::default()
        };
        let job = Job {
            command,
            peer: args.peer.clone().map(Command::Text),
            ready: args.ready.clone(),
            limit: Duration::from_secs(args.timeout),
            place: place(args, container)?,
        };
        Ok(Self { options, job, scenario, steps: vec![("the preparation", start.elapsed())] })
    }
}

/// Reads the scenario, or makes one of the rules.
fn scenario(args: &Args) -> Result<Option<Scenario>> {
    let functions = names(args.guests, args.adapters);
    if let Some(file) = &args.scenario {
        return text::read(file, &functions).map(Some);
    }
    text::check_rules(&args.faults, &functions)?;
    let any = !args.faults.is_empty();
    Ok(any.then(|| Scenario::of_rules(&args.faults, args.must_hit)))
}

/// Returns the memory of each guest in MiB, which this machine has, as well as the room on the
/// disk.
fn memory(args: &Args, paths: &Paths) -> Result<u32> {
    let image = paths.base_image();
    let memory = args.memory.map_or_else(|| room::for_image(&image), Ok)?;
    room::holds(&image, memory)?;
    room::check(args.guests, memory)?;
    room::temporary(&std::env::temp_dir(), &image)?;
    Ok(memory)
}

/// Opens the root of --root.
fn container(args: &Args, paths: &Paths, command: &Command) -> Result<Option<Container>> {
    let Some(path) = &args.root else { return Ok(None) };
    let container = Container::open(path, &paths.cache)?;
    if !args.shell {
        check::command(&container, command)?;
    }
    if args.shell || args.peer.is_some() {
        check::command(&container, &Command::Text(String::new()))?;
    }
    Ok(Some(container))
}

/// The guests' kernel.
struct Kernel {
    release: String,
    /// True if it has the release of the stock kernel, whose modules it can load.
    stock: bool,
}

impl Kernel {
    fn new(args: &Args, paths: &Paths) -> Result<Self> {
        let own = kernel::release(&paths.kernel())?;
        let release = args.kernel.as_deref().map_or_else(|| Ok(own.clone()), kernel::release)?;
        let named = args.modules.first();
        ensure!(
            release == own || named.is_none(),
            "--module {} names a module of the stock kernel, which has release {own}, and the \
             kernel of --kernel has {release}; give its own module with --module-file",
            named.map(String::as_str).unwrap_or_default()
        );
        Ok(Self { stock: release == own, release })
    }
}

/// Finds the modules that the guests load, and checks that all fit the kernel. Another kernel than
/// the stock one has built in what mounts a root.
fn modules(args: &Args, paths: &Paths, kernel: &Kernel) -> Result<stock::Plan> {
    let release = &kernel.release;
    let ours = |file: &Path| kernel::Module::read(file).is_ok_and(|it| it.name == "vrnic");
    if !args.module_files.iter().any(|file| ours(file)) {
        stock::fits(&paths.module(), release)?;
    }
    let mut plan = stock::Plan::default();
    let mounted = kernel.stock && args.root.is_some();
    let named = !args.modules.is_empty() || mounted;
    let wanted = named || (kernel.stock && !args.module_files.is_empty() && paths.stock.exists());
    let stock = if wanted { Some(Stock::open(&paths.stock)?) } else { None };
    if let Some(stock) = &stock {
        let root: &[&str] = if mounted { &container::MODULES } else { &[] };
        for name in args.modules.iter().map(String::as_str).chain(root.iter().copied()) {
            stock.add(&mut plan, name)?;
        }
    }
    for file in &args.module_files {
        plan.own(stock.as_ref(), file, release)?;
    }
    Ok(plan)
}

/// Returns the files with which the guests start from a disk. Another kernel than the stock one
/// has built in what mounts it.
fn starting(disk: &Disk, paths: &Paths, kernel: &Kernel) -> Result<Vec<(String, Vec<u8>)>> {
    let mut plan = stock::Plan::default();
    if kernel.stock {
        let stock = Stock::open(&paths.stock)?;
        for name in ["9pnet_virtio", "9p"].into_iter().chain(disk.modules()) {
            stock.add(&mut plan, name)?;
        }
    }
    let modules = &plan.script;
    let start = Start { release: &kernel.release, share: kernel.stock.then_some(SHARE), modules };
    let mut files = disk.files(&start);
    files.append(&mut plan.files);
    Ok(files)
}

/// Returns the plugin for a root as a file of the guests. Says so if it does not fit, or if that is
/// not known.
fn plugin(container: &Container, paths: &Paths) -> Result<Option<(String, Vec<u8>)>> {
    if let Some(why) = container.unfit() {
        step(format!("{why}, so its programs find no RDMA device"));
        return Ok(None);
    }
    if let Some(doubt) = container.verbs.doubt() {
        step(doubt);
    }
    let file = paths.provider();
    let data = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(Some((PLUGIN.to_owned(), data)))
}

/// Returns the shell commands that give a root the checker.
fn checking(container: &Container) -> Result<String> {
    if let Some(why) = container.unfit() {
        bail!("{why}, so --check cannot be used with it");
    }
    Ok(format!("mkdir -p {ROOT}/vrnic && cp {CHECKER} {ROOT}{CHECKER}\n"))
}

/// Returns where the commands run. Says which libibverbs programs load first, or which they bring.
fn place(args: &Args, container: Option<Container>) -> Result<Place> {
    let library = match &container {
        None => Some(LIBRARY.to_owned()),
        Some(container) => container.verbs.library(),
    };
    let check = args.check.as_ref().map(|words| words.options(args.output.is_some()));
    // The checker is before the library whose functions it replaces.
    let mut preload: Vec<_> = check.iter().map(|_| CHECKER.to_owned()).collect();
    if args.preload_verbs {
        let library =
            library.context("the root has no libibverbs that --preload-verbs can load")?;
        step(format!("all programs load {library} first (LD_PRELOAD)"));
        preload.push(library);
        return Ok(Place { container, preload, check });
    }
    let folders = [args.copy.as_deref(), container.as_ref().map(|it| it.folder.as_path())];
    if let Some(file) = folders.into_iter().flatten().find_map(bundled::find) {
        step(bundled::hint(&file));
    }
    Ok(Place { container, preload, check })
}
