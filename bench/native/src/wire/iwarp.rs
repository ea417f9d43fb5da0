//! Messages in TCP connections: copied between two functions of one daemon, and as segments between
//! two daemons.

use std::path::Path;
use std::time::{Duration, Instant};

use vrnic_figures::Operation::{Read, Write};
use vrnic_figures::{Connection, Link, Protocol, Quantity, Subject, Way};
use vrnic_testdriver::bus::Bus;
use vrnic_testdriver::idle_qps::IdleQps;

use super::host::{self, Messages};
use super::{LARGE, Load, SEGMENT, Trunk, large, measure_pair};
use crate::latency;
use crate::rate::{self, Runs};
use crate::report::Report;
use crate::rig::{Pair, Rig};

/// Measures two queue pairs of one daemon whose connection is within the daemon, in turns with two
/// that are connected by RoCE.
///
/// # Errors
/// When the daemon does not come up.
pub(crate) fn pairs(report: &mut Report, daemon: &Path, runs: Runs) -> anyhow::Result<()> {
    let rig = Rig::start(daemon, 1, None)?;
    let mut roce = Pair::new(&rig, false);
    let mut stream = Pair::in_stream(&rig, SEGMENT);
    let mut best: [_; 2] = [const { None::<latency::Latencies> }; 2];
    for _ in 0..runs.repeats {
        for (pair, best) in [&mut roce, &mut stream].into_iter().zip(&mut best) {
            let now = latency::best(pair, 1)?;
            if best.as_ref().is_none_or(|best| now.quantile(500) < best.quantile(500)) {
                *best = Some(now);
            }
        }
    }
    let ways = [Protocol::Roce, Protocol::Iwarp].map(Way::OneDaemon);
    for (way, latencies) in ways.into_iter().zip(best.into_iter().flatten()) {
        report.histogram(Subject::Latency(way), &latencies);
    }
    for (operation, len) in [(Write, 8), (Write, 64 << 10), (Read, 64 << 10)] {
        let [by_roce, by_stream] = runs.best(|span| {
            let roce = rate::run(&rig, &mut roce, operation, len, span)?;
            let stream = rate::run(&rig, &mut stream, operation, len, span)?;
            Ok([roce.per_second(), stream.per_second()])
        })?;
        let [roce, stream] = ways.map(|way| Subject::Messages(len, operation, way));
        report.figure(roce, Quantity::Millions, by_roce / 1e6);
        report.figure(stream, Quantity::Millions, by_stream / 1e6);
        report.figure(stream, Quantity::ToRoce, by_stream / by_roce);
    }
    Ok(())
}

/// Time after which a connection without messages has no timer left.
const REST: Duration = Duration::from_secs(1);

/// Measures idle connections between two functions of a daemon, whose messages would be copied or
/// travel in TCP: their memory, the time of the takeover, and the rate of a busy pair among them.
///
/// # Errors
/// When the daemon does not come up, or refuses a connection.
pub(crate) fn idle(
    report: &mut Report,
    daemon: &Path,
    count: u16,
    runs: Runs,
) -> anyhow::Result<()> {
    for (kind, fabric) in [(Connection::Paired, "copy"), (Connection::ByTcp, "wire")] {
        let rig = Rig::one_daemon(daemon, &["--workers", "1", "--fabric", fabric])?;
        let (mut pair, bases) = (Pair::in_stream(&rig, SEGMENT), Pair::new(&rig, false));
        let busy = |pair: &mut Pair| -> anyhow::Result<f64> {
            if kind == Connection::Paired {
                return Ok(rate::run(&rig, pair, Write, 64, runs.span)?.per_second());
            }
            let (len, depth) = LARGE;
            Ok(Load { operation: Write, len, depth }.run(pair, runs.span))
        };
        let (mut alone, mut among) = (0f64, 0f64);
        let (mut grown, mut times) = (0, Vec::new());
        for round in 0..runs.repeats {
            alone = alone.max(busy(&mut pair)?);
            std::thread::sleep(REST);
            let before = rig.memory()?;
            let mut idle_qps = [IdleQps::new(&bases.a), IdleQps::new(&bases.b)];
            let [a, b] = &mut idle_qps;
            let taken = takeovers([a, b], count)?;
            if round == 0 {
                std::thread::sleep(REST);
                idle_qps.iter().for_each(IdleQps::take_events);
                grown = rig.memory()?.saturating_sub(before);
                times = taken;
            }
            among = among.max(busy(&mut pair)?);
            for set in idle_qps {
                set.destroy()?;
            }
        }
        let each = grown as f64 / (2.0 * f64::from(count.max(1)));
        report.figure(Subject::IdleConnection(kind), Quantity::Bytes, each);
        let subject = Subject::AmongConnections(count, kind);
        report.figure(subject, Quantity::ToAlone, among / alone);
        if let [first, .., last] = times[..] {
            report.figure(Subject::FirstTakeovers(kind), Quantity::Micros, first);
            report.figure(Subject::LastTakeovers(kind), Quantity::Micros, last);
        }
    }
    Ok(())
}

/// Connects QPs. Returns the mean times of each tenth of the connections in microseconds.
fn takeovers<B: Bus>(idle_qps: [&mut IdleQps<'_, B>; 2], count: u16) -> anyhow::Result<Vec<f64>> {
    let part = u32::from(count).div_ceil(10).max(1);
    let (mut since, mut nth, mut times) = (Instant::now(), 0, Vec::new());
    IdleQps::connect(idle_qps, count, || {
        nth += 1;
        if nth % part == 0 {
            times.push(since.elapsed().as_secs_f64() * 1e6 / f64::from(part));
            since = Instant::now();
        }
    })?;
    Ok(times)
}

/// Measures messages between two daemons: over a trunk, without losses and then with the loss of
/// one in a hundred frames, and through TAP devices.
///
/// # Errors
/// When a daemon does not come up, or the command `vrnic` fails.
pub(crate) fn between(report: &mut Report, daemon: &Path, runs: Runs) -> anyhow::Result<()> {
    let trunk = Trunk::start(daemon)?;
    let mut pair = Pair::in_stream(&trunk.rig, SEGMENT);
    measure_pair(report, &mut pair, Way::Iwarp(Link::Trunk), runs)?;
    trunk.lose(daemon)?;
    large(report, &mut pair, Way::Iwarp(Link::LossyTrunk), runs.of_losses())?;
    drop((pair, trunk));
    host(report, daemon, runs)
}

/// Measures messages between two daemons through TAP devices.
///
/// # Errors
/// When a daemon does not come up.
pub(crate) fn host(report: &mut Report, daemon: &Path, runs: Runs) -> anyhow::Result<()> {
    host::measure(report, daemon, Messages::Iwarp, runs)
}
