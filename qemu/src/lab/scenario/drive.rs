//! The course of a scenario during a command: arms the rules of each phase, and checks at its end
//! that they have hit and that the counters have become what is expected.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::{Phase, Scenario};
use crate::fleet::Fleet;
use crate::lab::counters::Counters;
use crate::lab::results::Check;
use crate::machine::progress::step;

/// Number of packets that guest a must have sent before the first phase begins.
const PACKETS: u64 = 100;
/// Time between two looks at the command and the counters.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The rules as the daemon lists them.
#[derive(Debug, Deserialize)]
struct Listed {
    rules: Vec<Hits>,
}

/// A rule, as the daemon lists it.
#[derive(Debug, Deserialize)]
struct Hits {
    rule: String,
    seen: u64,
    hit: u64,
}

/// Runs a scenario while `work` runs. Returns the result of `work`, and what was checked.
pub fn beside<T>(fleet: &Fleet, scenario: &Scenario, work: impl FnOnce() -> T) -> (T, Vec<Check>) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let driver = scope.spawn(|| all(fleet, scenario, &over));
        let result = work();
        over.store(true, Ordering::SeqCst);
        let failed = || {
            let failure = Some("the scenario's thread has panicked".to_owned());
            vec![Check { name: scenario.title.clone(), took: Duration::ZERO, failure }]
        };
        (result, driver.join().unwrap_or_else(|_| failed()))
    })
}

fn all(fleet: &Fleet, scenario: &Scenario, over: &AtomicBool) -> Vec<Check> {
    let mut checks = Vec::new();
    let begun = if scenario.waits { traffic(fleet, over) } else { Ok(()) };
    for phase in &scenario.phases {
        let start = Instant::now();
        let failure = match &begun {
            Ok(()) => one(fleet, phase, over).err(),
            Err(error) => Some(anyhow::anyhow!("{error:#}")),
        };
        let failure = failure.map(|error| format!("{error:#}"));
        let said = failure.as_deref().unwrap_or("passed");
        step(format!("phase '{}': {said}", phase.name));
        let name = format!("{}: {}", scenario.title, phase.name);
        checks.push(Check { name, took: start.elapsed(), failure });
    }
    if let Err(error) = vrnic(fleet, &["fault", "clear"]) {
        step(format!("the rules cannot be cleared: {error:#}"));
    }
    checks
}

/// Waits until guest a has sent some packets.
fn traffic(fleet: &Fleet, over: &AtomicBool) -> Result<()> {
    let sent = || Counters::read(fleet).map(|counters| counters.of("a", "tx_pkts"));
    let before = sent()?;
    while sent()? < before + PACKETS {
        let ended = over.load(Ordering::SeqCst);
        ensure!(!ended, "the command ended before guest a had sent {PACKETS} packets");
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Runs a phase.
fn one(fleet: &Fleet, phase: &Phase, over: &AtomicBool) -> Result<()> {
    let before = Counters::read(fleet)?;
    vrnic(fleet, &["fault", "clear"])?;
    for rule in &phase.faults {
        let words: Vec<&str> = rule.split_whitespace().collect();
        vrnic(fleet, &[&["fault", "add"], &words[..]].concat())?;
    }
    let (start, mut early) = (Instant::now(), false);
    while phase.lasts.is_none_or(|lasts| start.elapsed() < lasts) {
        if over.load(Ordering::SeqCst) {
            early = phase.lasts.is_some();
            break;
        }
        thread::sleep(POLL_INTERVAL);
    }
    let listed: Listed = serde_json::from_slice(&vrnic(fleet, &["fault", "list", "--json"])?)?;
    let after = Counters::read(fleet)?;
    for rule in listed.rules.iter().filter(|rule| rule.hit > 0) {
        step(format!("the rule '{}' has hit {} of {}", rule.rule, rule.hit, rule.seen));
    }
    let mut wrong = Vec::new();
    if early {
        wrong.push(format!("the command ended after {:.1} s", start.elapsed().as_secs_f64()));
    }
    let missed = listed.rules.iter().filter(|rule| rule.hit == 0 && !phase.may_miss);
    wrong.extend(missed.map(|rule| {
        format!("the rule '{}' has hit nothing of {} that it has seen", rule.rule, rule.seen)
    }));
    for expected in &phase.expect {
        let of = |counters: &Counters| counters.of(&expected.function, &expected.counter);
        let change = of(&after).saturating_sub(of(&before));
        if !expected.holds(change) {
            wrong.push(format!("expected {expected}, and it was {change}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("; ")) }
}

/// Runs `vrnic`. Returns its output.
fn vrnic(fleet: &Fleet, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = fleet.vrnic()?.args(arguments).output().context("cannot run vrnic")?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "vrnic {}: {}", arguments.join(" "), why.trim());
    Ok(output.stdout)
}
