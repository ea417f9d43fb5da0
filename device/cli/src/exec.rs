//! `vrnic exec`: runs a program with adapters of its own, without a daemon.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;

use vrnic_control_api::assignment::{Amount, Assignment};
use vrnic_exec::adapter::switch::Start;
use vrnic_exec::environment::check;
use vrnic_exec::join::folder::place;
use vrnic_exec::join::membership::Join;
use vrnic_exec::run::{Options, execute, start};
use vrnic_exec::supervisor::program::Ended;
use vrnic_exec::trap::launch::NotExecuted;
use vrnic_faults::Rule;
use vrnic_profiles::Profile;

use crate::profiles::{self, ALL};

/// Exit status if the program could not be started, as that of env(1).
const FAILED: u8 = 125;
/// Exit status if the program cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status if the program does not exist.
const NOT_FOUND: u8 = 127;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Exec {
    /// Number of adapters, up to 64. They are vrnic0 with the address 127.0.0.1, vrnic1 with
    /// 127.0.0.2, and so on
    #[arg(short = 'n', long, default_value_t = 1, value_name = "NUMBER")]
    adapters: usize,
    /// Address of vrnic0, in 127.0.0.0/8, or any with --join. The next adapter has the next address
    #[arg(long = "as", value_name = "ADDRESS")]
    address: Option<Ipv4Addr>,
    /// Join the network of all `vrnic exec` on this host that name the same. NAME is a word, or the
    /// path of a folder, which containers may share. It may also be the socket of an uplink of
    /// vrnicd, which then needs --as
    #[arg(long, value_name = "NAME")]
    join: Option<PathBuf>,
    /// The most objects that each adapter has, such as qp=4. May be repeated
    #[arg(long, value_name = "NAME=NUMBER")]
    limit: Vec<Amount>,
    /// If this host cannot run programs with adapters, say why, and run the program without them
    #[arg(long, conflicts_with_all = ["fault", "check_env"])]
    optional: bool,
    /// Let the adapters be another device for the program, with its limits and its refusals: the
    /// name of a profile in docs/exec.md, or a file with one. With `all`, the program runs once
    /// for each profile, and a table shows how it has ended
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Add a rule for deliberate faults from the start of the program to its end, such as
    /// 'drop every=100'. May be repeated
    #[arg(short, long, value_name = "RULE")]
    fault: Vec<Rule>,
    /// Fail with status 125 if a rule of --fault has hit nothing
    #[arg(long, requires = "fault")]
    must_hit: bool,
    /// Write a capture of all adapters to this file, which Wireshark reads. Messages that are
    /// copied are in it as the packets that they would be on a wire
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write what the adapters do for all queue pairs, and when, to this file: lines as those of
    /// `vrnic trace`, or a file for Perfetto if its name ends in .json
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write a report on the run to this file, as JSON: the exit status, the time, and the counters
    /// of adapters and rules
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Folder for the sockets monitor.sock and control.sock, at which the command vrnic shows and
    /// changes this run: `vrnic --sockets FOLDER top`. Without it, only the program and its
    /// children find them
    #[arg(long, value_name = "FOLDER")]
    sockets: Option<PathBuf>,
    /// Say whether this host can run programs with adapters, and end
    #[arg(long, conflicts_with = "command")]
    check_env: bool,
    /// The program and its arguments
    #[arg(
        required_unless_present = "check_env",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

/// Runs the program. Returns its exit status, or 125 to 127 if it could not be started.
pub(crate) fn main(exec: Exec, switch: Start) -> ExitCode {
    if exec.check_env {
        let (report, fits) = check();
        print!("{report}");
        return if fits { ExitCode::SUCCESS } else { FAILED.into() };
    }
    if exec.profile.as_deref() == Some(ALL) {
        return profiles::run_all();
    }
    let profile = match exec.profile.as_deref().map(Profile::find).transpose() {
        Ok(profile) => profile.unwrap_or_default(),
        Err(error) => {
            eprintln!("vrnic exec: {error:#}");
            return FAILED.into();
        }
    };
    let mut command = exec.command.into_iter();
    // clap demands one.
    let program = command.next().unwrap_or_default();
    let options = Options {
        adapters: exec.adapters,
        address: exec.address,
        join: exec.join.map(|name| Join { place: place(&name), switch }),
        limits: Assignment::last(&exec.limit),
        profile,
        faults: exec.fault,
        must_hit: exec.must_hit,
        pcap: exec.pcap,
        trace: exec.trace,
        report: exec.report,
        sockets: exec.sockets,
        program,
        arguments: command.collect(),
    };
    match start(&options) {
        Ok(running) => running.wait().map_or_else(|error| failure(&error), Ended::exit),
        Err(error) if exec.optional && !error.is::<NotExecuted>() => {
            eprintln!("vrnic exec: the program runs without adapters: {error:#}");
            failure(&execute(&options))
        }
        Err(error) => failure(&error),
    }
}

/// Prints an error. Returns its exit status.
fn failure(error: &anyhow::Error) -> ExitCode {
    eprintln!("vrnic exec: {error:#}");
    let not_executed = error.downcast_ref::<NotExecuted>();
    not_executed
        .map_or(FAILED, |NotExecuted(error)| match error.kind() {
            std::io::ErrorKind::NotFound => NOT_FOUND,
            _ => NOT_EXECUTABLE,
        })
        .into()
}
