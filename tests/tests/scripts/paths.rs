//! Files, folders, numbers and rules that `scripts/lab` refuses before it installs or builds
//! anything.
//!
//! Shows: tools

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::{NO_CACHE, refuses, script};

/// Checks that `scripts/lab` refuses an option with a value.
fn lab_refuses(option: &str, value: &str, part: &str) -> Result<()> {
    refuses("lab", &[option, value, "--", "true"], part)?;
    refuses("lab", &[&format!("{option}={value}"), "--", "true"], part)
}

#[test]
fn files_that_are_missing_are_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let none = folder.path().join("none").to_string_lossy().into_owned();
    let file = folder.path().join("file").to_string_lossy().into_owned();
    fs::write(&file, "")?;
    for option in ["--copy", "--root", "--disk", "--kernel", "--module-file", "--scenario"] {
        lab_refuses(option, &none, &format!("{option} names {none}, which does not exist"))?;
    }
    lab_refuses("--copy", &file, "which is not a folder")?;
    let folder = folder.path().to_string_lossy();
    for option in ["--disk", "--kernel", "--module-file", "--scenario"] {
        lab_refuses(option, &folder, "which is not a file")?;
    }
    Ok(())
}

#[test]
fn results_must_have_a_place() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file").to_string_lossy().into_owned();
    fs::write(&file, "")?;
    lab_refuses("--output", &file, "cannot write to")?;
    lab_refuses("--output", "/proc/vrnic", "cannot write to /proc/vrnic")?;
    for option in ["--junit", "--pcap"] {
        lab_refuses(option, "/proc/vrnic/file", "cannot write to /proc/vrnic")?;
        lab_refuses(option, &format!("{file}/below"), "cannot write to")?;
        lab_refuses(option, &folder.path().to_string_lossy(), "which is a folder")?;
    }
    Ok(())
}

#[test]
fn rules_must_have_an_action_and_its_fields() -> Result<()> {
    lab_refuses("--fault", "drip nth=3", "'drip' is not an action; the actions are drop, ")?;
    lab_refuses("--fault", "drop nth", "'nth' is not of the form name=value")?;
    lab_refuses("--fault", "drop vector=3", "drop has no field 'vector'; its fields are function")?;
    lab_refuses("--fault", "", "a rule must begin with an action")
}

#[test]
fn numbers_and_words_must_have_their_form() -> Result<()> {
    lab_refuses("--personality", "infiniband", "must be roce or iwarp")?;
    for (option, value, part) in [
        ("--guests", "two", "--guests is 'two', which is not a number"),
        ("--guests", "17", "--guests is 17, and must be from 1 to 16"),
        ("--guests", "0", "must be from 1 to 16"),
        ("--cpus", "65", "must be from 1 to 64"),
        ("--adapters", "5", "must be from 1 to 4"),
        ("--timeout", "0", "must be from 1 to 31536000"),
        ("--timeout", "1e3", "which is not a number"),
        ("--memory", "2T", "is not an amount of memory, such as 512M or 2G"),
        ("--memory", "99999G", "2 guests with 102398976 MiB each need 204797952 MiB of memory"),
    ] {
        lab_refuses(option, value, part)?;
    }
    refuses("run", &["--guests", "two"], "which is not a number")?;
    refuses("run", &["--file=none"], "--file names none, which is not a file")
}

#[test]
fn devices_of_uplinks_must_exist() -> Result<()> {
    for value in ["tap=nosuch0", "follow=yes,tap=nosuch0", "packet=nosuch0"] {
        lab_refuses("--uplink", value, "the network device nosuch0, which does not exist")?;
    }
    Ok(())
}

/// The set-up begins with these arguments, and fails because its cache has no room.
#[test]
fn what_is_there_is_not_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    fs::write(path("file"), "")?;
    let (file, all, new) = (path("file"), path(""), path("new"));
    let options = ["--copy", &all, "--scenario", &file, "--module-file", &file, "--root", &file];
    let results = ["--output", &new, "--junit", &path("new/junit.xml"), "--pcap", "all.pcapng"];
    let rules = ["--fault", "drop-message function=a  every=100", "--fault=drop prob=0.1"];
    let numbers = ["--guests", "1", "--cpus=08", "--memory", "512", "--personality=iwarp"];
    let rules = [&rules[..], &numbers, &["--uplink", "packet=lo,follow=yes"]].concat();
    let command = ["--", "true", "--copy", "none"];
    for arguments in
        [[&options[..], &results, &command].concat(), [rules, command.to_vec()].concat()]
    {
        let (_, text) = script("lab", &arguments)?;
        ensure!(text.contains(&format!("{NO_CACHE} has 0 MiB left")), "{arguments:?}: {text}");
    }
    ensure!(Path::new(&new).is_dir(), "the results have no folder");
    Ok(())
}
