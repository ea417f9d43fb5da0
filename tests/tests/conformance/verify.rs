//! Runs all of vrnic-verify, group by group, with send queues in guest memory and in device memory.
//!
//! Shows: data

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, said};
use vrnic_tests::conformance::run;
use vrnic_tests::harness::{Case, Suite};

/// Groups of cases that run twice: with send queues in guest memory, and in device memory.
const GROUPS: &[&str] = &["data", "inline", "order", "stress", "hostile"];

/// Groups for which the place of the send queues makes little difference. They use device memory
/// only. A case checks that there are no other groups.
const ANY_PLACE: [&str; 30] = [
    "segments",
    "queues",
    "credits",
    "srq",
    "local_errors",
    "direct",
    "loopback",
    "atomics",
    "flush",
    "events",
    "extended",
    "rnr",
    "retry",
    "xrc",
    "remote_errors",
    "datagrams",
    "raw",
    "regions",
    "device_memory",
    "windows",
    "states",
    "transitions",
    "multicast",
    "attributes",
    "memlock",
    "async_events",
    "counters",
    "lifecycle",
    "isolation",
    "mistakes",
];

/// Groups that also run over the extended interfaces.
const EXTENDED: [&str; 9] =
    ["data", "inline", "queues", "credits", "atomics", "windows", "datagrams", "raw", "xrc"];

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let mut cases = vec![Case::new("groups_are_complete", groups_are_complete)];
    for sq in ["guest", "device"] {
        let more = if sq == "device" { &ANY_PLACE[..] } else { &[] };
        for group in GROUPS.iter().chain(more) {
            let name = format!("{group} (send queues in {sq} memory)");
            let only = format!("--only {group}/");
            cases.push(Case::new(name, move |pair: &mut Pair| run(pair, &only, sq)));
        }
    }
    for group in EXTENDED {
        let only = format!("--extended --skip 500_qps --only {group}/");
        let case = move |pair: &mut Pair| run(pair, &only, "device");
        cases.push(Case::new(format!("{group} (extended interfaces)"), case));
    }
    for version in ["older", "newer"] {
        let name = format!("payloads of {version} versions");
        cases.push(Case::new(name, move |pair: &mut Pair| payloads(pair, version)));
    }
    cases.push(Case::new("1_GiB_messages", |pair| run(pair, "--huge --only 1GiB", "guest")));
    // Memory for a buffer of 1 GiB, and for the rest.
    Ok(Suite::new(Options { memory: 2560, ..Options::default() }, cases))
}

/// A plugin of another version, whose commands to the kernel and answers have other lengths, works
/// with this module.
fn payloads(pair: &mut Pair, version: &str) -> Result<()> {
    let groups = "--only data/write --only regions/ --only srq/ --only credits/ --only datagrams/";
    // An older module does not say whether the device has the null key.
    let skip = if version == "older" { "--skip regions/null" } else { "" };
    let command = format!("VRNIC_PAYLOADS={version} vrnic-verify run {groups} {skip}");
    pair.a.check(&command, LONG_TIMEOUT)?;
    // A command that older modules do not know is refused, and not executed in part.
    let direct = "VRNIC_PAYLOADS=older vrnic-verify run --only direct/one_touch/region/write";
    let refused = pair.a.agent().run(direct, LONG_TIMEOUT)?;
    ensure!(said(&refused).contains("os error 95"), "{}", said(&refused));
    Ok(())
}

fn groups_are_complete(pair: &mut Pair) -> Result<()> {
    let text = pair.a.check("vrnic-verify list", SHORT_TIMEOUT)?;
    let there: BTreeSet<_> = text.lines().filter_map(|l| Some(l.split_once('/')?.0)).collect();
    let known: BTreeSet<_> = GROUPS.iter().chain(&ANY_PLACE).copied().collect();
    ensure!(there == known, "vrnic-verify has groups {there:?}, this test knows {known:?}");
    Ok(())
}
