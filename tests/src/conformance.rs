//! Runs vrnic-verify in a pair of guests.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::Pair;

use crate::commands::{SHORT_TIMEOUT, said, serve, stop};
use crate::object_counts::ObjectCounts;

/// Port of `vrnic-verify serve`.
const PORT: u16 = 7471;
/// Time limit of a run.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Runs the selected cases with end a in guest a and end b in guest b. `sq` is the place of the
/// send queues. Checks that no objects are left, in the guests' kernels and in the adapters.
pub fn run(pair: &mut Pair, selection: &str, sq: &str) -> Result<()> {
    let before = [ObjectCounts::take(pair, &pair.a)?, ObjectCounts::take(pair, &pair.b)?];
    between(&pair.b, &pair.a, &format!("--sq {sq} {selection}"))?;
    // Agents end by themselves when their client has ended.
    let end = Instant::now() + SHORT_TIMEOUT;
    for (before, guest) in before.iter().zip([&pair.a, &pair.b]) {
        let timeout = end.saturating_duration_since(Instant::now());
        before.unchanged_within(pair, guest, timeout).context("something is left")?;
    }
    Ok(())
}

/// Runs the selected cases over iWARP, whose QPs the connection manager connects.
pub fn run_managed(pair: &mut Pair, selection: &str) -> Result<()> {
    let managed = format!("--cm {},{} {selection}", pair.a.ip(), pair.b.ip());
    run(pair, &managed, "guest")
}

/// Runs the cases that these options select, with end a in guest `a` and end b in guest `b`.
pub fn between(b: &Guest, a: &Guest, options: &str) -> Result<()> {
    let server = serve(b, "vrnic-verify serve", PORT)?;
    let command = format!("exec vrnic-verify run --b {}:{PORT} {options}", b.ip());
    let output = a.agent().run(&command, TIMEOUT);
    stop(server)?;
    let output = output?;
    let fine = |line: &&str| line.starts_with("ok ") || line.starts_with("skip ");
    let bad: Vec<_> = output.stdout.lines().filter(|line| !fine(line)).collect();
    ensure!(output.ok(), "exit code {}\n{}", output.code, bad.join("\n"));
    // The program's own count must be the number of these lines, and no line may be a failure.
    let good = output.stdout.lines().filter(|l| l.starts_with("ok ")).count();
    ensure!(
        bad == [format!("{good} passed, 0 failed")] && good > 0,
        "unexpected output\n{}",
        said(&output)
    );
    Ok(())
}
