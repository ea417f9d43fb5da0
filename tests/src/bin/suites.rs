//! Prints and writes what derives from `tests/suites.toml` and from a run of `scripts/test`.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;
use vrnic_tests::harness::report;
use vrnic_tests::repository::changed::Workspace;
use vrnic_tests::repository::record;
use vrnic_tests::repository::rows::{List, Row, Tier, page, with_table};
use vrnic_tests::tree::shows;

/// What derives from tests/suites.toml and from a run of scripts/test.
#[derive(Parser)]
enum Command {
    /// Prints a line for each suite and part: name, tier, seconds, and what it needs, with commas.
    List,
    /// Prints what the smoke cases need, a word a line.
    SmokeNeeds,
    /// Prints a sentence about what scripts/test leaves out.
    LeftOut,
    /// Writes the table of suites into docs/testing.md.
    Docs,
    /// Prints what the tests show, by topic, from the tags in their doc comments.
    Shows {
        /// A topic, such as memory.
        topic: Option<String>,
    },
    /// Prints the suites in the order in which .ci/suites runs them, each with its seconds.
    Order {
        /// The number of commits.
        #[arg(long)]
        commits: usize,
        /// A file with the suites that have failed last.
        #[arg(long)]
        failed: PathBuf,
    },
    /// Writes what the output of .ci/run says into .ci/record.
    Record {
        /// A file with the output of `.ci/run`.
        output: PathBuf,
    },
    /// Reads `cargo metadata --no-deps`. Prints the crates that must be tested: those that are
    /// named, or those of the files, as `NAME changed`, and those that depend on them, as `NAME
    /// dependant`, or `NAME program` if it has no library.
    Changed {
        /// The crates to look at, or none for those that have changed.
        crates: Vec<String>,
        /// A file with the names of files.
        #[arg(long, conflicts_with = "crates")]
        files: Option<PathBuf>,
    },
    /// Prints the times of a run whose files are in this folder, and notes what has failed.
    Report {
        /// The folder with tests.log, results, parts and parts.failed.
        folder: PathBuf,
        /// A file for the results as JUnit's XML.
        #[arg(long)]
        junit: Option<PathBuf>,
    },
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::List => List::read()?.rows().for_each(|row| println!("{}", line(row))),
        Command::SmokeNeeds => {
            let list = List::read()?;
            let mut needs: Vec<_> = list.suites.iter().flat_map(|row| &row.smoke_needs).collect();
            needs.sort();
            needs.dedup();
            needs.iter().for_each(|need| println!("{}", need.name()));
        }
        Command::LeftOut => println!("{}", List::read()?.left_out()),
        Command::Docs => {
            let page = page();
            fs::write(&page, with_table(&fs::read_to_string(&page)?, &List::read()?.table())?)?;
        }
        Command::Shows { topic } => print!("{}", shows::page(&shows::all().0, topic.as_deref())?),
        Command::Order { commits, failed } => order(commits, &failed)?,
        Command::Record { output } => {
            let path = record::path();
            let output = fs::read(&output)?;
            let output = String::from_utf8_lossy(&output);
            fs::write(&path, record::updated(&fs::read_to_string(&path)?, &output)?)?;
        }
        Command::Changed { crates, files } => changed(&crates, files.as_deref())?,
        Command::Report { folder, junit } => report(&folder, junit.as_deref())?,
    }
    Ok(())
}

fn line(row: &Row) -> String {
    let tier = match row.tier {
        Tier::Smoke => "smoke",
        Tier::All => "all",
        Tier::Name => "name",
    };
    let needs: Vec<_> = row.needs.iter().map(|need| need.name()).collect();
    format!("{} {tier} {} {}", row.name, row.seconds, needs.join(","))
}

/// Prints the suites in the order of continuous integration.
fn order(commits: usize, failed: &Path) -> Result<()> {
    let (list, failed) = (List::read()?, fs::read_to_string(failed)?);
    let record = record::parse(&fs::read_to_string(record::path())?)?;
    let names: Vec<_> = list.rows().map(|row| row.name.as_str()).collect();
    let failed: Vec<_> = failed.lines().collect();
    for name in record::order(&names, &record, &failed, commits) {
        let seconds = list.rows().find(|row| row.name == name).map_or(0, |row| row.seconds);
        println!("{name}:{seconds}");
    }
    Ok(())
}

/// Prints the crates that must be tested.
fn changed(crates: &[String], files: Option<&Path>) -> Result<()> {
    let workspace = Workspace::of(&io::read_to_string(io::stdin())?)?;
    let files = files.map_or_else(|| Ok(String::new()), fs::read_to_string)?;
    let mut chosen = workspace.crates(files.lines());
    for name in crates {
        chosen
            .insert(workspace.named(name).with_context(|| format!("there is no crate '{name}'"))?);
    }
    for name in workspace.with_dependants(chosen.clone()) {
        let kind = match chosen.contains(name) {
            true => "changed",
            false if workspace.has_library(name) => "dependant",
            false => "program",
        };
        println!("{name} {kind}");
    }
    Ok(())
}

/// Prints the times, and writes the list of what has failed.
fn report(folder: &Path, junit: Option<&Path>) -> Result<()> {
    let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    // A log may have bytes of guests.
    let log = fs::read(folder.join("tests.log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let results = report::results(&text("results"))?;
    print!("\n{}", report::times(&text("parts"), &results));
    let failed = report::failed(&text("parts.failed"), &log, &results);
    fs::write(folder.join("tests.failed"), failed)?;
    if let Some(file) = junit {
        fs::write(file, report::junit(&log, &results)?)
            .with_context(|| format!("{} cannot be written", file.display()))?;
    }
    Ok(())
}
