//! A folder for sockets, logs and images of one run. It is removed at the end, also after a signal.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::machine::signals;

/// The folders to remove when a signal ends the process.
static FOLDERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// How the names of folders begin.
const PREFIX: &str = "vrnic-";
/// The file of a folder that is locked while the folder is in use. A folder without this file was
/// made by something else, and stays.
const LOCK: &str = ".lock";
/// Number of attempts to make a folder, whose lock another process may take to remove the folder.
const MAKING: u32 = 100;
/// Number of attempts to remove a folder into which another thread may still write, and the time
/// between them.
const ATTEMPTS: u32 = 50;
const BETWEEN: Duration = Duration::from_millis(20);

/// A folder with a short path (names of sockets have at most 107 bytes). It is locked as long as it
/// is in use.
#[derive(Debug)]
pub struct RunDir {
    folder: TempDir,
    lock: Option<Flock<File>>,
}

impl RunDir {
    /// Creates a new folder, and removes those that processes have left which were killed.
    ///
    /// # Errors
    /// If the system's folder for temporary files cannot be written.
    pub fn new() -> anyhow::Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    /// Creates a new folder in another one, and removes those that processes have left there which
    /// were killed.
    ///
    /// # Errors
    /// If the other one cannot be written.
    pub fn within(parent: &Path) -> anyhow::Result<Self> {
        signals::watch(remove_all);
        tidy(parent);
        let failure = || format!("cannot make a folder in {}", parent.display());
        for _ in 0..MAKING {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent);
            let folder = folder.with_context(failure)?;
            folders(|folders| folders.insert(folder.path().to_owned()));
            let mut made = Self { folder, lock: None };
            match lock(&made.path().join(LOCK), true) {
                Ok(lock) => {
                    made.lock = Some(lock);
                    return Ok(made);
                }
                // Another process has taken it for one that was left.
                Err(Errno::EWOULDBLOCK | Errno::ENOENT) => {}
                // Some network file systems have no such locks. Nothing is removed there.
                Err(Errno::ENOLCK | Errno::EOPNOTSUPP | Errno::ENOSYS) => return Ok(made),
                Err(error) => return Err(error).with_context(failure),
            }
        }
        bail!("{}: other processes have removed each of {MAKING}", failure())
    }

    /// Returns the path of the folder.
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

/// Removes the folders in another one that nobody uses: their processes were killed.
fn tidy(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours && let Ok(_lock) = lock(&entry.path().join(LOCK), false) {
            // A folder of another user stays.
            let _stays = fs::remove_dir_all(entry.path());
        }
    }
}

/// Locks a file, which is made if `new` is true, unless another process has locked it or removes
/// it.
fn lock(path: &Path, new: bool) -> Result<Flock<File>, Errno> {
    let error = |error: &io::Error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
    let mut options = File::options();
    let options = options.read(true).write(true).create_new(new);
    let file = options.open(path).map_err(|it| error(&it))?;
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error)?;
    // Another process may have removed the folder before.
    if path.exists() { Ok(lock) } else { Err(Errno::ENOENT) }
}

fn folders<R>(work: impl FnOnce(&mut BTreeSet<PathBuf>) -> R) -> R {
    work(&mut FOLDERS.lock())
}

/// Removes the folders of this process.
fn remove_all() {
    folders(|folders| folders.iter().for_each(|folder| remove(folder)));
}

/// Removes a folder, into which other threads of this process may still write.
fn remove(folder: &Path) {
    // The other threads then find no folder, except for the file that they write just now.
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
    use super::*;

    #[test]
    fn folders_that_were_left_are_removed_at_the_next_start() -> anyhow::Result<()> {
        let parent = tempfile::tempdir()?;
        let at = |name: &str| parent.path().join(name);
        let used = RunDir::within(parent.path())?;
        for name in ["vrnic-left", "vrnic-mine", "other"] {
            fs::create_dir_all(at(name).join("root"))?;
        }
        // As a process that was killed leaves it: with its lock, which nobody holds.
        File::create(at("vrnic-left").join(LOCK))?;
        let next = RunDir::within(parent.path())?;
        assert!(!at("vrnic-left").exists());
        assert!(at("vrnic-mine").exists() && at("other").exists(), "made by something else");
        assert!(used.path().exists() && next.path().exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
        Ok(())
    }

    #[test]
    fn folders_that_are_made_at_the_same_time_do_not_remove_each_other() -> anyhow::Result<()> {
        let parent = tempfile::tempdir()?;
        let make = || -> anyhow::Result<()> {
            for _ in 0..200 {
                let made = RunDir::within(parent.path())?;
                fs::write(made.path().join("file"), "")?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(make));
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(made) => made,
                Err(_) => bail!("a thread panicked"),
            })
        })
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
