//! The adapters' counters, as the daemon counts them. They are there even if a guest has ended.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::fleet::Fleet;

/// The counters of an adapter.
#[derive(Debug, Deserialize)]
struct Function {
    function: String,
    counters: BTreeMap<String, u64>,
}

/// The counters of all adapters at one time.
#[derive(Debug)]
pub struct Counters(Vec<Function>);

/// A counter that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The adapter.
    pub function: String,
    /// The name of the counter.
    pub counter: String,
    /// The counter's value before the commands.
    pub before: u64,
    /// The counter's value after the commands.
    pub after: u64,
}

impl Counters {
    /// Asks the daemon.
    ///
    /// # Errors
    /// If the daemon has ended.
    pub fn read(fleet: &Fleet) -> Result<Self> {
        let mut command = fleet.vrnic()?;
        let output = command.args(["show", "counters", "--json"]).output();
        let output = output.context("cannot run vrnic")?;
        ensure!(output.status.success(), "vrnic: {}", String::from_utf8_lossy(&output.stderr));
        Self::parse(&output.stdout)
    }

    fn parse(json: &[u8]) -> Result<Self> {
        Ok(Self(serde_json::from_slice(json).context("the daemon's counters have no known form")?))
    }

    /// Returns a counter of an adapter, or 0 if there is none.
    #[must_use]
    pub fn of(&self, function: &str, counter: &str) -> u64 {
        let found = self.0.iter().find(|found| found.function == function);
        found.and_then(|found| found.counters.get(counter)).copied().unwrap_or_default()
    }

    /// Returns the counters that have changed until `after`.
    #[must_use]
    pub fn changes(&self, after: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        for Function { function, counters } in &after.0 {
            let before = self.0.iter().find(|before| before.function == *function);
            for (counter, after) in counters {
                let before = before.and_then(|it| it.counters.get(counter)).copied();
                let before = before.unwrap_or_default();
                if before != *after {
                    let (function, counter) = (function.clone(), counter.clone());
                    changes.push(Change { function, counter, before, after: *after });
                }
            }
        }
        changes
    }
}

/// Returns changes as a table of text.
#[must_use]
pub fn table(changes: &[Change]) -> String {
    let mut text = format!(
        "\n--- counters\n{:8} {:32} {:>16} {:>16}\n",
        "adapter", "counter", "before", "after"
    );
    for Change { function, counter, before, after } in changes {
        text += &format!("{function:8} {counter:32} {before:>16} {after:>16}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_have_changed_are_listed() -> Result<()> {
        let before = Counters::parse(br#"[{"function": "a", "counters": {"x": 1, "y": 2}}]"#)?;
        let after = Counters::parse(
            br#"[{"function": "a", "counters": {"x": 1, "y": 5}},
                 {"function": "b", "counters": {"x": 3, "y": 0}}]"#,
        )?;
        let change = |function: &str, counter: &str, before, after| Change {
            function: function.into(),
            counter: counter.into(),
            before,
            after,
        };
        assert_eq!(before.changes(&after), [change("a", "y", 2, 5), change("b", "x", 0, 3)]);
        assert!(Counters::parse(b"{}").is_err());
        Ok(())
    }
}
