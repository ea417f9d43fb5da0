//! Unchanged programs of other projects, as `ci/ports` runs them by `scripts/lab`: one case for
//! each of its scripts. The scripts check the outcome themselves. Those that say `By name only` in
//! their head run only if they are named.
//!
//! Shows: programs

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::repository::script::{succeed, top};

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    cases().map(Suite::alone)
}

/// Returns a case for each script of ci/ports.
fn cases() -> Result<Vec<Case>> {
    let folder = top()?.join("ci/ports");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).context("there is no folder ci/ports")? {
        let entry = entry?;
        let executable = entry.metadata()?.permissions().mode() & 0o111 != 0;
        ensure!(executable, "{} cannot be executed", entry.path().display());
        found.push(entry.path());
    }
    ensure!(!found.is_empty(), "{} is empty", folder.display());
    found.sort();
    found.into_iter().map(case).collect()
}

/// Returns the case of a script. It prints the script's output and how long the script took.
fn case(script: PathBuf) -> Result<Case> {
    let name = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let by_name_only = fs::read_to_string(&script)?.contains("\n# By name only: ");
    let title = name.clone();
    let run = move || {
        let start = Instant::now();
        let said = succeed(&mut Command::new(&script))?;
        println!("{said}port {title}: passed after {} s", start.elapsed().as_secs());
        Ok(())
    };
    Ok(Case::alone(name, run).by_name_only(by_name_only))
}
