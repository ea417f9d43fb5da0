//! `vrnic`: shows the adapters of a running vrnicd, and changes what it serves. The program itself
//! is in the daemon's package, whose tests run both programs.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`change`] | functions, ports and uplinks of a running daemon |
//! | [`check`] | a program that runs with the checker of verbs |
//! | [`client`] | requests to the daemon |
//! | [`exec`] | a program that runs with adapters of its own |
//! | [`fault`] | rules for fault injection |
//! | [`manual`] | manual pages and completions for shells |
//! | [`pcap`], [`files`] | captures, and the files that they are written to |
//! | [`columns`] | columns of tables of objects |
//! | [`profiles`] | a program that runs once for each profile of another device |
//! | [`resources`] | the table of resources, and changes of it |
//! | [`show`] | tables of objects |
//! | [`trace`] | the timeline of a queue pair |
//! | [`top`] | rates of the adapters, refreshed |
#![forbid(unsafe_code)]

mod change;
mod check;
mod client;
mod columns;
mod exec;
mod fault;
mod files;
mod manual;
mod pcap;
mod profiles;
mod resources;
mod show;
mod top;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use vrnic_control_api::Address;
use vrnic_exec::adapter::switch::Start;

use crate::client::Client;
use crate::show::Kind;

const MOST_USED: &str = "\
Most used:
  vrnic top                                  # what all functions do, refreshed
  vrnic show qp                              # all queue pairs, and how full their queues are
  vrnic fault add drop-message function=a every=100";

/// Shows the adapters of a running vrnicd, which must have been started with --monitor, and changes
/// what it serves, if it was started with --control.
#[derive(Debug, Parser)]
#[command(name = "vrnic", version, before_help = MOST_USED)]
struct Args {
    /// Path or ADDRESS:PORT that was given to vrnicd --monitor
    #[arg(short, long, env = "VRNIC_MONITOR", default_value = "/run/vrnic/monitor.sock")]
    monitor: Address,
    /// Path that was given to vrnicd --control, for the commands that change something
    #[arg(long, env = "VRNIC_CONTROL", default_value = "/run/vrnic/control.sock")]
    control: PathBuf,
    /// Folder with both sockets, monitor.sock and control.sock, as `vrnic exec --sockets` has it,
    /// instead of --monitor and --control
    #[arg(long, value_name = "FOLDER")]
    sockets: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show adapters, queues, keys or counters
    Show {
        /// Kind of the objects
        kind: Kind,
        /// Show only this function
        #[arg(short, long)]
        function: Option<String>,
        /// Print JSON: an array with an entry for each function, which has its name and its objects
        #[arg(long)]
        json: bool,
    },
    /// Show the rates of all functions, and refresh them. On a terminal, Enter opens the queue
    /// pairs of a function, and then a single queue pair. Otherwise each refresh prints a table
    Top {
        /// Seconds between two refreshes
        #[arg(short, long, default_value_t = 1.0, value_parser = top::parse_interval)]
        interval: f64,
        /// Number of refreshes; 0 means until interrupted
        #[arg(short = 'n', long, default_value_t = 0)]
        looks: u64,
    },
    /// Show how much of each resource each function can use (maximum) and uses (actual). Row 0 has
    /// the amounts of all functions together: what they can have, and what is assigned to them
    Resources(resources::Resources),
    /// Change how much of resources a function, or all functions together, can have
    Assign(resources::Change),
    /// Print the metrics in the form that Prometheus reads
    Metrics,
    /// Add, remove or list functions of the running daemon
    #[command(subcommand)]
    Function(change::Function),
    /// Add, remove or list ports for guests without an adapter
    #[command(subcommand)]
    Port(change::Port),
    /// Add, remove or list uplinks
    #[command(subcommand)]
    Uplink(change::Uplink),
    /// Set, remove or list lanes: classes of service, rates, marks and flow control of a port
    #[command(subcommand)]
    Lanes(change::Lanes),
    /// Add, list or clear rules for fault injection
    #[command(subcommand)]
    Fault(fault::Fault),
    /// Print what the adapter does for a queue pair, and when: doorbells, work requests, packets or
    /// copies, completions, events and interrupts. A step has its time in nanoseconds, the time
    /// since the step before, its name and its values
    Trace(trace::Trace),
    /// Write the traffic of a function, a port or an uplink to a file that Wireshark reads
    Pcap(pcap::Pcap),
    /// Run a program with adapters of its own, without a daemon, a virtual machine or a kernel
    /// module. All its children have them, too
    Exec(exec::Exec),
    /// Run a program, and name the mistakes that it makes with verbs. All its children are checked,
    /// too. The devices may be any
    Check(check::Check),
    /// Write the manual pages and completions of vrnic and vrnicd into a folder
    #[command(hide = true)]
    Manual {
        /// The folder
        folder: PathBuf,
    },
}

/// Runs the command. `daemon` returns the options of vrnicd, for its manual page; `switch` starts a
/// switch for `vrnic exec --join`.
#[must_use]
pub fn main(daemon: fn() -> clap::Command, switch: Start) -> ExitCode {
    let mut args = Args::parse();
    if let Some(folder) = &args.sockets {
        args.monitor = Address::Path(folder.join("monitor.sock"));
        args.control = folder.join("control.sock");
    }
    if let Command::Exec(exec) = args.command {
        return exec::main(exec, switch);
    }
    if let Command::Check(check) = args.command {
        return check::main(check);
    }
    match run(args, daemon) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vrnic: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args, daemon: fn() -> clap::Command) -> anyhow::Result<()> {
    let client = Client::new(args.monitor)?;
    match args.command {
        Command::Function(change) => change::run(&args.control, change.into()),
        Command::Port(change) => change::run(&args.control, change.into()),
        Command::Uplink(change) => change::run(&args.control, change.into()),
        Command::Lanes(change) => change::run(&args.control, change.into()),
        Command::Pcap(command) => pcap::run(&args.control, &command),
        Command::Fault(command) => fault::run(&args.control, command),
        Command::Trace(command) => trace::run(&args.control, &command),
        Command::Resources(shown) => resources::show(&client, &shown),
        Command::Assign(change) => resources::assign(&args.control, change),
        Command::Show { kind, function, json } => show::show(&client, kind, function, json),
        Command::Top { interval, looks } => top::top(&client, interval, looks),
        Command::Exec(_) | Command::Check(_) => unreachable!("`main` runs it"),
        Command::Manual { folder } => manual::write(&folder, daemon()),
        Command::Metrics => client.get("/metrics").map(|text| print!("{text}")),
    }
}
