//! Measures how long an honest pair of guests waits when another pair, on the same worker, does its
//! worst: 64 B WRITEs one at a time, during each of the loads of [`crate::hostile`].

use std::path::Path;
use std::time::{Duration, Instant};

use vrnic_figures::Quantity::{Longest, Median, P99};
use vrnic_figures::{Load, Subject};
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::vfio::Endpoint;

use crate::hostile::{self, Villain};
use crate::latency::{self, Latencies};
use crate::report::Report;
use crate::rig::Pair;

/// Measures the waits during each load. The loads are put on by the thread that measures: as many
/// threads run as in all other measurements.
///
/// # Errors
/// When an operation of the honest pair fails.
pub(crate) fn measure(
    report: &mut Report,
    daemon: &Path,
    repeats: u32,
    pin: Option<usize>,
) -> anyhow::Result<()> {
    for load in hostile::LOADS {
        let mut times = Vec::new();
        for _ in 0..repeats {
            times.extend(beside(load, &start(daemon, 4, pin)?)?);
        }
        let times = Latencies::new(times);
        for (quantity, part) in [(Median, 500), (P99, 990), (Longest, 1000)] {
            report.figure(Subject::Beside(load), quantity, times.quantile(part));
        }
    }
    Ok(())
}

/// Starts a daemon with this many functions and one worker, on the CPU `pin` if there is one.
pub(crate) fn start(daemon: &Path, functions: usize, pin: Option<usize>) -> anyhow::Result<Daemon> {
    let pin = pin.map(|cpu| cpu.to_string());
    let mut args = vec!["--workers", "1"];
    args.extend(pin.iter().flat_map(|cpu| ["--pin", cpu.as_str()]));
    Daemon::start(daemon, functions, &args)
}

/// Returns the honest pair, on the first two functions of a daemon.
pub(crate) fn honest(daemon: &Daemon) -> Pair {
    let [first, second] = [daemon.ready_guest(0), daemon.ready_guest(1)];
    let setup = Setup { log_cqes: 8, log_stride: 7, ..Setup::default() };
    let pair = Pair { a: Endpoint::new(&first, setup), b: Endpoint::new(&second, setup) };
    Endpoint::connect_pair(&pair.a, &pair.b);
    pair
}

/// Returns the times of an honest pair's writes during a load.
fn beside(load: Load, daemon: &Daemon) -> anyhow::Result<Vec<u64>> {
    let mut pair = honest(daemon);
    let [near, far] = [daemon.ready_guest(2), daemon.ready_guest(3)];
    let villain = Villain::new(&near, &far)?;
    let burst = villain.prepare(load)?;
    ping(&mut pair, Duration::from_millis(2));
    burst.start();
    Ok(ping(&mut pair, hostile::span(load)))
}

/// Writes for `span`; the times in ns.
pub(crate) fn ping(pair: &mut Pair, span: Duration) -> Vec<u64> {
    let wqe = latency::request(pair);
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < span {
        times.push(latency::once(pair, &wqe));
    }
    times
}
