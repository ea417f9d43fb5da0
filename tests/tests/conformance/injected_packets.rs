//! Faults of packets by rules, between guests of a daemon that exchanges packets: docs/faults.md.
//! The programs check all bytes, and each case waits for the proof that its rule has hit.
//!
//! Shows: faults

use anyhow::Result;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{LONG_TIMEOUT, pingpong, succeed};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::rules::{self, arm, over, proved};

/// Number of messages of 4 KiB, each of which is checked.
const ROUNDS: u32 = 20_000;
/// Number of packets that a rule must hit.
const HITS: u64 = 50;

/// The names of the cases, and their rules.
const RULES: [(&str, &str); 6] = [
    ("lost_packets_come_again", "drop function=a prob=0.02 seed=1"),
    ("late_packets_are_survived", "delay by=2ms function=a every=50"),
    ("packets_that_come_twice_count_once", "duplicate function=a every=10"),
    ("packets_of_another_order_are_survived", "reorder function=a every=20"),
    ("corrupt_packets_come_again", "corrupt function=a every=100"),
    ("bytes_of_packets_may_have_any_order", "disorder function=b seed=5"),
];

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = RULES.map(|(name, rule)| Case::new(name, move |pair| goes_on(pair, rule)));
    let mut daemon = rules::arguments();
    daemon.extend(["--fabric", "wire"].map(str::to_owned));
    Ok(Suite::new(Options { daemon, ..Options::default() }, cases.into()))
}

/// Programs find all bytes right although a rule hits packets between them.
fn goes_on(pair: &mut Pair, rule: &str) -> Result<()> {
    let programs = pingpong(pair, ROUNDS)?;
    arm(pair, rule)?;
    proved(pair, HITS)?;
    succeed(programs, LONG_TIMEOUT)?;
    over(pair)
}
