//! Profiles of other devices: a program in C asks an adapter for what it has and for what it
//! refuses, and gets the answers of the profile. Without libibverbs, its header or the plugin these
//! tests are left out, unless `VRNIC_EXEC_PROGRAMS=1` demands them.
//!
//! This program is also the supervisor: with `supervise PROFILE PROGRAM` it runs a program.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use vrnic_exec::run::{Options, run};
use vrnic_profiles::{Object, Profile};
use vrnic_stock::{is_installed, plugin};

/// The first argument with which this program is a supervisor.
const SUPERVISE: &str = "supervise";
/// The name that stands for no profile.
const NONE: &str = "none";
/// The environment variable that demands all programs.
const DEMANDED: &str = "VRNIC_EXEC_PROGRAMS";
/// The environment variable with the folder of the headers of libibverbs.
const INCLUDE: &str = "VRNIC_VERBS_INCLUDE";
/// The program that asks.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/profiles/ask.c");
/// The folder of a header that it has in common with the programs of the checker.
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../check/tests/programs");
/// Objects that it creates of a kind at most.
const MANY: i64 = 200;
/// `EINVAL`.
const INVALID: i64 = 22;

/// What the program has printed: numbers by name.
type Answers = BTreeMap<String, i64>;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [first, name, program] = &arguments[..]
        && first == SUPERVISE
    {
        return supervise(&name.to_string_lossy(), program);
    }
    let profiles = Profile::all().unwrap_or_default();
    let trials = profiles.into_iter().map(|profile| {
        let name = format!("an adapter is the device of the profile {}", profile.name);
        Trial::test(name, move || is_device(&profile)).with_ignored_flag(is_left_out())
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn supervise(name: &str, program: &OsString) -> ExitCode {
    let profile = if name == NONE { Ok(Profile::default()) } else { Profile::find(name) };
    let options =
        |profile| Options { adapters: 1, profile, program: program.clone(), ..Options::default() };
    match profile.and_then(|profile| run(&options(profile))) {
        Ok(ended) => ended.exit(),
        Err(error) => {
            eprintln!("{error:#}");
            125.into()
        }
    }
}

/// Returns whether tests with programs of verbs are left out.
fn is_left_out() -> bool {
    let has_header = std::env::var_os(INCLUDE)
        .is_some_and(|folder| Path::new(&folder).join("infiniband/verbs.h").exists());
    let is_there = plugin().is_some() && has_header && is_installed("gcc");
    !is_there && std::env::var_os(DEMANDED).is_none()
}

/// Builds the program in a folder. Returns its file.
fn build(folder: &Path) -> Result<PathBuf, Failed> {
    let program = folder.join("ask");
    let output = Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-I", HEADERS, "-idirafter"])
        .arg(std::env::var_os(INCLUDE).ok_or("there is no header of libibverbs")?)
        .arg("-o")
        .args([program.as_path(), Path::new(SOURCE)])
        .arg("-l:libibverbs.so.1")
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(program) } else { Err(text.into()) }
}

/// Runs the program with a profile.
fn ask(profile: &str) -> Result<Answers, Failed> {
    let folder = tempfile::tempdir()?;
    let output = Command::new("timeout")
        .args(["60".into(), std::env::current_exe()?])
        .args([SUPERVISE, profile])
        .arg(build(folder.path())?)
        .env("XDG_RUNTIME_DIR", folder.path())
        .env("VRNIC_PLUGIN", plugin().ok_or("the plugin has not been built")?)
        .output()?;
    let [text, errors] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    if !output.status.success() {
        return Err(format!("{}: {text}{errors}", output.status).into());
    }
    let row = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    let answers: Option<Answers> = text.lines().map(row).collect();
    answers.ok_or_else(|| format!("not answers: {text}").into())
}

/// Returns what the program must print with a profile, if it prints this without one.
fn expected(profile: &Profile, usual: &Answers) -> Answers {
    let number = |object| profile.refusal(object).map_or(0, |refusal| refusal.number().into());
    let mut answers = usual.clone();
    let mut set = |name: &str, number: i64| answers.insert(name.to_owned(), number);
    let lower = |name: &str, limit: Option<u32>| {
        let usual = usual.get(name).copied().unwrap_or(0);
        limit.map_or(usual, |limit| usual.min(limit.into()))
    };
    let limits = &profile.limits;
    set("sge", lower("sge", limits.sge));
    set("wr", lower("wr", limits.wr.map(|wr| 1 << wr.ilog2())));
    set("rd-atomic", lower("rd-atomic", limits.rd_atomic));
    set("atomics", profile.atomics.into());
    set("port", if profile.port_up { 4 } else { 1 });
    let objects = [
        ("rc", Object::Rc),
        ("uc", Object::Uc),
        ("ud", Object::Ud),
        ("xrc", Object::Xrc),
        ("srq", Object::Srq),
        ("mw", Object::Mw),
    ];
    for (name, object) in objects {
        set(name, number(object));
    }
    let types = [Object::Rc, Object::Uc, Object::Ud];
    let all_refused = types.iter().all(|object| number(*object) != 0).then(|| number(Object::Rc));
    for name in ["sge-fits", "wr-fits"] {
        set(name, all_refused.unwrap_or(0));
    }
    for name in ["sge-more", "wr-more"] {
        // The plugin refuses it before the device is asked.
        set(name, INVALID);
    }
    for (name, object, refused) in [("mr", Object::Mr, None), ("qp", Object::Qp, all_refused)] {
        let limit = profile.exhaustion(object);
        let (count, error) = match (refused, limit) {
            (Some(error), _) => (0, error),
            (None, Some(limit)) => (limit.after.into(), limit.error.number().into()),
            (None, None) => (MANY, 0),
        };
        set(&format!("{name}-count"), count);
        set(&format!("{name}-error"), error);
    }
    answers
}

/// Checks that an adapter with a profile answers as the profile says.
fn is_device(profile: &Profile) -> Result<(), Failed> {
    let usual = ask(NONE)?;
    // Without a profile, nothing is refused.
    if expected(&Profile::default(), &usual) != usual {
        return Err(format!("without a profile: {usual:?}").into());
    }
    let (answers, expected) = (ask(&profile.name)?, expected(profile, &usual));
    if answers == expected {
        return Ok(());
    }
    Err(format!("{answers:?} instead of {expected:?}").into())
}
