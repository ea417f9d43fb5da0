//! The state of a booted machine in a file, from which guests start in a fraction of the time.
//!
//! A snapshot is made of a guest that has booted the base image, started its agent and loaded the
//! kernel's modules for RDMA, before adapters and network cards are plugged in: the state of an
//! adapter cannot travel. It fits
//! machines of the same processors, memory and slots, with the same QEMU, kernel, image and agent.
//! Its name is made of all these. Everything else, such as the module, the plugin and the files of
//! a test, gets into a guest after that has started; see [`crate::restore`].

mod machine;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Error, Result, bail};
use nix::fcntl::{Flock, FlockArg};

use crate::accel::Accel;
use crate::guest::Guest;
use crate::modules::LOAD_RDMA;
use crate::overlay::write_start;
use crate::paths::Paths;
use crate::progress::step;
use crate::qmp::Qmp;
use crate::restore::{MAPPED, completed};
use crate::root::Root;
use crate::rundir::RunDir;
use crate::setup::Setup;

/// Maximum number of snapshots that are kept. Each takes half a gigabyte.
const MAX_SNAPSHOTS: usize = 6;
/// Time limit for loading the modules of the kernel that it contains.
const LOADING: Duration = Duration::from_secs(60);
/// Time limit for writing one.
const WRITING: Duration = Duration::from_secs(120);
/// The ending of notes about snapshots from which a guest could not start, and their validity.
const REFUSED: &str = "refused";
const REFUSAL: Duration = Duration::from_secs(3600);

/// Returns the file of the snapshot for such guests. Makes it if there is none.
///
/// # Errors
/// If the guest of which it is made does not boot, the file cannot be written, or another guest
/// could not start from this snapshot in the last hour.
pub(crate) fn find_or_make(paths: &Paths, accel: Accel, guest: &Setup) -> Result<PathBuf> {
    let folder = paths.cache.join("snapshots");
    fs::create_dir_all(&folder).context("cannot make the folder of the snapshots")?;
    let template = template(guest);
    let file = folder.join(machine::name(paths, accel, &template)?);
    if let Some(why) = refused(&file) {
        bail!("an earlier guest could not: {why}");
    }
    if used(&file) {
        return Ok(file);
    }
    let lock = File::create(folder.join("lock"))?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
    // Another process may have made it meanwhile.
    if !used(&file) {
        step("making a snapshot of a guest, from which later ones start");
        make(paths, accel, template, &file)?;
        tidy(&folder)?;
    }
    Ok(file)
}

/// Removes a snapshot from which a guest could not start, and notes why.
pub(crate) fn refuse(file: &Path, error: &Error) {
    // Without the note, the next guests only try again.
    let _tried = fs::write(file.with_extension(REFUSED), format!("{error:#}"));
    let _made_again = fs::remove_file(file);
}

/// Returns why a guest could not start from the snapshot, if one could not lately.
fn refused(file: &Path) -> Option<String> {
    let note = file.with_extension(REFUSED);
    let age = fs::metadata(&note).ok()?.modified().ok()?.elapsed().ok()?;
    if age > REFUSAL {
        // It stays if it belongs to another user.
        let _removed = fs::remove_file(note);
        return None;
    }
    fs::read_to_string(note).ok()
}

/// Notes that a snapshot is in use. Returns whether it exists.
fn used(file: &Path) -> bool {
    File::options()
        .write(true)
        .open(file)
        .is_ok_and(|it| it.set_modified(SystemTime::now()).is_ok())
}

/// Returns the parameters of the guest of which a snapshot for other guests is made.
fn template(guest: &Setup) -> Setup {
    Setup {
        name: "snapshot".to_owned(),
        root: Root::Template(PathBuf::new()),
        dir: PathBuf::new(),
        share: None,
        ..guest.clone()
    }
}

/// Boots the guest, and writes its state to the file.
fn make(paths: &Paths, accel: Accel, template: Setup, file: &Path) -> Result<()> {
    let dir = RunDir::new()?;
    let initramfs = dir.path().join("initramfs");
    write_start(paths, &initramfs)?;
    let dir = dir.path().to_owned();
    let setup = Setup { root: Root::Template(initramfs), dir, ..template };
    let guest = Guest::boot(paths, accel, setup)?;
    guest.check(LOAD_RDMA, LOADING)?;
    let new = file.with_extension("new");
    let written = write(&guest, &new).and_then(|()| Ok(fs::rename(&new, file)?));
    if written.is_err() {
        // What there is of it may fill the disk.
        let _absent = fs::remove_file(new);
    }
    written.context("cannot write the snapshot")
}

/// Writes the state of a guest, which does not go on, to a file.
fn write(guest: &Guest, file: &Path) -> Result<()> {
    let mut qmp = Qmp::connect(&guest.setup().qmp_socket())?;
    qmp.run(r#"{"execute":"stop"}"#)?;
    qmp.run(MAPPED)?;
    let uri = serde_json::json!(format!("file:{}", file.display()));
    qmp.run(&format!(r#"{{"execute":"migrate","arguments":{{"uri":{uri}}}}}"#))?;
    completed(&mut qmp, WRITING)
}

/// Removes the snapshots that were not in use for the longest time.
fn tidy(folder: &Path) -> Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|it| it == "ram") {
            files.push((entry.metadata()?.modified()?, path));
        }
    }
    files.sort();
    let left = files.len().saturating_sub(MAX_SNAPSHOTS);
    for (_, path) in files.into_iter().take(left) {
        // A guest that is starting from it has opened it already.
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_snapshots_that_were_used_last_are_kept() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |number: usize| folder.path().join(format!("{number}.ram"));
        for number in 0..MAX_SNAPSHOTS + 2 {
            let time = SystemTime::now() - Duration::from_secs(1000 - number as u64);
            File::create(at(number))?.set_modified(time)?;
        }
        fs::write(folder.path().join("lock"), "")?;
        assert!(used(&at(0)) && !used(&folder.path().join("none.ram")));
        tidy(folder.path())?;
        let kept = |number: &usize| at(*number).exists();
        let numbers: Vec<_> = (0..MAX_SNAPSHOTS + 2).filter(kept).collect();
        assert_eq!(numbers, [0, 3, 4, 5, 6, 7]);
        assert!(folder.path().join("lock").exists());
        Ok(())
    }

    #[test]
    fn a_snapshot_that_does_not_work_is_not_tried_again_at_once() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("a.ram");
        fs::write(&file, "")?;
        assert_eq!(refused(&file), None);
        refuse(&file, &Error::msg("a reason"));
        assert!(!file.exists());
        assert_eq!(refused(&file).as_deref(), Some("a reason"));
        let note = file.with_extension(REFUSED);
        let long_ago = SystemTime::now() - REFUSAL * 2;
        File::options().write(true).open(&note)?.set_modified(long_ago)?;
        assert_eq!(refused(&file), None);
        assert!(!note.exists());
        Ok(())
    }
}
