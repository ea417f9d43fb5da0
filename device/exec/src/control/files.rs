//! Captures and timelines of a whole run in files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use vrnic_control::capture::recorder::Recorder;
use vrnic_control::capture::recording::Recording;
use vrnic_control::timeline::recording::{Form, Timelines};

use crate::adapter::driver::Driver;
use crate::adapter::host::ProcessHost;
use crate::adapter::traffic::Traffic;

/// The files of a run that are being written.
#[derive(Debug, Default)]
pub struct Written {
    capture: Option<(PathBuf, Recording, Recorder<ProcessHost>)>,
    timelines: Option<(PathBuf, Timelines)>,
}

impl Written {
    /// Begins to write a capture of all adapters, and the timelines of all queue pairs.
    ///
    /// # Errors
    /// Says which file cannot be written.
    pub fn begin(
        capture: Option<&Path>,
        timelines: Option<&Path>,
        drivers: &[Driver],
        traffic: &Traffic,
    ) -> anyhow::Result<Self> {
        let mut this = Self::default();
        if let Some(path) = capture {
            let recorder = traffic.recorder();
            this.capture = Some((path.to_owned(), recorder.write(create(path)?)?, recorder));
        }
        if let Some(path) = timelines {
            let adapters = drivers.iter().map(|driver| Arc::clone(driver.adapter())).collect();
            let is_json = path.extension().is_some_and(|extension| extension == "json");
            let form = if is_json { Form::Perfetto } else { Form::Text };
            let begun = Timelines::begin(adapters, create(path)?, form)?;
            this.timelines = Some((path.to_owned(), begun));
        }
        Ok(this)
    }

    /// Ends the files. Says on standard error what is not in them.
    ///
    /// # Errors
    /// Says which file could not be written.
    pub fn end(self) -> anyhow::Result<()> {
        let failed = |path: &Path| format!("{} could not be written", path.display());
        if let Some((path, recording, _recorder)) = self.capture {
            let lost = recording.end().with_context(|| failed(&path))?;
            warn(&path, lost, "packets and messages");
        }
        if let Some((path, timelines)) = self.timelines {
            let lost = timelines.end().with_context(|| failed(&path))?;
            warn(&path, lost, "steps");
        }
        Ok(())
    }
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("{} cannot be written", path.display()))
}

fn warn(path: &Path, lost: u64, what: &str) {
    if lost > 0 {
        let path = path.display();
        eprintln!("vrnic exec: {path} lacks {lost} {what}, which came too fast to be written");
    }
}
