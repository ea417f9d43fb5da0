//! Figures of the daemons and of the guests after a round, when nothing runs.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::daemon::Daemon;
use vrnic_qemu::guest::Guest;
use vrnic_tests::commands::SHORT_TIMEOUT;

/// What a process of the host uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    /// KiB of its own memory, which does not include the memory of guests.
    pub(crate) memory: u64,
    /// Open descriptors.
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
}

impl Process {
    /// Returns the figures of a daemon.
    pub(crate) fn of(daemon: &Daemon) -> Result<Self> {
        let folder = format!("/proc/{}", daemon.pid());
        let status = fs::read_to_string(format!("{folder}/status")).context("a daemon is gone")?;
        let descriptors = fs::read_dir(format!("{folder}/fd"))?.count() as u64;
        let threads = fs::read_dir(format!("{folder}/task"))?.count() as u64;
        Ok(Self { memory: number(&status, "RssAnon:")?, descriptors, threads })
    }
}

/// Returns the time for which threads of a daemon were ready to run, and others had the processors.
/// Programs whose requests time out fail on a machine that is busy with something else.
pub(crate) fn waited(daemon: &Daemon) -> Duration {
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.pid())).into_iter().flatten();
    let waited = threads.flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').nth(1)?.parse().ok().map(Duration::from_nanos)
    });
    waited.sum()
}

/// What a guest uses.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    /// KiB of the kernel's objects that it cannot take back.
    pub(crate) slab: u64,
    /// KiB that programs, page tables and the kernel use otherwise, and that it cannot take back.
    pub(crate) used: u64,
    /// Names of the programs that run.
    pub(crate) programs: String,
}

impl Memory {
    /// Returns the figures of a guest, which gives back what it can.
    pub(crate) fn of(guest: &Guest) -> Result<Self> {
        let script = "sync; echo 3 >/proc/sys/vm/drop_caches; cat /proc/meminfo";
        let text = guest.check(script, SHORT_TIMEOUT)?;
        let total = number(&text, "MemTotal:")?;
        // Kernel threads have no program. The shell runs none for this.
        let script = "for p in /proc/[0-9]*; do \
                      [ -e $p/exe ] && read -r name <$p/comm && echo $name; done; true";
        let names = guest.check(script, SHORT_TIMEOUT)?;
        let mut programs: Vec<&str> = names.lines().collect();
        programs.sort_unstable();
        Ok(Self {
            slab: number(&text, "SUnreclaim:")?,
            used: total.saturating_sub(number(&text, "MemAvailable:")?),
            programs: programs.join(" "),
        })
    }
}

/// Returns the number after a word at the start of a line.
fn number(text: &str, word: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(word));
    let words = line.and_then(|line| line.split_whitespace().next());
    words.with_context(|| format!("no {word}"))?.parse().with_context(|| word.to_owned())
}

/// The counters of a daemon, by their names and labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Reads them in the form that Prometheus reads.
    pub(crate) fn parse(metrics: &str) -> Self {
        let counter = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            let counter = name.split('{').next()?.ends_with("_total");
            Some((name.to_owned(), value.parse().ok().filter(|_| counter)?))
        };
        Self(metrics.lines().filter_map(counter).collect())
    }

    /// Checks that no counter is smaller than before, except those of functions and ports with
    /// these names, which have begun again.
    pub(crate) fn only_grow(&self, before: &Self, except: &[String]) -> Result<()> {
        for (name, old) in &before.0 {
            let of = |label: &str| name.contains(&format!("=\"{label}\""));
            if except.iter().any(|function| of(function)) {
                continue;
            }
            let new = self.0.get(name).with_context(|| format!("the counter {name} is gone"))?;
            ensure!(new >= old, "the counter {name} fell from {old} to {new}");
        }
        Ok(())
    }

    /// Returns the sum of all.
    pub(crate) fn sum(&self) -> u64 {
        self.0.values().fold(0, |sum, value| sum.saturating_add(*value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "# HELP vrnic_tx_bytes Bytes.\n# TYPE vrnic_tx_bytes counter\n\
                           vrnic_tx_bytes_total{function=\"a\"} 70\n\
                           vrnic_tx_bytes_total{function=\"b\"} 7\n\
                           vrnic_qps{function=\"a\"} 5\n# EOF\n";

    #[test]
    fn a_counter_that_falls_is_found() {
        let before = Counters::parse(METRICS);
        assert_eq!(before.sum(), 77);
        assert!(before.only_grow(&before, &[]).is_ok());
        let after = Counters::parse(&METRICS.replace(" 70\n", " 69\n").replace(" 5\n", " 4\n"));
        assert!(after.only_grow(&before, &[]).is_err());
        assert!(after.only_grow(&before, &["b".to_owned()]).is_err());
        // This counter belongs to a device that has begun again.
        assert!(after.only_grow(&before, &["a".to_owned()]).is_ok());
    }

    #[test]
    fn a_counter_that_is_gone_is_found() {
        let before = Counters::parse(METRICS);
        let after = Counters::parse(METRICS.lines().next().unwrap_or_default());
        assert!(after.only_grow(&before, &[]).is_err());
    }

    #[test]
    fn numbers_are_read() {
        let text = "MemTotal:        1000 kB\nSUnreclaim:   20 kB\n";
        assert_eq!(number(text, "SUnreclaim:").ok(), Some(20));
        assert!(number(text, "MemAvailable:").is_err());
    }
}
