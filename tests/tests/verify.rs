//! All of vrnic-verify, group by group, with send queues in guest memory and in device memory.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::bench::{self, Case};
use vrnic_tests::talk::{SHORT, said, serve};

/// Port of `vrnic-verify serve`.
const PORT: u16 = 7471;
/// Longest time that a group may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// The groups of cases; a case checks that there are no others.
const GROUPS: [&str; 17] = [
    "data",
    "segments",
    "inline",
    "queues",
    "order",
    "atomics",
    "events",
    "rnr",
    "retry",
    "stress",
    "local_errors",
    "remote_errors",
    "states",
    "lifecycle",
    "isolation",
    "loopback",
    "hostile",
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
    cases.push(Case::new("1_GiB_messages", |pair| run(pair, "--huge --only 1GiB", "guest")));
    // A buffer of 1 GiB, and room for the rest.
    bench::main(Options { memory: 2560, ..Options::default() }, cases)
}

fn groups_are_complete(pair: &mut Pair) -> Result<()> {
    let text = pair.a.check("vrnic-verify list", SHORT)?;
    let there: BTreeSet<_> = text.lines().filter_map(|l| Some(l.split_once('/')?.0)).collect();
    let known: BTreeSet<_> = GROUPS.into_iter().collect();
    ensure!(there == known, "vrnic-verify has groups {there:?}, this test knows {known:?}");
    Ok(())
}

/// Runs the selected cases with end a in guest a and end b in guest b.
fn run(pair: &mut Pair, selection: &str, sq: &str) -> Result<()> {
    let server = serve(&pair.b, "vrnic-verify serve", PORT)?;
    let command = format!("exec vrnic-verify run --b {}:{PORT} --sq {sq} {selection}", pair.b.ip());
    let output = pair.a.agent().run(&command, PATIENCE);
    server.kill()?;
    server.wait(SHORT)?;
    let output = output?;
    let bad: Vec<_> = output.stdout.lines().filter(|l| !l.starts_with("ok ")).collect();
    ensure!(output.ok(), "exit code {}\n{}", output.code, bad.join("\n"));
    // The program's own count must be of as many lines, none of them a failure.
    let good = output.stdout.lines().filter(|l| l.starts_with("ok ")).count();
    ensure!(
        bad == [format!("{good} passed, 0 failed")] && good > 0,
        "unexpected output\n{}",
        said(&output)
    );
    Ok(())
}
