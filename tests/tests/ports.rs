//! Programs of others, unchanged, as `ci/ports` runs them by `scripts/lab`: one case for each of
//! its scripts. They check their outcome themselves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let scripts = match scripts() {
        Ok(scripts) => scripts,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let case = |script: PathBuf| {
        let name = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Trial::test(name, move || Ok(run(&script)?))
    };
    let cases = scripts.into_iter().map(case).collect();
    // Two guests at a time.
    let arguments = Arguments { test_threads: Some(1), ..arguments };
    libtest_mimic::run(&arguments, cases).exit_code()
}

/// Returns the scripts of ci/ports.
fn scripts() -> Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ci/ports");
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

/// Runs a script, which must succeed.
fn run(script: &Path) -> Result<()> {
    let ran = Command::new(script).output().context("cannot run the script")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(ran.status.success(), "{}\n{}{}", ran.status, text(&ran.stdout), text(&ran.stderr));
    Ok(())
}
