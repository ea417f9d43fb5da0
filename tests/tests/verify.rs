//! All of vrnic-verify, group by group, with send queues in guest memory and in device memory.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::bench::{self, Case};
use vrnic_tests::conformance::run;
use vrnic_tests::talk::SHORT;

/// The groups of cases; a case checks that there are no others.
const GROUPS: &[&str] = &[
    "data",
    "segments",
    "inline",
    "queues",
    "credits",
    "order",
    "atomics",
    "events",
    "extended",
    "rnr",
    "retry",
    "srq",
    "xrc",
    "stress",
    "local_errors",
    "remote_errors",
    "regions",
    "windows",
    "direct",
    "states",
    "transitions",
    "datagrams",
    "multicast",
    "attributes",
    "memlock",
    "notices",
    "counters",
    "lifecycle",
    "isolation",
    "loopback",
    "hostile",
];

/// Those that run over the extended interfaces too.
const EXTENDED: [&str; 12] = [
    "data",
    "segments",
    "inline",
    "queues",
    "credits",
    "atomics",
    "events",
    "stress",
    "local_errors",
    "windows",
    "datagrams",
    "xrc",
];

fn main() -> ExitCode {
    let mut cases = vec![Case::new("groups_are_complete", groups_are_complete)];
    for sq in ["guest", "device"] {
        for group in GROUPS {
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
    cases.push(Case::new("1_GiB_messages", |pair| run(pair, "--huge --only 1GiB", "guest")));
    // A buffer of 1 GiB, and room for the rest.
    bench::main(Options { memory: 2560, ..Options::default() }, cases)
}

fn groups_are_complete(pair: &mut Pair) -> Result<()> {
    let text = pair.a.check("vrnic-verify list", SHORT)?;
    let there: BTreeSet<_> = text.lines().filter_map(|l| Some(l.split_once('/')?.0)).collect();
    let known: BTreeSet<_> = GROUPS.iter().copied().collect();
    ensure!(there == known, "vrnic-verify has groups {there:?}, this test knows {known:?}");
    Ok(())
}
