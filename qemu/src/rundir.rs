//! A folder for sockets, logs and images of one run. It is removed at the end, also after a signal.

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

/// A folder with a short path (names of sockets have at most 107 bytes).
#[derive(Debug)]
pub struct RunDir(TempDir);

impl RunDir {
    /// Creates a new folder.
    ///
    /// # Errors
    /// If the system's folder for temporary files cannot be written.
    pub fn new() -> anyhow::Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    /// Creates a new folder in another one.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn within(parent: &Path) -> anyhow::Result<Self> {
        SIGNALS.call_once(end_on_signals);
        let folder = tempfile::Builder::new()
            .prefix("vrnic-")
            .tempdir_in(parent)
            .with_context(|| format!("cannot make a folder in {}", parent.display()))?;
        folders(|folders| folders.insert(folder.path().to_owned()));
        Ok(Self(folder))
    }

    /// Returns its path.
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

/// Ends the process in order when it gets a signal to end. The kernel then kills the children.
fn end_on_signals() {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            folders(|folders| {
                for folder in folders.iter() {
                    // If the folder cannot be removed, it stays.
                    let _stays = std::fs::remove_dir_all(folder);
                }
            });
            std::process::exit(128 + signal);
        }
    });
}
