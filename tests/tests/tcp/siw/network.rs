//! The network between the ends. The daemon injects faults into the adapter's packets, and the
//! kernel of guest b injects faults into siw's packets.

use anyhow::{Context, Result, ensure};
use vrnic_qemu::modules;
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::SHORT_TIMEOUT;
use vrnic_tests::rules::{fault, hits};

/// The kernel module that drops packets to simulate losses.
pub(crate) const MODULES: [&str; 1] = ["sch_netem"];

/// Fault rules of the daemon for packets of the adapter.
const FAULTS: [&str; 3] = ["drop", "duplicate", "reorder"];

/// Calls `run` while 1 % of the packets in each direction are lost, 1 % are duplicated, and some
/// arrive out of order. Fails if one of these kinds of faults did not occur.
pub(crate) fn bad(pair: &Pair, run: impl FnOnce() -> Result<()>) -> Result<()> {
    netem(pair, "loss random 1% duplicate 1% delay 2ms reorder 90%")?;
    for action in FAULTS {
        fault(pair, &["add", action, "function=a", "prob=0.01"])?;
    }
    let result = run();
    let (shown, hits) = (cleared(pair)?, hits(pair)?);
    fault(pair, &["clear"])?;
    result?;
    let dropped = shown.split_once("(dropped ").and_then(|(_, rest)| rest.split_once(','));
    let (dropped, _) = dropped.with_context(|| format!("no count in: {shown}"))?;
    ensure!(dropped.parse::<u32>()? > 3, "siw's packets were not lost: {shown}");
    let enough = hits.len() == FAULTS.len() && hits.iter().all(|hit| *hit > 3);
    ensure!(enough, "the adapter's packets had too few faults: {hits:?}");
    Ok(())
}

/// Gives the network card of guest b a netem queue with these faults.
fn netem(pair: &Pair, does: &str) -> Result<()> {
    if !pair.b.agent().run("grep -q sch_netem /proc/modules", SHORT_TIMEOUT)?.ok() {
        modules::load(&pair.b, &MODULES)?;
    }
    let add = format!("tc qdisc replace dev eth0 root netem {does} limit 10000");
    pair.b.check(&add, SHORT_TIMEOUT).map(drop)
}

/// Gives the network card of guest b its own queue again. Returns the statistics of the netem
/// queue.
fn cleared(pair: &Pair) -> Result<String> {
    pair.b.check("tc -s qdisc show dev eth0 root; tc qdisc del dev eth0 root", SHORT_TIMEOUT)
}
