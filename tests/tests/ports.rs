//! Unchanged programs of other projects, as `ci/ports` runs them by `scripts/lab`: one case for
//! each of its scripts. The scripts check the outcome themselves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use vrnic_tests::script::{self, succeed, top};

fn main() -> ExitCode {
    let scripts = match scripts() {
        Ok(scripts) => scripts,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let case = |script: PathBuf| {
        let name = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Trial::test(name, move || Ok(succeed(&mut Command::new(&script)).map(drop)?))
    };
    script::main(scripts.into_iter().map(case).collect())
}

/// Returns the scripts of ci/ports.
fn scripts() -> Result<Vec<PathBuf>> {
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
    Ok(found)
}
