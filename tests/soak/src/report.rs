//! What was run, and how it ended.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

/// Counts of one kind of action.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    passed: u32,
    failed: u32,
    time: Duration,
}

/// Counts of all kinds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    rows: BTreeMap<String, Row>,
}

impl Report {
    /// Counts an action, or a check.
    pub(crate) fn count(&mut self, kind: String, passed: bool, time: Duration) {
        let row = self.rows.entry(kind).or_default();
        row.time += time;
        if passed {
            row.passed += 1;
        } else {
            row.failed += 1;
        }
    }

    /// Returns whether nothing has failed.
    pub(crate) fn passed(&self) -> bool {
        self.rows.values().all(|row| row.failed == 0)
    }

    /// Returns the table, and the sums.
    pub(crate) fn table(&self) -> String {
        let mut text =
            format!("{:<28} {:>6} {:>6} {:>8}\n", "action", "passed", "failed", "seconds");
        for (kind, Row { passed, failed, time }) in &self.rows {
            // Nothing fails when text is written to memory.
            let _written =
                writeln!(text, "{kind:<28} {passed:>6} {failed:>6} {:>8.1}", time.as_secs_f64());
        }
        let sum = |of: fn(&Row) -> u32| self.rows.values().map(of).sum::<u32>();
        let (passed, failed) = (sum(|row| row.passed), sum(|row| row.failed));
        text + &format!("\n{passed} passed, {failed} failed\n")
    }
}

/// Keeps a finding: its text and the logs of a run's folder. Returns the folder.
pub(crate) fn keep(into: &Path, seed: u64, round: u64, text: &str, from: &Path) -> Result<PathBuf> {
    let folder = into.join(format!("{seed}-round-{round}"));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(folder.join("finding.txt"), text)?;
    copy_logs(from, &folder)?;
    Ok(folder)
}

/// Copies the logs of a folder and of the folders in it.
fn copy_logs(from: &Path, into: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() {
            let below = into.join(name);
            fs::create_dir_all(&below)?;
            copy_logs(&path, &below)?;
        } else if path.extension().is_some_and(|end| end == "log") {
            fs::copy(&path, into.join(name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_ends_with_the_sums() {
        let mut report = Report::default();
        report.count("rping".to_owned(), true, Duration::from_secs(1));
        report.count("rping".to_owned(), true, Duration::from_secs(2));
        assert!(report.passed());
        report.count("checks".to_owned(), false, Duration::ZERO);
        let table = report.table();
        assert!(!report.passed() && table.ends_with("\n2 passed, 1 failed\n"), "{table}");
        assert!(table.contains("rping                             2      0      3.0\n"), "{table}");
    }
}
