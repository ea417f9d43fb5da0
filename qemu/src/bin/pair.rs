//! Boots guests and runs perftest in them, or gives a shell in one.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, value_parser};
use vrnic_qemu::adapter::{Transport, guest_name, parse_transport};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::machine::accel::Accel;
use vrnic_qemu::machine::paths::Paths;
use vrnic_qemu::machine::progress::step;
use vrnic_qemu::machine::room;
use vrnic_qemu::machine::terminal::attach;
use vrnic_qemu::modules;
use vrnic_qemu::pair::{GUESTS_MAX, Options, Pair};
use vrnic_qemu::traffic::mesh::run_mesh;
use vrnic_qemu::traffic::perftest::{Case, IWARP_SET, SET, first_of_each_tool, run_set, summary};

const MOST_USED: &str = "\
Most used:
  scripts/run            # one test of each of perftest's tools, and one table
  scripts/run --all      # all tests
  scripts/run --shell a  # a shell in guest a";

/// Boots guests with a stock Debian kernel, each with a vrnic adapter, loads vrnic.ko and runs
/// perftest between the first two of them.
#[derive(Debug, Parser)]
#[command(name = "scripts/run", bin_name = "scripts/run", before_help = MOST_USED)]
struct Args {
    /// Number of guests, which are named a, b, c and so on. With more than two, ib_write_bw and
    /// rping also run between each two guests
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = value_parser!(u8).range(2..=i64::from(GUESTS_MAX)))]
    guests: u8,

    /// Open a shell in this guest instead of running tests. Ctrl-] leaves it and ends all guests
    #[arg(long, value_name = "GUEST")]
    shell: Option<Name>,

    /// Run this shell command in guest a instead of tests, or in guest b with 'b:' before it, and
    /// so on. Repeat the option for more commands
    #[arg(long, value_name = "COMMAND")]
    exec: Vec<String>,

    /// Copy this program into the guests, to /usr/bin. Repeat the option for more programs
    #[arg(long, value_name = "PROGRAM")]
    file: Vec<PathBuf>,

    /// Take everything from this image of scripts/image, and install and build nothing. With an
    /// address, its checksum is at the same address with .sha256 after it
    #[arg(long, value_name = "IMAGE|URL")]
    prebuilt: Option<String>,

    /// Run all tests of the set, and not only the first one of each tool
    #[arg(long)]
    all: bool,

    /// Run only those of all tests whose tool and options contain this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,

    /// Also print perftest's output of each test
    #[arg(long)]
    verbose: bool,

    /// Number of virtual processors of each guest
    #[arg(long, default_value_t = 1)]
    cpus: u32,

    /// Memory of each guest in MiB
    #[arg(long, default_value_t = 1536)]
    memory: u32,

    /// Number of adapters of each guest
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u8).range(1..=4))]
    adapters: u8,

    /// The protocol of the adapters. The set of tests for iWARP connects by the RDMA connection
    /// manager: rping, and perftest with -R
    #[arg(long, value_name = "roce|iwarp", default_value = "roce", value_parser = parse_transport)]
    personality: Transport,

    /// Give each guest a daemon of its own, joined by trunks, so that the guests reach each other
    /// by packets
    #[arg(long)]
    wire: bool,

    /// Put each guest's adapter behind a PCIe switch, with an NVMe controller whose disk has MIB
    /// MiB. The two can reach each other's memory. The controller's driver is loaded, and the tests
    /// end with transfers between the disk and the peer that do not use RAM
    #[arg(long, value_name = "MIB", num_args = 0..=1, default_missing_value = "64")]
    p2p: Option<u32>,

    /// Give the guests' kernels more parameters, such as 'init_on_alloc=0 slub_debug=FZP', by which
    /// a kernel finds accesses to memory that is not allocated
    #[arg(long, value_name = "PARAMETERS", default_value = "")]
    kernel: String,

    /// Do not load vrnic.ko
    #[arg(long)]
    no_module: bool,

    /// Only find out which accelerator guests have, and keep the result in the cache. The scripts
    /// do so while they build what guests need
    #[arg(long, hide = true)]
    accelerator: bool,
}

