//! Measures the daemon without a guest: a driver in this process, `vrnicd` in another, a real
//! vfio-user socket between them.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`rig`] | the daemon and two connected endpoints; what its worker has used of a processor |
//! | [`latency`] | doorbell to completion, one at a time |
//! | [`rate`] | operations per second |
//! | [`keys`] | looking keys up, making and ending them |
//! | [`events`] | completion events: handlers that sleep, queues armed at random |
//! | [`idle`] | many idle QPs next to a busy one, and their memory |
//! | [`direct`] | device memory, and transfers of a controller next to the adapter |
//! | [`external_memory`] | memory of another device, by messages to the VMM |
//! | [`gap`], [`hostile`] | how long a hostile guest keeps an honest one waiting; its loads |
//! | [`fabric`] | a network in virtual time: incast with and without DCQCN and PFC |
//! | [`fairness`] | an honest pair next to 15 functions that do their worst |
//! | [`raw`] | raw packets between two functions |
//! | [`scatter`] | memory whose pages lie in no order |
//! | [`mesh`] | many functions on four daemons, each connected to every other one |
//! | [`wire`] | messages that travel as packets, in one daemon and between two |
//! | [`sweep`] | many busy QPs, and many workers |
//! | [`yardstick`] | memcpy and a cache line between two threads, to compare with |
//! | [`report`] | the figures, as a Markdown table and as JSON |
#![forbid(unsafe_code)]

mod direct;
mod events;
mod external_memory;
mod fabric;
mod fairness;
mod gap;
mod hostile;
mod idle;
mod keys;
mod latency;
mod mesh;
mod rate;
mod raw;
mod report;
mod rig;
mod scatter;
mod sweep;
mod wire;
mod yardstick;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use vrnic_figures::{Operation, Quantity, Subject, Way};

use crate::rate::Runs;
use crate::report::Report;
use crate::rig::{Pair, Rig};
use crate::scatter::Scattered;

/// Measures vrnicd without a guest. Each figure is the best of several runs, since another program
/// on the machine can only make one worse.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Path of the daemon [default: vrnicd next to this program]
    #[arg(long)]
    daemon: Option<PathBuf>,
    /// Write all figures and ratios to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Number of runs of each measurement; the best counts
    #[arg(long, default_value_t = 5)]
    repeats: u32,
    /// Duration of each run of a rate, in ms
    #[arg(long, default_value_t = 200)]
    span: u64,
    /// Number of idle QPs, or connections of iWARP, next to the busy one
    #[arg(long, default_value_t = 9_999)]
    idle_qps: u32,
    /// Pin the daemon's worker to this CPU
    #[arg(long)]
    pin: Option<usize>,
    /// Write pictures of the network in virtual time into this folder
    #[arg(long)]
    pictures: Option<PathBuf>,
    /// Number of functions on four daemons together
    #[arg(long, default_value_t = 256)]
    functions: usize,
    /// Number of events of queues that are armed at random
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    /// Measure only these parts [default: those that take less than a minute each]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

/// Parts that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Latency and rates of small messages, the send queue in guest memory
    Guest,
    /// Latency and rates of small messages, the send queue in device memory
    Device,
    /// Bandwidth against memcpy
    Large,
    /// A busy QP among idle ones
    Idle,
    /// Keys: look-up, registration, binding
    Keys,
    /// Many busy QPs, and many workers
    Sweep,
    /// Completion events
    Events,
    /// Device memory, and transfers of a controller next to the adapter; only if selected
    Direct,
    /// Memory of another device, by messages to the VMM; only if selected
    Messages,
    /// The longest waits next to hostile guests; only if selected
    Gap,
    /// An honest pair next to 15 functions that do their worst; only if selected
    Fairness,
    /// A network in virtual time, which needs no daemon; only if selected
    Fabric,
    /// Many connected functions on four daemons, with few active connections; only if selected
    Mesh,
    /// Messages of iWARP: between queue pairs of one daemon, next to RoCE, and of two daemons; only
    /// if selected
    Iwarp,
    /// The part of iwarp with TAP devices; only if selected
    Tap,
    /// Raw packets between two functions of a daemon; only if selected
    Raw,
    /// TCP streams by queue pairs; only if selected
    Toe,
    /// Messages that travel as packets; only if selected
    Wire,
}

impl Part {
    /// Returns whether it is measured without being selected. The others take minutes.
    fn is_default(self) -> bool {
        use Part::{Device, Events, Guest, Idle, Keys, Large, Sweep};
        matches!(self, Guest | Device | Large | Idle | Keys | Sweep | Events)
    }
}

impl Args {
    fn wants(&self, part: Part) -> bool {
        if self.only.is_empty() { part.is_default() } else { self.only.contains(&part) }
    }
}

/// Sizes whose rates are measured, in bytes.
const SMALL: [u32; 3] = [8, 64, 4096];
/// Sizes compared with memcpy, in bytes.
const LARGE: [u32; 2] = [64 << 10, 1 << 20];

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.wants(Part::Fabric) {
        fabric::measure(args.pictures.as_deref())?;
    }
    if args.only == [Part::Fabric] { Ok(()) } else { measure(&args) }
}

