//! The help of every script: what a user needs most is at its top, and the first screen of a
//! terminal holds that.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use vrnic_tests::repository::script::top;

use crate::script;

/// Rows of a small terminal.
const SCREEN: usize = 24;
/// Columns of a usual one.
const COLUMNS: usize = 120;
/// Scripts with a single use.
const ONE_USE: [&str; 1] = ["deny"];

/// Returns the names of all scripts.
fn scripts() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(top()?.join("scripts"))? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
            names.push(entry.file_name().into_string().ok().context("a name without text")?);
        }
    }
    ensure!(names.len() > 12, "there are more scripts than {names:?}");
    Ok(names)
}

/// Checks that a help begins with the commands that are used most, and then says more.
fn begins_with_uses(name: &str, help: &str) -> Result<()> {
    let expected = if ONE_USE.contains(&name) { 1 } else { 3 };
    let mut lines = help.lines();
    ensure!(lines.next() == Some("Most used:"), "{name} begins with something else:\n{help}");
    let uses: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    ensure!(uses.len() == expected, "{name} has not {expected} commands at its top:\n{help}");
    for line in uses {
        let command = line.strip_prefix("  scripts/").context(format!("{name}: '{line}'"))?;
        let family = command
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '-']));
        ensure!(family, "{name} has a command of another script: {line}");
    }
    ensure!(lines.next().is_some_and(|line| !line.is_empty()), "{name} says no more:\n{help}");
    Ok(())
}

#[test]
fn every_help_begins_with_the_commands_that_are_used_most() -> Result<()> {
    for name in scripts()? {
        let (status, help) = script(&name, &["--help"])?;
        ensure!(status == Some(0), "{name}: {help}");
        begins_with_uses(&name, &help)?;
    }
    Ok(())
}

/// With `-h` a script prints one screen. `scripts/qemu -h` is the help of QEMU.
#[test]
fn a_short_help_fits_on_a_screen() -> Result<()> {
    for name in scripts()? {
        let option = if name == "qemu" { "--help" } else { "-h" };
        let (status, help) = script(&name, &[option])?;
        ensure!(status == Some(0), "{name}: {help}");
        begins_with_uses(&name, &help)?;
        let rows = help.lines().count();
        ensure!(rows <= SCREEN, "the help of {name} has {rows} rows:\n{help}");
        let wide = help.lines().find(|line| line.chars().count() > COLUMNS);
        ensure!(wide.is_none(), "the help of {name} has the long row {wide:?}");
    }
    Ok(())
}

/// The short help of a script with many options names all of them.
#[test]
fn a_short_help_names_all_options() -> Result<()> {
    for name in ["run", "lab", "bench", "soak"] {
        let (_, short) = script(name, &["-h"])?;
        let (_, long) = script(name, &["--help"])?;
        let words: Vec<_> = short.split_whitespace().collect();
        let options = long.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
        let mut count = 0;
        for option in options.map(|rest| rest.split(' ').next().unwrap_or(rest)) {
            let option = format!("--{option}");
            ensure!(words.contains(&&*option), "{name} -h does not name {option}:\n{short}");
            count += 1;
        }
        ensure!(count > 3, "{name} has few options:\n{long}");
    }
    Ok(())
}
