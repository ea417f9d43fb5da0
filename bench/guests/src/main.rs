//! Measures vrnic next to the kernel's software RDMA devices, in one pair of guests and in one run.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`plan`] | devices, operations, sizes, numbers of messages |
//! | [`guests`] | one device after the other in both guests, and perftest over it |
//! | [`host`] | what the machine itself can do: memcpy, the three-thread relay |
//! | [`machine`] | what a reader has to know of the machine |
//! | [`native`] | the harness that measures the daemon without guests |
//! | [`streams`] | one TCP stream by queue pairs, and by sockets of the guests' kernels |
//! | [`results`] | figures |
//! | [`goals`] | the ratios that are quoted, and what is aimed at |
//! | [`json`] | the results as JSON |
//! | [`markdown`] | the report |
//! | [`chart`] | SVG charts |
#![forbid(unsafe_code)]

mod chart;
mod goals;
mod guests;
mod host;
mod json;
mod machine;
mod markdown;
mod native;
mod plan;
#[cfg(test)]
mod published;
mod results;
mod streams;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::machine::progress::step;
use vrnic_qemu::pair::{Options, Pair};

use crate::guests::{Deadline, Effort};
use crate::machine::Machine;
use crate::plan::{Device, SIZES, Test};
use crate::results::{Failure, Results};

/// Time limit of the measurement without guests. Its parts in a default run take about two minutes
/// together, and those for iWARP four.
const NATIVE_TIMEOUT: Duration = Duration::from_secs(360);

/// Default of the time for all tests, in seconds. A run ends within 12 minutes.
const LIMIT: u64 = 660;

const MOST_USED: &str = "\
Most used:
  scripts/bench                           # the figures of docs/benchmarks, as Markdown
  scripts/bench --devices vrnic           # without rxe and siw
  scripts/bench --devices vrnic-iwarp,siw # adapters with iWARP";

/// Measures the daemon without guests. Then boots two guests and measures perftest over vrnic, rxe
/// and siw in them; and, on the host, memcpy of the same blocks and a word relayed between threads.
/// Prints Markdown. Other work on the machine spoils the figures.
#[derive(Debug, Parser)]
#[command(name = "scripts/bench", bin_name = "scripts/bench", before_help = MOST_USED)]
struct Args {
    /// Kinds of adapters to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "vrnic,rxe,siw")]
    devices: Vec<Device>,

    /// Message sizes in bytes. The ratios need 8, 65536, 262144 and 1048576
    #[arg(long, value_delimiter = ',', default_values_t = SIZES,
          value_parser = clap::value_parser!(u64).range(2..=8 << 20))]
    sizes: Vec<u64>,

    /// Write all figures and ratios to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write SVG charts into this folder
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,

    /// Program that measures the daemon without guests [default: vrnic-bench beside this program]
    #[arg(long, value_name = "FILE")]
    native: Option<PathBuf>,

    /// Number of tries of each test in the guests; the best counts
    #[arg(long, default_value_t = 2)]
    repeats: usize,

    /// Begin no test after this many seconds, and report what has been measured. The tests that
    /// ratios need come first
    #[arg(long, default_value_t = LIMIT)]
    limit: u64,

    /// Let messages travel as packets: measure them without guests, then in guests of two daemons
    /// that a trunk joins
    #[arg(long)]
    wire: bool,

    /// Measure only one TCP stream between two guests: by queue pairs, and by sockets of their
    /// kernels
    #[arg(long)]
    streams: bool,

    /// Path of siw.ko for the guests' kernel; scripts/bench builds it
    #[arg(long, value_name = "FILE", hide = true)]
    siw: Option<PathBuf>,
}

impl Args {
    /// Returns whether this is true of a device.
    fn has(&self, is: impl Fn(Device) -> bool) -> bool {
        self.devices.iter().any(|&device| is(device))
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if args.streams {
        print!("{}", streams::measure()?);
        return Ok(ExitCode::SUCCESS);
    }
    let results = measure(&args)?;
    print!("{}", markdown::report(&results, &args.devices, &args.sizes, args.charts.is_some()));
    if let Some(file) = &args.json {
        fs::write(file, json::text(&results)? + "\n")
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(dir) = &args.charts {
        chart::write_all(&results, &args.devices, dir)
            .with_context(|| format!("cannot write charts into {}", dir.display()))?;
    }
    // A failure of another device is a result, one of vrnic is an error.
    let failed = results.failures.iter().any(|failure| failure.device.is_ours());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn measure(args: &Args) -> anyhow::Result<Results> {
    let deadline = Deadline::within(Duration::from_secs(args.limit));
    let effort = Effort { repeats: args.repeats, deadline };
    let iwarp = args.has(Device::has_iwarp_adapter);
    anyhow::ensure!(
        !(iwarp && args.devices.contains(&Device::Vrnic)),
        "one run measures adapters with RoCE or with iWARP, not both"
    );
    let machine = Machine::detect();
    let mut results = Results { wire: args.wire, iwarp, machine, ..Results::default() };
    if args.has(Device::is_ours) {
        daemon(args, &mut results)?;
    }
    step("booting two guests");
    let pair = Pair::boot(options(args)?)?;
    results.machine.guests(&pair)?;
    let mut order = args.devices.clone();
    order.sort_by_key(|device| device.place());
    order.dedup();
    // First the tests of all devices that ratios need, so that the time suffices for them.
    let (quoted, others): (Vec<_>, Vec<_>) =
        Test::all(&args.sizes).into_iter().partition(|test| test.is_quoted());
    for tests in [quoted, others].iter().filter(|tests| !tests.is_empty()) {
        for &device in &order {
            step(format!("measuring {device}"));
            guests::measure(&pair, device, tests, effort, &mut results)?;
        }
    }
    Ok(results)
}

/// Measures the daemon without guests.
fn daemon(args: &Args, results: &mut Results) -> anyhow::Result<()> {
    step("measuring the daemon without guests");
    let program = match &args.native {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("vrnic-bench"),
    };
    let parts: &[&str] = match (results.iwarp, args.wire) {
        (true, _) => &["--only", "iwarp,wire"],
        (false, true) => &["--only", "wire"],
        (false, false) => &[],
    };
    match native::measure(&program, parts, NATIVE_TIMEOUT) {
        Ok(native) => results.native = Some(native),
        Err(error) => results.failures.push(Failure {
            device: Device::Vrnic,
            test: program.display().to_string(),
            code: 1,
            text: format!("{error:#}"),
        }),
    }
    Ok(())
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let mut files = Vec::new();
    if args.has(Device::has_siw) {
        let module =
            args.siw.as_ref().context("measuring siw needs --siw FILE; scripts/bench passes it")?;
        let data = fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
        files.push((guests::SIW_MODULE.to_owned(), data));
    }
    let iwarp = args.has(Device::has_iwarp_adapter);
    let module = iwarp || args.has(Device::is_ours);
    let personality = if iwarp { Transport::Iwarp } else { Transport::Roce };
    // siw asks for no CRCs, so its connections have them only if the adapter asks.
    let mixed = args.devices.contains(&Device::Mixed);
    let daemon = if mixed { vec!["--mpa-crc".to_owned(), "asked".to_owned()] } else { Vec::new() };
    Ok(Options { module, personality, files, daemon, apart: args.wire, ..Options::default() })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn scripts_bench_knows_the_options() {
        vrnic_qemu::help::check("bench", Args::command());
    }
}
