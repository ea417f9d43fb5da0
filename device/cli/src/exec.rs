//! `vrnic exec`: runs a program with adapters of its own, without a daemon.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use vrnic_exec::environment::check;
use vrnic_exec::run::{Options, run};
use vrnic_exec::trap::launch::NotExecuted;
use vrnic_faults::Rule;

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
pub(crate) fn main(exec: Exec) -> ExitCode {
    if exec.check_env {
        let (report, fits) = check();
        print!("{report}");
        return if fits { ExitCode::SUCCESS } else { FAILED.into() };
    }
    let mut command = exec.command.into_iter();
    // clap demands one.
    let program = command.next().unwrap_or_default();
    let options = Options {
        adapters: exec.adapters,
        faults: exec.fault,
        must_hit: exec.must_hit,
        pcap: exec.pcap,
        trace: exec.trace,
        sockets: exec.sockets,
        program,
        arguments: command.collect(),
    };
    match run(&options) {
        Ok(ended) => ended.exit(),
        Err(error) => {
            eprintln!("vrnic exec: {error:#}");
            let not_executed = error.downcast_ref::<NotExecuted>();
            not_executed
                .map_or(FAILED, |NotExecuted(error)| match error.kind() {
                    std::io::ErrorKind::NotFound => NOT_FOUND,
                    _ => NOT_EXECUTABLE,
                })
                .into()
        }
    }
}
