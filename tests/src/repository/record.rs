//! The record of whole runs of suites, `.ci/record`: a line for each suite with the date, the
//! commit and the seconds of its last run in which all cases passed. The line `all` says since when
//! there is a record.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The date, such as 2026-11-29.
    pub date: String,
    /// The hash of the commit that was tested.
    pub commit: String,
    /// How long it took.
    pub seconds: u32,
}

/// The lines by suite.
pub type Record = BTreeMap<String, Run>;

/// The beginning of a line in the output of `.ci/run` that belongs into the record.
pub const RECORDED: &str = "recorded: ";

/// Returns the path of the record.
#[must_use]
pub fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.ci/record")
}

/// Reads a record.
///
/// # Errors
/// If a line is none of a record.
pub fn parse(text: &str) -> Result<Record> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| parse_line(line).with_context(|| format!(".ci/record: '{line}'"))).collect()
}

fn parse_line(line: &str) -> Result<(String, Run)> {
    let mut words = line.split_whitespace();
    let mut word = || words.next().context("a line is: suite, date, commit, seconds");
    let (name, date, commit) = (word()?.to_owned(), word()?.to_owned(), word()?.to_owned());
    let seconds = word()?.parse().context("the seconds are no number")?;
    let digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_hexdigit());
    ensure!(date.len() == 10 && date.split('-').all(digits), "the date is not like 2026-11-29");
    ensure!(commit.len() >= 7 && digits(&commit), "the commit is no number of git");
    Ok((name, Run { date, commit, seconds }))
}

/// Returns the record with the lines that the output of `.ci/run` has for it.
///
/// # Errors
/// If such a line is wrong.
pub fn updated(record: &str, output: &str) -> Result<String> {
    let mut runs = parse(record)?;
    for line in output.lines().filter_map(|line| line.trim().strip_prefix(RECORDED)) {
        let (name, run) = parse_line(line).with_context(|| line.to_owned())?;
        runs.insert(name, run);
    }
    let head = record.lines().filter(|line| line.starts_with('#')).map(str::to_owned);
    let lines = runs
        .iter()
        .map(|(name, run)| format!("{name} {} {} {}", run.date, run.commit, run.seconds));
    Ok(head.chain(lines).map(|line| line + "\n").collect())
}

/// Returns suites in the order in which they should run: first those of `failed`, then those with
/// the oldest date. Among equal ones, the first one moves with the number of commits.
#[must_use]
pub fn order<'a>(
    suites: &[&'a str],
    record: &Record,
    failed: &[&str],
    commits: usize,
) -> Vec<&'a str> {
    let mut suites = suites.to_vec();
    let first = commits.checked_rem(suites.len()).unwrap_or_default();
    suites.rotate_left(first);
    let date = |name: &str| record.get(name).map_or("", |run| &run.date);
    suites.sort_by_key(|name| (!failed.contains(name), date(name)));
    suites
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A comment.\na 2026-11-28 0123abcd 40\nb 2026-11-29 0123abcd 50\n";

    #[test]
    fn output_updates_the_record() -> Result<()> {
        let output =
            "x\nrecorded: c 2026-11-29 89abcdef 60\n  recorded: a 2026-11-30 89abcdef 41\n";
        let text = "# A comment.\na 2026-11-30 89abcdef 41\nb 2026-11-29 0123abcd 50\n\
                    c 2026-11-29 89abcdef 60\n";
        assert_eq!(updated(TEXT, output)?, text);
        for wrong in ["a 2026-11-28 0123abcd", "a yesterday 0123abcd 1", "a 2026-11-28 HEAD 1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        Ok(())
    }

    #[test]
    fn the_oldest_run_is_repeated_first() -> Result<()> {
        let record = parse(TEXT)?;
        let suites = ["a", "b", "c", "d"];
        assert_eq!(order(&suites, &record, &[], 2), ["c", "d", "a", "b"]);
        assert_eq!(order(&suites, &record, &[], 7), ["d", "c", "a", "b"]);
        assert_eq!(order(&suites, &record, &["b"], 2), ["b", "c", "d", "a"]);
        assert!(order(&[], &record, &[], 3).is_empty());
        Ok(())
    }
}
