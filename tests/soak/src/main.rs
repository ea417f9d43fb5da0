//! A whole-system test that runs for hours. Two daemons that a trunk joins serve two guests each.
//! In each round the guests work in pairs, side by side, with actions that a seed chooses. After
//! each round the invariants are checked.
//!
//! | module | what |
//! | --- | --- |
//! | [`plan`] | what the guests do in each round, by the seed |
//! | [`sides`] | the two sides of a round, at the same time |
//! | [`actions`] | how guests carry an action out |
//! | [`invariants`] | what must hold after each round |
//! | [`figures`] | the figures that are read for that |
//! | [`growth`] | figures that grow without end |
//! | [`report`] | what was run, and how it ended |
#![forbid(unsafe_code)]

mod actions;
mod figures;
mod growth;
mod invariants;
mod plan;
mod report;
mod sides;

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use clap::Parser;
use vrnic_qemu::adapter::guest_name;
use vrnic_qemu::machine::paths::Paths;
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::places;

use actions::plug;
use invariants::Invariants;
use plan::{GUESTS, Side};
use report::{Report, keep};
use sides::Done;

/// Number of findings after which the run ends: more of them would say the same.
const FINDINGS_MAX: u32 = 5;

const MOST_USED: &str = "\
Most used:
  scripts/soak 8                # eight hours
  scripts/soak --minutes 10
  scripts/soak --seed N --round N   # the actions of an earlier run again";

/// Runs a system of two daemons and four guests for a long time, with actions that a seed chooses,
/// and checks after each round that nothing is left, grows or has failed. Ends with status 1 if
/// something was found; build/soak then has the logs.
#[derive(Debug, Parser)]
#[command(name = "scripts/soak", before_help = MOST_USED)]
struct Args {
    /// Time of the run in hours, which can be a fraction. The name can be left out: scripts/soak 8
    #[arg(long, value_name = "HOURS", default_value_t = 1.0)]
    hours: f64,

    /// Time of the run in minutes, instead of hours
    #[arg(long, value_name = "MINUTES", conflicts_with = "hours")]
    minutes: Option<f64>,

    /// The number that chooses the actions. Without it, another one in each run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// The round with which the run begins
    #[arg(long, value_name = "N", default_value_t = 0)]
    round: u64,

    /// Memory of each guest in MiB
    #[arg(long, value_name = "MIB", default_value_t = 640)]
    memory: u32,
}

fn main() -> ExitCode {
    match soak(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Args {
    fn time(&self) -> Result<Duration> {
        let seconds = self.minutes.map_or(self.hours * 3600.0, |minutes| minutes * 60.0);
        Duration::try_from_secs_f64(seconds).context("this is no time for a run")
    }
}

/// Runs rounds until the time is over. Returns whether nothing was found.
fn soak(args: &Args) -> Result<bool> {
    let time = args.time()?;
    let seed = args.seed.unwrap_or_else(new_seed);
    println!("soak: seed {seed}, from round {}, for {:.0} s", args.round, time.as_secs_f64());
    let logs = Paths::from_env()?.build.join("soak");
    let start = Instant::now();
    let mut report = Report::default();
    let mut number = args.round;
    let mut findings = 0;
    let mut run: Option<(Pair, Invariants)> = None;
    while start.elapsed() < time && findings < FINDINGS_MAX {
        let (mut pair, mut invariants) = match run.take().map_or_else(|| boot(args.memory), Ok) {
            Ok(run) => run,
            Err(error) => {
                println!("FOUND before round {number}: {error:?}");
                report.count("boot and first use".to_owned(), false, Duration::ZERO);
                findings += 1;
                continue;
            }
        };
        let sides = plan::round(seed, number);
        let before = waited(&mut pair);
        let (line, result) = round(&mut pair, &mut invariants, &sides, &mut report);
        println!("[{:>6.0} s] round {number}: {line}", start.elapsed().as_secs_f64());
        match result {
            Ok(()) => run = Some((pair, invariants)),
            Err(error) => {
                let text = format!("seed {seed}, round {number}: {error:?}\n{}", pair.report());
                let kept = keep(&logs, seed, number, &text, pair.dir())?;
                let error = format!("{error:#}");
                let line = error.lines().next().unwrap_or_default();
                println!("FOUND with --seed {seed} in round {number}: {line}");
                let waited = waited(&mut pair).saturating_sub(before).as_secs_f64();
                println!(
                    "The daemons' threads waited {waited:.1} s for a processor in this round."
                );
                println!("The whole text and the logs are in {}.", kept.display());
                findings += 1;
            }
        }
        number += 1;
    }
    println!("\n{}", report.table());
    Ok(report.passed())
}

/// Returns the time for which the threads of both daemons have waited for a processor.
fn waited(pair: &mut Pair) -> Duration {
    pair.daemons().map(|daemon| figures::waited(daemon)).sum()
}

/// Returns a seed that no other run has.
fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs())
}

