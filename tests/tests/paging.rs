//! Regions that are registered on demand, whose pages the kernel takes away while messages move
//! (`tests/programs/paging.c`). rdma-core's own tests are in `ci/ports/pyverbs`.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, settles, works};
use vrnic_tests::harness::{self, Case};
use vrnic_tests::object_counts::ObjectCounts;

/// The cases of `vrnic_paging`.
const CASES: [&str; 9] =
    ["messages", "traffic", "forks", "moved", "unmapped", "advice", "implicit", "huge", "refused"];

fn main() -> ExitCode {
    let case = |name: &'static str| Case::new(name, move |pair: &mut Pair| program(pair, name));
    let mut cases: Vec<Case> = CASES.into_iter().map(case).collect();
    cases.push(Case::new("killed_while_it_waits_for_pages", killed));
    cases.push(Case::new("still_works", |pair| works(pair)));
    harness::main(Options::default(), cases)
}

/// Calls `run`, which must leave no object.
fn leaves_nothing(pair: &Pair, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = ObjectCounts::take(pair, &pair.a)?;
    run()?;
    before.unchanged(pair, &pair.a)
}

/// A case of the program.
fn program(pair: &Pair, name: &str) -> Result<()> {
    leaves_nothing(pair, || {
        let text = pair.a.check(&format!("vrnic_paging {name}"), LONG_TIMEOUT)?;
        ensure!(text.contains(&format!("{name}: good")), "no '{name}' in\n{text}");
        Ok(())
    })
}

/// Processes are killed while their messages wait for pages.
fn killed(pair: &mut Pair) -> Result<()> {
    leaves_nothing(pair, || {
        for tenths in 1..6 {
            let command = format!(
                "for n in 1 2 3; do vrnic_paging traffic >/dev/null & done; sleep 0.{tenths}; \
                 pkill -KILL vrnic_paging; wait"
            );
            pair.a.check(&command, SHORT_TIMEOUT)?;
        }
        settles(&pair.a, "! pgrep vrnic_paging", 20)
    })
}
