//! What the arguments of the program of all suites select.
//!
//! `SUITE` selects a whole suite, `SUITE::CASE` one case, `--smoke` the smoke cases of
//! `tests/suites.toml`, and `--only TEXT` the cases whose names contain the text. Without a name
//! all suites are meant. Other options are those of any test program.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Arguments;

use crate::repository::rows::List;

/// How many times as long as in its row a suite may take, on a machine that is busy or slow, and
/// how many times as long as the whole suite each case of it.
const SLOWER: u32 = 4;
const SLOWER_CASE: u32 = 2;
/// The least limits of a suite, and of its smoke cases. Guests that boot take a minute of them on a
/// busy machine. The steps of a case have limits of up to five minutes, whose messages say more.
const WHOLE: Limits =
    Limits { suite: Duration::from_secs(25 * 60), case: Duration::from_secs(10 * 60) };
const SMOKE: Limits =
    Limits { suite: Duration::from_secs(10 * 60), case: Duration::from_secs(6 * 60) };

/// How long a suite and each of its cases may take at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) suite: Duration,
    pub(crate) case: Duration,
}

/// The suites and cases to run.
pub(crate) struct Selection {
    smoke: bool,
    only: Vec<String>,
    /// Suites, and cases of them.
    named: Vec<(String, Option<String>)>,
    list: List,
    /// The other options.
    pub(crate) arguments: Arguments,
}

impl Selection {
    /// Reads the arguments of this process. These suites exist.
    pub(crate) fn from_args(suites: impl Iterator<Item = &'static str>) -> Result<Self> {
        Self::of(std::env::args().skip(1), &suites.collect::<Vec<_>>())
    }

    pub(crate) fn of(mut arguments: impl Iterator<Item = String>, suites: &[&str]) -> Result<Self> {
        let (mut smoke, mut only, mut named) = (false, Vec::new(), Vec::new());
        let mut others = vec!["suites".to_owned()];
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--smoke" => smoke = true,
                "--only" => only.push(arguments.next().context("--only needs a part of a name")?),
                option if option.starts_with('-') => others.push(argument),
                _ => named.push(match argument.split_once("::") {
                    Some((suite, case)) => (suite.to_owned(), Some(case.to_owned())),
                    None => (argument, None),
                }),
            }
        }
        let unknown = named.iter().find(|(suite, _)| !suites.contains(&suite.as_str()));
        ensure!(unknown.is_none(), "there is no suite '{}'", unknown.map_or("", |(name, _)| name));
        // One case at a time. With one thread, the trials run on the calling thread.
        let arguments = Arguments { test_threads: Some(1), ..Arguments::from_iter(others) };
        Ok(Self { smoke, only, named, list: List::read()?, arguments })
    }

    /// Returns whether cases of the suite may be selected.
    pub(crate) fn has_suite(&self, suite: &str) -> bool {
        let named = self.named.is_empty() || self.named.iter().any(|(name, _)| name == suite);
        named && !(self.smoke && self.smoke_cases(suite).is_empty())
    }

    /// Returns whether this case is selected.
    pub(crate) fn has(&self, suite: &str, case: &str) -> bool {
        let fits = |(name, only): &(String, Option<String>)| {
            name == suite && only.as_ref().is_none_or(|only| only == case)
        };
        (self.named.is_empty() || self.named.iter().any(fits))
            && (self.only.is_empty() || self.only.iter().any(|part| case.contains(part)))
            && (!self.smoke || self.smoke_cases(suite).iter().any(|name| name == case))
    }

    /// Returns a case that is selected by its whole name, and that a suite with these cases lacks.
    pub(crate) fn unknown(&self, suite: &str, cases: &[&str]) -> Option<&str> {
        let named = self.named.iter().filter(|(name, _)| name == suite);
        let named = named.filter_map(|(_, case)| case.as_deref());
        let smoke = self.smoke_cases(suite).iter().map(String::as_str).filter(|_| self.smoke);
        named.chain(smoke).find(|case| !cases.contains(case))
    }

    /// Returns how long a suite may take at most: several times as long as its row says, or `least`
    /// in place of the usual least limit.
    pub(crate) fn limits(&self, suite: &str, least: Option<Duration>) -> Limits {
        let row = self.list.row(suite);
        let (seconds, usual) = if self.smoke {
            (row.map_or(0, |row| row.smoke_seconds), SMOKE)
        } else {
            (row.map_or(0, |row| row.seconds), WHOLE)
        };
        let seconds = Duration::from_secs(seconds.into());
        let suite = (seconds * SLOWER).max(least.unwrap_or(usual.suite));
        Limits { suite, case: (seconds * SLOWER_CASE).max(usual.case).min(suite) }
    }

    fn smoke_cases(&self, suite: &str) -> &[String] {
        self.list.row(suite).map_or(&[], |row| &row.smoke)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(arguments: &[&str]) -> Result<Selection> {
        Selection::of(arguments.iter().map(|&word| word.to_owned()), &["tools", "cm"])
    }

    #[test]
    fn names_select_suites_and_cases() -> Result<()> {
        let chosen = selection(&["tools::rdma_res", "cm", "--list"])?;
        assert!(chosen.has_suite("tools") && chosen.has_suite("cm") && !chosen.has_suite("nvme"));
        assert!(chosen.has("tools", "rdma_res") && !chosen.has("tools", "rdma_link"));
        assert!(chosen.has("cm", "rping") && chosen.arguments.list);
        assert_eq!(chosen.unknown("tools", &["rdma_link"]), Some("rdma_res"));
        assert!(selection(&["other"]).is_err() && selection(&["--only"]).is_err());
        Ok(())
    }

    #[test]
    fn parts_of_names_and_smoke_cases_are_selected() -> Result<()> {
        let chosen = selection(&["--only", "res", "--only", "link"])?;
        assert!(chosen.has("tools", "rdma_res") && chosen.has("tools", "rdma_link"));
        assert!(!chosen.has("tools", "names"));
        let chosen = selection(&["--smoke", "tools"])?;
        let list = List::read()?;
        let first = &list.row("tools").context("a row")?.smoke[0];
        assert!(chosen.has("tools", first) && !chosen.has("tools", "no such case"));
        Ok(())
    }

    #[test]
    fn limits_are_those_of_the_row_or_the_least_ones() -> Result<()> {
        let (whole, smoke) = (selection(&[])?, selection(&["--smoke"])?);
        let row = whole.list.row("verify").context("a row")?;
        let limits = whole.limits("verify", None);
        assert_eq!(
            limits.suite,
            WHOLE.suite.max(Duration::from_secs((row.seconds * SLOWER).into()))
        );
        assert!(limits.case >= WHOLE.case && limits.case < limits.suite);
        assert_eq!(whole.limits("hosts", None), WHOLE);
        assert_eq!(smoke.limits("hosts", None), SMOKE);
        let short = Duration::from_secs(1);
        assert_eq!(whole.limits("none", Some(short)), Limits { suite: short, case: short });
        Ok(())
    }
}
