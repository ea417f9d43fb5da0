//! A report on a run in a file, as JSON.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use serde::Serialize;
use vrnic_control::monitor::Watched;
use vrnic_control_api::AdapterView;
use vrnic_control_api::faults::RuleView;

use super::shown::Shown;
use crate::supervisor::program::Ended;

/// A report that is written when the run ends.
#[derive(Debug)]
pub struct Report {
    path: PathBuf,
    file: File,
    start: Instant,
    command: Vec<String>,
    shown: Shown,
}

/// What the file contains.
#[derive(Debug, Serialize)]
struct Contents<'a> {
    /// The program and its arguments. Bytes that are not UTF-8 are replaced.
    command: &'a [String],
    /// The exit status: 128 and the number of the signal if one has ended the program.
    status: u8,
    /// The number of the signal that has ended the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    /// The time from the start of the program to the end of all its processes, in milliseconds.
    milliseconds: u128,
    /// The adapters with their counters, after the end of all processes.
    adapters: Vec<AdapterView>,
    /// The rules for faults that are in force at the end.
    faults: Vec<RuleView>,
}

impl Report {
    /// Creates the file, for a run of this program with these arguments.
    ///
    /// # Errors
    /// Says that the file cannot be written.
    pub fn begin<'a>(
        path: &Path,
        command: impl Iterator<Item = &'a OsString>,
        shown: Shown,
    ) -> anyhow::Result<Self> {
        let file =
            File::create(path).with_context(|| format!("{} cannot be written", path.display()))?;
        let command = command.map(|word| word.to_string_lossy().into_owned()).collect();
        Ok(Self { path: path.to_owned(), file, start: Instant::now(), command, shown })
    }

    /// Writes the report on a run that has ended.
    ///
    /// # Errors
    /// Says that the file could not be written.
    pub fn end(self, ended: Ended) -> anyhow::Result<()> {
        let contents = Contents {
            command: &self.command,
            status: ended.status(),
            signal: match ended {
                Ended::Killed(signal) => Some(signal),
                Ended::Exited(_) => None,
            },
            milliseconds: self.start.elapsed().as_millis(),
            adapters: self.shown.views(),
            faults: self.shown.faults().rules,
        };
        serde_json::to_writer_pretty(self.file, &contents)
            .with_context(|| format!("{} could not be written", self.path.display()))
    }
}
