//! Messages in TCP connections: copied between two functions of one daemon, and as segments between
//! two daemons.

use std::path::Path;

use super::host::{self, Messages};
use super::{SEGMENT, Trunk, large, measure_pair};
use crate::latency;
use crate::rate::{self, Kind, Runs};
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
    let Runs { repeats, span } = runs;
    let mut best: [_; 2] = [const { None::<latency::Latencies> }; 2];
    for _ in 0..repeats {
        for (pair, best) in [&mut roce, &mut stream].into_iter().zip(&mut best) {
            let now = latency::best(pair, 1)?;
            if best.as_ref().is_none_or(|best| now.quantile(500) < best.quantile(500)) {
                *best = Some(now);
            }
        }
    }
    for (name, latencies) in ["RoCE", "iWARP"].into_iter().zip(best.into_iter().flatten()) {
        report.histogram(&format!("64 B WRITE, doorbell to CQE, one daemon, {name}"), &latencies);
    }
    for (kind, len) in [(Kind::Write, 8), (Kind::Write, 64 << 10), (Kind::Read, 64 << 10)] {
        let (mut by_roce, mut by_stream) = (0f64, 0f64);
        for _ in 0..repeats {
            by_roce = by_roce.max(rate::run(&rig, &mut roce, kind, len, span)?.per_second());
            by_stream = by_stream.max(rate::run(&rig, &mut stream, kind, len, span)?.per_second());
        }
        let name = format!("{len} B {kind:?}, one daemon");
        report.figure(&format!("{name}, RoCE, million/s"), by_roce / 1e6);
        report.figure(&format!("{name}, iWARP, million/s"), by_stream / 1e6);
        report.figure(&format!("{name}, iWARP / RoCE"), by_stream / by_roce);
    }
    Ok(())
}

/// Measures messages between two daemons: over a trunk, without losses and then with the loss of
/// one in a hundred frames, and through TAP devices.
///
/// # Errors
/// When a daemon does not come up, or the command `vrnic` fails.
pub(crate) fn between(report: &mut Report, daemon: &Path, runs: Runs) -> anyhow::Result<()> {
    let trunk = Trunk::start(daemon)?;
    let mut pair = Pair::in_stream(&trunk.rig, SEGMENT);
    measure_pair(report, &mut pair, "iWARP, trunk", runs)?;
    trunk.lose(daemon)?;
    large(report, &mut pair, "iWARP, trunk, 1 % loss", runs.of_losses());
    drop((pair, trunk));
    host::measure(report, daemon, Messages::Iwarp, runs)
}
