//! Measures what an honest pair of guests keeps of its rate and of its latency next to 15 functions
//! on the same worker that do their worst, in comparison with 15 honest functions that always have
//! work.

use std::path::Path;
use std::time::Duration;

use vrnic_figures::Quantity::{Median, P99, P99ToHonest, RateToHonest, Thousands};
use vrnic_figures::{Load, Subject};
use vrnic_testdriver::vmm::daemon::Daemon;

use crate::gap::{self, ping};
use crate::hostile::Villain;
use crate::latency::Latencies;
use crate::report::Report;

/// Number of functions other than those of the pair. Each puts the load on the next one, too.
const OTHERS: usize = 15;
/// Duration of the measurement during a load.
const SPAN: Duration = Duration::from_millis(60);
/// The load of an honest pair: WRITEs of 64 bytes.
const HONEST: Load = Load::Writes(64);
/// The loads of hostile functions. All of them last longer than the measurement.
const HOSTILE: [Load; 6] = [
    Load::Multicast(256),
    Load::FailingCq(4000),
    Load::Arming(16_000),
    Load::LongMessages(32),
    Load::Flush(1 << 10),
    Load::Frames(16 << 10),
];

/// What the honest pair gets during a load.
struct Service {
    per_second: f64,
    latencies: Latencies,
}

/// Measures an idle worker, the honest load, and each hostile one.
///
/// # Errors
/// When an operation of the honest pair fails, or a command is refused.
pub(crate) fn measure(
    report: &mut Report,
    daemon: &Path,
    repeats: u32,
    pin: Option<usize>,
) -> anyhow::Result<()> {
    let mut serve = |load| -> anyhow::Result<Service> {
        let service = beside(load, daemon, repeats, pin)?;
        let subject = Subject::BesideMany(OTHERS, load);
        report.figure(subject, Thousands, service.per_second / 1e3);
        report.figure(subject, Median, service.latencies.quantile(500));
        report.figure(subject, P99, service.latencies.quantile(990));
        Ok(service)
    };
    serve(Load::Nothing)?;
    let honest = serve(HONEST)?;
    let mut hostile = Vec::new();
    for load in HOSTILE {
        hostile.push((Subject::BesideMany(OTHERS, load), serve(load)?));
    }
    for (subject, service) in hostile {
        report.figure(subject, RateToHonest, service.per_second / honest.per_second);
        let p99 = |service: &Service| service.latencies.quantile(990);
        report.figure(subject, P99ToHonest, p99(&service) / p99(&honest));
    }
    Ok(())
}

/// Returns what the honest pair gets during a load, in the best of several runs.
fn beside(load: Load, daemon: &Path, repeats: u32, pin: Option<usize>) -> anyhow::Result<Service> {
    let mut best = Vec::new();
    for _ in 0..repeats {
        let times = once(load, &gap::start(daemon, 2 + OTHERS, pin)?)?;
        if times.len() > best.len() {
            best = times;
        }
    }
    let per_second = best.len() as f64 / SPAN.as_secs_f64();
    Ok(Service { per_second, latencies: Latencies::new(best) })
}

/// Returns the times of an honest pair's writes during a load, in ns.
fn once(load: Load, daemon: &Daemon) -> anyhow::Result<Vec<u64>> {
    let mut pair = gap::honest(daemon);
    let others: Vec<_> = (2..2 + OTHERS).map(|nth| daemon.ready_guest(nth)).collect();
    let mut villains = Vec::new();
    for (nth, near) in others.iter().enumerate() {
        let far = &others[(nth + 1) % OTHERS];
        villains.push(Villain::new(near, far)?);
    }
    let bursts: anyhow::Result<Vec<_>> =
        villains.iter().map(|villain| villain.prepare(load)).collect();
    let bursts = bursts?;
    ping(&mut pair, Duration::from_millis(2));
    bursts.iter().for_each(|burst| burst.start());
    Ok(ping(&mut pair, SPAN))
}
