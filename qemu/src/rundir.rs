//! A folder for sockets, logs and images of one run, removed at its end, a signal's included.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::Context;
use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

/// The folders to remove when a signal ends the process.
static FOLDERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
static SIGNALS: Once = Once::new();

/// A folder with a short path (socket names have 107 bytes at most).
#[derive(Debug)]
pub struct RunDir(TempDir);

impl RunDir {
    /// Makes a new folder.
    ///
    /// # Errors
    /// When the system's folder for temporary files cannot be written.
    pub fn new() -> anyhow::Result<Self> {
        SIGNALS.call_once(end_on_signals);
        let folder = tempfile::Builder::new()
            .prefix("vrnic-")
            .tempdir()
            .context("cannot make a temporary folder")?;
        folders(|folders| folders.insert(folder.path().to_owned()));
        Ok(Self(folder))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        folders(|folders| folders.remove(self.0.path()));
    }
}

fn folders<R>(work: impl FnOnce(&mut BTreeSet<PathBuf>) -> R) -> R {
    work(&mut FOLDERS.lock())
}

/// Ends the process in order when it gets a signal to end. The kernel kills our children then.
fn end_on_signals() {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            folders(|folders| {
                for folder in folders.iter() {
                    // Nothing more can be done about one that stays.
                    let _stays = std::fs::remove_dir_all(folder);
                }
            });
            std::process::exit(128 + signal);
        }
    });
}
