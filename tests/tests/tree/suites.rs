//! The suites of whole-system tests: their modules, their rows in `tests/suites.toml`, the table in
//! docs/testing.md, and the record of their runs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use vrnic_tests::repository::record::{self, Run};
use vrnic_tests::repository::rows::{List, Tier, with_table};

use crate::files;
use crate::modules::{code, declared};

/// The program of all suites.
pub(crate) const PROGRAM: &str = "tests/tests/suites.rs";
/// A suite must have run in as many commits before the last one. That is about three merges, which
/// have up to 170 commits each.
const COMMITS: u32 = 510;
/// The same in days, for a clone that does not know the commit.
const DAYS: i64 = 21;

/// Returns true for the file of a folder with suites, which declares a module for each of them.
pub(crate) fn is_folder(file: &Path) -> bool {
    let folder = file.parent().and_then(Path::parent);
    file.ends_with("mod.rs") && folder == Path::new(PROGRAM).parent()
}

/// Returns what is said wrongly of suites.
pub(crate) fn check() -> Vec<String> {
    let list = match List::read() {
        Ok(list) => list,
        Err(error) => return vec![format!("{error:#}")],
    };
    let rows: BTreeSet<_> = list.suites.iter().map(|row| row.name.clone()).collect();
    let program = files::text(Path::new(PROGRAM));
    let folders = modules(&program);
    let folders = folders.iter().map(|name| format!("tests/tests/{name}/mod.rs"));
    let suites = folders.flat_map(|file| modules(&files::text(Path::new(&file)))).collect();
    let mut wrong = compare(&rows, &suites, "a module in a folder of tests/tests");
    wrong.extend(compare(&rows, &entries(&program), "in the table of tests/tests/suites.rs"));
    let page = files::text(Path::new("docs/testing.md"));
    if with_table(&page, &list.table()).ok().as_ref() != Some(&page) {
        let command = "cargo run -p vrnic-tests --bin vrnic-suites -- docs";
        wrong.push(format!("docs/testing.md has another table of suites; {command} writes it"));
    }
    wrong
}

/// Returns the names that only one of rows and program has.
fn compare(rows: &BTreeSet<String>, names: &BTreeSet<String>, place: &str) -> Vec<String> {
    let missing = rows.difference(names).map(|name| format!("{name} is not {place}"));
    let extra =
        names.difference(rows).map(|name| format!("{name} has no row in tests/suites.toml"));
    missing.chain(extra).collect()
}

fn modules(program: &str) -> BTreeSet<String> {
    declared(&code(program)).into_iter().map(|module| module.name).collect()
}

/// Returns the names of the table, whose lines are `("name", name::suite),`.
fn entries(program: &str) -> BTreeSet<String> {
    let lines = program.lines().filter_map(|line| line.trim().strip_prefix("(\""));
    lines.filter_map(|line| Some(line.split_once("\", ")?.0.to_owned())).collect()
}

/// Returns the output of git, if it has any.
fn git(arguments: &[&str]) -> Option<String> {
    let ran = Command::new("git").args(arguments).current_dir(files::top()).output().ok()?;
    let text = String::from_utf8(ran.stdout).ok()?.trim().to_owned();
    (ran.status.success() && !text.is_empty()).then_some(text)
}

/// Returns the suites that have not run for long.
pub(crate) fn forgotten() -> Vec<String> {
    let record = match record::parse(&files::text(Path::new(".ci/record"))) {
        Ok(record) => record,
        Err(error) => return vec![format!("{error:#}")],
    };
    let Some(begin) = record.get("all") else { return vec!["there is no line 'all'".to_owned()] };
    let list = List::read().expect("rows");
    let rows = list.rows().filter(|row| row.tier != Tier::Name);
    let late = |run: &Run| is_late(run, &git);
    let late = rows.filter(|row| late(begin) && record.get(&row.name).is_none_or(late));
    let mut wrong: Vec<_> = late.map(|row| format!("scripts/test {}", row.name)).collect();
    let known = |name: &str| name == "all" || list.rows().any(|row| row.name == name);
    let unknown = record.keys().filter(|name| !known(name));
    wrong.extend(unknown.map(|name| format!("{name} is in the record, and is no suite")));
    wrong
}

/// Returns whether too much has changed since a run. A clone without history does not know that.
fn is_late(run: &Run, git: &dyn Fn(&[&str]) -> Option<String>) -> bool {
    let since = format!("{}..HEAD", run.commit);
    if git(&["merge-base", &run.commit, "HEAD"]).is_some()
        && let Some(count) = git(&["rev-list", "--count", &since])
    {
        return count.parse().is_ok_and(|count: u32| count > COMMITS);
    }
    let seconds = |text: String| text.parse::<i64>().ok();
    let last = git(&["log", "-1", "--format=%ct"]).and_then(seconds);
    last.zip(days(&run.date)).is_some_and(|(last, day)| last / 86_400 - day > DAYS)
}

/// Returns the days from 1970 to a date such as 2026-11-29.
fn days(date: &str) -> Option<i64> {
    let mut parts = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    // Years begin in March here, so that the day of a leap year is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year / 4 - year / 100 + year / 400;
    Some(year * 365 + leaps + (month * 153 + 2) / 5 + day - 1 - 719_468)
}

#[test]
fn modules_and_entries_are_found() {
    let program = "mod a;\nmod b;\n\nconst SUITES: &[Entry] = &[\n    (\"a\", a::suite),\n];\n";
    assert_eq!(modules(program), ["a".into(), "b".into()].into());
    assert_eq!(entries(program), ["a".into()].into());
    let wrong = compare(&["a".into(), "c".into()].into(), &modules(program), "a module");
    assert_eq!(wrong, ["c is not a module", "b has no row in tests/suites.toml"]);
}

#[test]
fn old_runs_are_late() {
    let run = Run { date: "2026-11-01".into(), commit: "0123abcd".into(), seconds: 1 };
    let after = |commits: &'static str| {
        move |words: &[&str]| Some(if words[0] == "rev-list" { commits } else { "x" }.to_owned())
    };
    assert!(!is_late(&run, &after("510")) && is_late(&run, &after("511")));
    // A clone that does not know the commit, and a folder that is no clone.
    let at = |date: &str| (days(date).expect("a date") * 86_400).to_string();
    let last = |seconds: String| move |words: &[&str]| (words[0] == "log").then(|| seconds.clone());
    assert!(!is_late(&run, &last(at("2026-11-22"))) && is_late(&run, &last(at("2026-11-23"))));
    assert!(!is_late(&run, &|_| None));
    assert_eq!((days("1970-01-01"), days("2000-03-01")), (Some(0), Some(11_017)));
}
