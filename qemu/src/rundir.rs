//! A folder for sockets, logs and images of one run. It is removed at the end, also after a signal.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use anyhow::Context;
use nix::fcntl::{Flock, FlockArg};
use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

/// The folders to remove when a signal ends the process.
static FOLDERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
static SIGNALS: Once = Once::new();

/// How the names of folders begin.
const PREFIX: &str = "vrnic-";
/// Age of a folder that may have been left, because a new one is locked by then.
const LEFT: Duration = Duration::from_secs(3600);
/// Number of attempts to remove a folder into which another thread may still write, and the time
/// between them.
const ATTEMPTS: u32 = 50;
const BETWEEN: Duration = Duration::from_millis(20);

/// A folder with a short path (names of sockets have at most 107 bytes). It is locked as long as it
/// is in use.
#[derive(Debug)]
pub struct RunDir {
    folder: TempDir,
    _lock: Option<Flock<File>>,
}

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
            .prefix(PREFIX)
            .tempdir_in(parent)
            .with_context(|| format!("cannot make a folder in {}", parent.display()))?;
        folders(|folders| folders.insert(folder.path().to_owned()));
        // Some network file systems have no such locks. Nothing that was left is removed there.
        let lock = lock(folder.path()).ok();
        Ok(Self { folder, _lock: lock })
    }

    /// Removes the folders in another one that are not in use and that processes have left, such as
    /// those that were killed.
    pub fn tidy(parent: &Path) {
        let Ok(entries) = fs::read_dir(parent) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(PREFIX) && old(&entry) {
                remove_left(&entry.path());
            }
        }
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        folders(|folders| folders.remove(self.folder.path()));
    }
}

/// Locks a folder, unless another process has locked it.
fn lock(folder: &Path) -> anyhow::Result<Flock<File>> {
    let file = File::open(folder)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error.into())
}

/// Returns whether a folder was made before [`LEFT`].
fn old(entry: &fs::DirEntry) -> bool {
    let made = entry.metadata().ok().filter(fs::Metadata::is_dir).and_then(|it| it.modified().ok());
    made.and_then(|made| made.elapsed().ok()).is_some_and(|age| age > LEFT)
}

/// Removes a folder that nobody has locked.
fn remove_left(folder: &Path) {
    if let Ok(_locked) = lock(folder) {
        // A folder of another user stays.
        let _stays = fs::remove_dir_all(folder);
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
                    remove(folder);
                }
            });
            std::process::exit(128 + signal);
        }
    });
}

/// Removes a folder, into which other threads of this process may still write.
fn remove(folder: &Path) {
    // They then find no folder, except for the file that they write just now.
    let gone = folder.with_extension("gone");
    let folder = if fs::rename(folder, &gone).is_ok() { &gone } else { folder };
    for _ in 0..ATTEMPTS {
        // If the folder cannot be removed at all, it stays.
        if fs::remove_dir_all(folder).is_ok() || !folder.exists() {
            break;
        }
        std::thread::sleep(BETWEEN);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_old_folders_that_nobody_uses_are_removed() -> anyhow::Result<()> {
        let parent = tempfile::tempdir()?;
        let used = RunDir::within(parent.path())?;
        let at = |name: &str| parent.path().join(name);
        for name in ["vrnic-left", "vrnic-new", "other"] {
            fs::create_dir_all(at(name).join("root"))?;
        }
        let before = SystemTime::now() - 2 * LEFT;
        for folder in [used.path(), &at("vrnic-left"), &at("other")] {
            File::open(folder)?.set_modified(before)?;
        }
        RunDir::tidy(parent.path());
        assert!(used.path().exists() && at("vrnic-new").exists() && at("other").exists());
        assert!(!at("vrnic-left").exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
        Ok(())
    }

    #[test]
    fn a_folder_is_removed_while_another_thread_writes() -> anyhow::Result<()> {
        let parent = tempfile::tempdir()?;
        let folder = parent.path().join("root");
        fs::create_dir(&folder)?;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Ends when the folder is gone.
                let mut numbers = 0..1_000_000_u32;
                numbers.all(|number| fs::create_dir(folder.join(number.to_string())).is_ok());
            });
            remove(&folder);
        });
        assert_eq!(fs::read_dir(parent.path())?.count(), 0);
        Ok(())
    }
}