/// Boots everything, with adapters that are plugged in when the guests run.
fn boot(memory: u32) -> Result<(Pair, Invariants)> {
    let options = Options {
        guests: u8::try_from(GUESTS)?,
        daemons: 2,
        controlled: true,
        plugged: true,
        module: false,
        memory,
        files: modules::files(&places::MODULES)?,
        ..Options::default()
    };
    let start = Instant::now();
    let mut pair = Pair::boot(options)?;
    let invariants = first_use(&mut pair).with_context(|| pair.report())?;
    println!("{GUESTS} guests booted in {:.0} s", start.elapsed().as_secs_f64());
    Ok((pair, invariants))
}

/// Uses each part once. Returns the state with which later ones are compared.
fn first_use(pair: &mut Pair) -> Result<Invariants> {
    pair.guests().try_for_each(plug)?;
    for round in plan::first_uses() {
        for done in sides::run(pair, &round)?.into_iter().flatten() {
            done.result.with_context(|| format!("the first {}", done.action))?;
        }
    }
    Invariants::begin(pair)
}

/// Carries out a round and checks the invariants after it. Returns a line about it, and what was
/// found.
fn round(
    pair: &mut Pair,
    invariants: &mut Invariants,
    sides: &[Side; 2],
    report: &mut Report,
) -> (String, Result<()>) {
    let mut line = String::new();
    let result = sides::run(pair, sides).and_then(|all| {
        let mut found = Ok(());
        for (side, done) in sides.iter().zip(all) {
            let [client, server] = [side.client, side.server].map(letter);
            line += &format!("{client}>{server}");
            for Done { action, time, result } in done {
                let passed = result.is_ok();
                report.count(action.kind(), passed, time);
                let mark = if passed { "" } else { " FAILED" };
                line += &format!(" {action}{mark} {:.1} s,", time.as_secs_f64());
                found = found.and(result.with_context(|| format!("{client}>{server}: {action}")));
            }
            line += " | ";
        }
        found
    });
    let result = result.and_then(|()| {
        let start = Instant::now();
        let figures = invariants.check(pair, sides);
        report.count("invariants".to_owned(), figures.is_ok(), start.elapsed());
        line += &figures?;
        Ok(())
    });
    (line, result)
}

fn letter(guest: usize) -> String {
    guest_name(u8::try_from(guest).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn scripts_soak_knows_the_options() {
        vrnic_qemu::help::check("soak", Args::command());
    }

    #[test]
    fn a_time_has_hours_or_minutes() {
        let time = |options: &[&str]| {
            let args = Args::try_parse_from([&["soak"], options].concat())?;
            args.time().map(|time| time.as_secs())
        };
        assert_eq!(time(&[]).ok(), Some(3600));
        assert_eq!(time(&["--hours", "0.5"]).ok(), Some(1800));
        assert_eq!(time(&["--minutes", "10"]).ok(), Some(600));
        for wrong in [["--hours", "-1"], ["--minutes", "x"]] {
            assert!(time(&wrong).is_err(), "{wrong:?}");
        }
    }
}