/// Measures the parts that need a daemon.
fn measure(args: &Args) -> anyhow::Result<()> {
    let daemon = match &args.daemon {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("vrnicd"),
    };
    let rig = Rig::start(&daemon, 1, args.pin)?;
    let mut report = Report::default();
    let runs = Runs { repeats: args.repeats, span: Duration::from_millis(args.span) };
    two_functions(&mut report, &rig, args, runs)?;
    drop(rig);
    if args.wants(Part::Sweep) {
        sweep::measure(&mut report, &daemon, runs)?;
    }
    if args.wants(Part::Events) {
        events::measure(&mut report, &daemon, args.events, runs)?;
    }
    if args.wants(Part::Gap) {
        gap::measure(&mut report, &daemon, args.repeats, args.pin)?;
    }
    if args.wants(Part::Fairness) {
        fairness::measure(&mut report, &daemon, args.repeats, args.pin)?;
    }
    if args.wants(Part::Direct) {
        direct::measure(&mut report, &daemon, args.pin, runs)?;
    }
    if args.wants(Part::Messages) {
        external_memory::measure(&mut report, &daemon, runs)?;
    }
    if args.wants(Part::Mesh) {
        mesh::measure(&mut report, &daemon, args.functions)?;
    }
    if args.wants(Part::Iwarp) {
        wire::iwarp::pairs(&mut report, &daemon, runs)?;
        let idle = u16::try_from(args.idle_qps).unwrap_or(u16::MAX);
        wire::iwarp::idle(&mut report, &daemon, idle, runs)?;
        wire::iwarp::between(&mut report, &daemon, runs)?;
    }
    if args.wants(Part::Tap) {
        wire::iwarp::host(&mut report, &daemon, runs)?;
    }
    if args.wants(Part::Raw) {
        raw::measure(&mut report, &daemon, args.pin, runs)?;
    }
    if args.wants(Part::Toe) {
        wire::toe::measure(&mut report, &daemon, runs)?;
    }
    if args.wants(Part::Wire) {
        wire::measure(&mut report, &daemon, runs)?;
    }
    print!("{}", report.markdown());
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report.json())?;
        std::fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Measures the parts with two functions of one daemon.
fn two_functions(report: &mut Report, rig: &Rig, args: &Args, runs: Runs) -> anyhow::Result<()> {
    for (part, in_device) in [(Part::Guest, false), (Part::Device, true)] {
        if args.wants(part) {
            let mut pair = Pair::new(rig, in_device);
            let way = if in_device { Way::QueueInDevice } else { Way::QueueInGuest };
            small(report, rig, &mut pair, way, runs)?;
        }
    }
    if args.wants(Part::Large) {
        let mut pair = Pair::new(rig, false);
        report.beside_round_trips(|report| large(report, rig, &mut pair, runs))?;
        report.beside_round_trips(|report| scattered(report, rig, &mut pair, runs))?;
    }
    if args.wants(Part::Idle) {
        report.beside_round_trips(|report| idle::measure(report, rig, args.idle_qps, runs))?;
    }
    if args.wants(Part::Keys) {
        report.beside_round_trips(|report| keys::measure(report, rig, runs))?;
    }
    Ok(())
}

/// Measures latency, and rates of small messages.
fn small(
    report: &mut Report,
    rig: &Rig,
    pair: &mut Pair,
    way: Way,
    runs: Runs,
) -> anyhow::Result<()> {
    let line = yardstick::ping_pong(runs.repeats)?;
    report.figure(Subject::CacheLine(way), Quantity::Micros, line);
    report.beside_round_trips(|report| {
        let latency = latency::best(pair, runs.repeats)?;
        report.histogram(Subject::Latency(way), &latency);
        Ok(())
    })?;
    for operation in [Operation::Write, Operation::Read, Operation::Send] {
        for len in SMALL {
            report.beside_round_trips(|report| {
                let rate = rate::best(rig, pair, operation, len, runs)?;
                let subject = Subject::Messages(len, operation, way);
                report.figure(subject, Quantity::Millions, rate.per_second() / 1e6);
                report.figure(subject, Quantity::WorkerNs, rate.worker_ns());
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Measures bandwidth, and compares it with memcpy.
fn large(report: &mut Report, rig: &Rig, pair: &mut Pair, runs: Runs) -> anyhow::Result<()> {
    for len in LARGE {
        for operation in [Operation::Write, Operation::Read] {
            let [moved, copied, private] = runs.best(|span| {
                let rate = rate::run(rig, pair, operation, len, span)?;
                let moved = rate.per_second() * f64::from(len);
                let copied = yardstick::same_block(pair, len as usize, span)?;
                Ok([moved, copied, yardstick::memcpy(len as usize, span)])
            })?;
            let kib = len >> 10;
            let others = [
                (Subject::SameBlock(kib, operation), copied, Quantity::ToMemcpy),
                (Subject::PrivateMemory(kib, operation), private, Quantity::ToPrivateMemcpy),
            ];
            report.bandwidth(Subject::Large(kib, operation), moved, &others);
        }
    }
    Ok(())
}

/// Measures bandwidth between buffers whose pages are in random order, and compares it with memcpy
/// of the same pages.
fn scattered(report: &mut Report, rig: &Rig, pair: &mut Pair, runs: Runs) -> anyhow::Result<()> {
    let len = LARGE[LARGE.len() - 1] as usize;
    let both = [Scattered::new(&pair.a, len, 1)?, Scattered::new(&pair.b, len, 2)?];
    (pair.a.key, pair.b.key) = (both[0].key, both[1].key);
    for len in LARGE {
        for operation in [Operation::Write, Operation::Read] {
            let [moved, copied] = runs.best(|span| {
                let rate = rate::run(rig, pair, operation, len, span)?;
                let copied = yardstick::same_pages(pair, &both, len as usize, span)?;
                Ok([rate.per_second() * f64::from(len), copied])
            })?;
            let kib = len >> 10;
            let other = (Subject::SamePages(kib, operation), copied, Quantity::ToSamePages);
            report.bandwidth(Subject::Scattered(kib, operation), moved, &[other]);
        }
    }
    Ok(())
}
