//! Measures vrnic beside the kernel's software RDMA devices, in one pair of guests and in one run.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`plan`] | devices, operations, sizes, numbers of messages |
//! | [`guests`] | one device after the other in both guests, and perftest over it |
//! | [`host`] | what the machine itself can do: memcpy, the three-thread relay |
//! | [`machine`] | what a reader has to know of the machine |
//! | [`results`] | figures, ratios, JSON |
//! | [`markdown`] | tables |
//! | [`chart`] | SVG charts |

mod chart;
mod guests;
mod host;
mod machine;
mod markdown;
mod plan;
mod results;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_qemu::progress::step;

use crate::machine::Machine;
use crate::plan::{Device, SIZES};
use crate::results::Results;

/// Boots two guests and measures perftest over vrnic, rxe and siw in them, and on the host memcpy of the same
/// blocks and a word relayed between threads. Prints Markdown. Other work on the machine spoils the figures.
#[derive(Debug, Parser)]
struct Args {
    /// Devices to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "vrnic,rxe,siw")]
    devices: Vec<Device>,

    /// Message sizes in bytes; 8 and 65536 are needed for the ratios
    #[arg(long, value_delimiter = ',', default_values_t = SIZES,
          value_parser = clap::value_parser!(u64).range(2..=8 << 20))]
    sizes: Vec<u64>,

    /// Write all figures and the ratios to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write SVG charts into this folder
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,

    /// siw.ko for the guests' kernel; scripts/bench builds it
    #[arg(long, value_name = "FILE")]
    siw: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let results = measure(&args)?;
    println!("{}", markdown::markdown(&results, &args.devices, &args.sizes));
    if let Some(file) = &args.json {
        fs::write(file, results.json()? + "\n")
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(dir) = &args.charts {
        chart::write_all(&results, &args.devices, dir)
            .with_context(|| format!("cannot write charts into {}", dir.display()))?;
    }
    Ok(if results.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(args: &Args) -> anyhow::Result<Results> {
    let mut machine = Machine::look();
    step("booting two guests");
    let pair = Pair::boot(options(args)?)?;
    machine.guests(&pair)?;
    step("measuring the host");
    let mut results = Results {
        machine,
        memcpy: args.sizes.iter().map(|&bytes| host::memcpy(bytes)).collect(),
        relay: host::relays(),
        bandwidth: Vec::new(),
        latency: Vec::new(),
        failures: Vec::new(),
    };
    // Ours is there from the boot, so it comes first whatever the order of the table.
    let mut order = args.devices.clone();
    order.sort_by_key(|&device| device != Device::Vrnic);
    order.dedup();
    for device in order {
        step(format!("measuring {device}"));
        guests::measure(&pair, device, &args.sizes, &mut results)?;
    }
    Ok(results)
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let mut files = Vec::new();
    if args.devices.contains(&Device::Siw) {
        let module = args.siw.as_ref().context("siw needs --siw FILE; scripts/bench gives it")?;
        let data = fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
        files.push((guests::SIW_MODULE.to_owned(), data));
    }
    let module = args.devices.contains(&Device::Vrnic);
    Ok(Options { module, files, ..Options::default() })
}