/// The number of a guest, from its letter.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Name(u8);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = (0..GUESTS_MAX).find(|number| guest_name(*number) == text);
        let last = guest_name(GUESTS_MAX - 1);
        number.map(Self).ok_or_else(|| format!("guests are named by a letter, a to {last}"))
    }
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let start = Instant::now();
    if args.accelerator {
        Accel::choose(&Paths::from_env()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(Name(number)) = args.shell {
        let name = guest_name(number);
        ensure!(number < args.guests, "there is no guest {name} among {}", args.guests);
    }
    room::check(args.guests, args.memory)?;
    let mut files: Vec<_> =
        args.file.iter().map(|program| program_file(program)).collect::<Result<_>>()?;
    if args.p2p.is_some() {
        files.extend(modules::files(&modules::NVME)?);
    }
    let options = Options {
        guests: args.guests,
        cpus: args.cpus,
        memory: args.memory,
        adapters: args.adapters,
        personality: args.personality,
        apart: args.wire,
        module: !args.no_module,
        kernel: args.kernel.clone(),
        files,
        disk: args.p2p,
        ..Options::default()
    };
    step(format!("booting {} guests", args.guests));
    let pair = Pair::boot(options)?;
    step(format!(
        "all guests are up after {:.1} s, under {:?}",
        start.elapsed().as_secs_f64(),
        pair.accel()
    ));
    if args.p2p.is_some() {
        pair.guests().try_for_each(modules::load_nvme)?;
    }
    if let Some(name) = args.shell {
        let guest = guest(&pair, name)?;
        let about =
            format!("shell in guest {}; Ctrl-] leaves and ends all guests", guest.setup().name);
        eprintln!("{about}");
        attach(&guest.shell_socket(), "")?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.exec.is_empty() {
        return exec(&pair, &args.exec);
    }
    table(&pair, &args)
}

/// Runs the tests and prints the table.
fn table(pair: &Pair, args: &Args) -> Result<ExitCode> {
    let set = match args.personality {
        Transport::Roce => SET,
        Transport::Iwarp => IWARP_SET,
    };
    let chosen = chosen(set, args);
    let mut outcomes = run_set(pair, &chosen, args.verbose)?;
    if args.guests > 2 {
        outcomes.extend(run_mesh(pair, &args.only, args.verbose)?);
    }
    ensure!(
        !outcomes.is_empty(),
        "there is no test whose tool and options contain '{}'",
        args.only
    );
    println!("\n{}", summary(&outcomes));
    if args.p2p.is_some() {
        println!("{}", vrnic_qemu::traffic::transfers::table(pair)?);
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.passed()).count();
    println!("{} passed, {failed} failed", outcomes.len() - failed);
    if !args.all && args.only.is_empty() {
        println!("scripts/run --all runs all {} tests of perftest", set.len());
    }
    if failed > 0 {
        eprintln!("{}", pair.report());
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the tests of the set that the options ask for.
fn chosen(set: &[Case], args: &Args) -> Vec<Case> {
    if !args.all && args.only.is_empty() {
        return first_of_each_tool(set);
    }
    let asked = |case: &&Case| format!("{} {}", case.tool, case.options).contains(&args.only);
    set.iter().filter(asked).cloned().collect()
}

/// Returns the guest with this name.
fn guest(pair: &Pair, Name(number): Name) -> Result<&Guest> {
    let guest = pair.guests().nth(usize::from(number));
    guest.with_context(|| format!("there is no guest {}", guest_name(number)))
}

/// Returns the path in the guests and the content of a program of this machine.
fn program_file(program: &Path) -> Result<(String, Vec<u8>)> {
    let failure = || format!("cannot copy {} into the guests", program.display());
    let name = program.file_name().and_then(OsStr::to_str).with_context(failure)?;
    let content = fs::read(program).with_context(failure)?;
    Ok((format!("/usr/bin/{name}"), content))
}

/// Runs commands in order and prints their output. The exit code is that of the last command.
fn exec(pair: &Pair, commands: &[String]) -> Result<ExitCode> {
    let mut code = 0;
    for command in commands {
        let named =
            command.split_once(':').and_then(|(name, script)| Some((name.parse().ok()?, script)));
        let (name, script) = named.unwrap_or((Name(0), command));
        let output = guest(pair, name)?.agent().run(script, Duration::from_secs(300))?;
        print!("{}", output.stdout);
        eprint!("{}", output.stderr);
        code = output.code;
    }
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn all_tests_run_only_where_that_is_asked_for() {
        let number = |options: &[&str]| {
            let words = std::iter::once("run").chain(options.iter().copied());
            chosen(SET, &Args::parse_from(words)).len()
        };
        assert_eq!(number(&[]), 8);
        assert_eq!(number(&["--all"]), SET.len());
        assert_eq!(number(&["--only", "ib_write_bw"]), 7);
        assert_eq!(number(&["--all", "--only", "ib_write_bw"]), 7);
    }

    #[test]
    fn scripts_run_knows_the_options() {
        vrnic_qemu::help::check("run", Args::command());
    }
}
