//! The state of a booted machine in a file, from which guests start in a fraction of the time.
//!
//! A snapshot is made of a guest that has booted the base image, started its agent and loaded the
//! kernel's modules for RDMA, before adapters and network cards are plugged in: the state of an
//! adapter cannot travel. A snapshot fits machines of the same processors, memory and slots, with
//! the same QEMU, kernel, image and agent, and has a name that is made of all these. Everything
//! else, such as the module, the plugin and the files of a test, gets into a guest after that has
//! started; see [`crate::restore`].
//!
//! The container image of `scripts/image` has a snapshot that is packed. It was made on another
//! machine, so it is used only if the clock of its guest is right here ([`crate::machine::tsc`]).

mod machine;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Error, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};

use crate::guest::Guest;
use crate::machine::accel::Accel;
use crate::machine::paths::Paths;
use crate::machine::progress::step;
use crate::machine::rundir::RunDir;
use crate::machine::tsc;
use crate::modules::LOAD_RDMA;
use crate::qmp::Qmp;
use crate::restore::migrate;
use crate::roots::overlay::write_start;
use crate::roots::root::Root;
use crate::setup::Setup;

/// Maximum number of snapshots that are kept. Each takes 0.4 GB. All suites together use nine.
const MAX_SNAPSHOTS: usize = 10;
/// Time limit for loading the kernel's modules for RDMA.
const LOADING: Duration = Duration::from_secs(60);
/// Time limit for writing a snapshot.
const WRITING: Duration = Duration::from_secs(120);
/// The ending of notes about snapshots from which a guest could not start, and their validity.
const REFUSED: &str = "refused";
const REFUSAL: Duration = Duration::from_secs(3600);
/// The ending of snapshots that are packed, and of the frequency of the counter with which a guest
/// of a snapshot has booted.
const PACKED: &str = "zst";
const FREQUENCY: &str = "tsc";

/// Returns the file of the snapshot for such guests. Unpacks it if it is packed, and makes it if
/// there is none, but not with `VRNIC_SNAPSHOT=given`.
///
/// # Errors
/// If the guest of which it is made does not boot, the file cannot be written, another guest could
/// not start from this snapshot in the last hour, or there is none and none is made.
pub(crate) fn find_or_make(paths: &Paths, accel: Accel, guest: &Setup) -> Result<PathBuf> {
    let folder = paths.cache.join("snapshots");
    let template = template(guest);
    let file = folder.join(machine::name(paths, accel, &template)?);
    if known(&file, accel)? {
        return Ok(file);
    }
    fs::create_dir_all(&folder).context("cannot make the folder of the snapshots")?;
    let _lock = lock(&folder.join("lock")).context("cannot lock the folder of the snapshots")?;
    // Another process may have made it meanwhile, or tried to.
    let given = std::env::var_os("VRNIC_SNAPSHOT").is_some_and(|it| it == "given");
    // A packed snapshot that does not fit is replaced by a new one, if one can be made.
    let unpacked =
        || unpack(&file, accel).or_else(|error| if given { Err(error) } else { Ok(false) });
    if !known(&file, accel)? && !unpacked()? {
        ensure!(
            !given,
            "there is none of such guests, and VRNIC_SNAPSHOT=given asks for no new one"
        );
        step("making a snapshot of a guest, from which later ones start");
        tidy(&folder, MAX_SNAPSHOTS - 1);
        make(paths, accel, template, &file).inspect_err(|error| refuse(&file, error))?;
    }
    Ok(file)
}

/// Returns whether the snapshot exists and fits this machine.
///
/// # Errors
/// If it could not be made or used lately.
fn known(file: &Path, accel: Accel) -> Result<bool> {
    if let Some(why) = refused(file) {
        bail!("an earlier guest could not: {why}");
    }
    Ok(used(file) && misfit(file, accel).is_none())
}

/// Returns why the snapshot does not fit this machine, if it exists. KVM lets guests go on with the
/// frequency of their counter, or refuses that.
fn misfit(file: &Path, accel: Accel) -> Option<String> {
    (accel == Accel::Tcg).then(|| tsc::difference(&file.with_extension(FREQUENCY))).flatten()
}

/// Unpacks the snapshot, if there is one that is packed.
///
/// # Errors
/// If it does not fit this machine, or cannot be unpacked.
fn unpack(file: &Path, accel: Accel) -> Result<bool> {
    let packed = file.with_extension(PACKED);
    if !packed.exists() {
        return Ok(false);
    }
    if let Some(why) = misfit(file, accel) {
        bail!("the one of this image does not fit: {why}");
    }
    let new = file.with_extension("new");
    let mut zstd = Command::new("zstd");
    zstd.args(["-d", "-q", "-f", "--sparse", "-o"]).args([&new, &packed]);
    let ran = zstd.output().context("cannot run zstd")?;
    let unpacked = ran.status.success().then(|| fs::rename(&new, file));
    if !matches!(unpacked, Some(Ok(()))) {
        // The incomplete file may fill the disk.
        let _absent = fs::remove_file(new);
        bail!("cannot unpack {}: {}", packed.display(), String::from_utf8_lossy(&ran.stderr));
    }
    Ok(true)
}

/// Waits until no other process or thread makes a snapshot.
fn lock(file: &Path) -> Result<Flock<File>> {
    let waiting = |(file, _)| {
        step("waiting for the snapshot of a guest that is being made");
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error)
    };
    let free = Flock::lock(File::create(file)?, FlockArg::LockExclusiveNonblock);
    Ok(free.or_else(waiting)?)
}

/// Removes a snapshot that could not be made, or from which a guest could not start, and notes why.
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
        // The note stays if it belongs to another user.
        let _removed = fs::remove_file(note);
        return None;
    }
    fs::read_to_string(note).ok()
}

/// Notes that a snapshot is in use. Returns whether it exists.
fn used(file: &Path) -> bool {
    if let Ok(file) = File::options().write(true).open(file) {
        // Without the time, it is only removed earlier.
        let _noted = file.set_modified(SystemTime::now());
    }
    // The cache of an image cannot be written.
    File::open(file).is_ok()
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
    let written = write(&guest, &new).and_then(|()| keep(&new, file));
    if written.is_err() {
        // The incomplete file may fill the disk.
        let _absent = fs::remove_file(new);
    }
    written.context("cannot write the snapshot")?;
    // The note comes last: a new snapshot with an old note is made again, and an old one with a
    // new note would be used.
    tsc::note(&file.with_extension(FREQUENCY))
}

/// Gives a snapshot its name when all of it is on the disk.
fn keep(new: &Path, file: &Path) -> Result<()> {
    File::open(new)?.sync_all()?;
    Ok(fs::rename(new, file)?)
}

/// Writes the state of a guest, which does not go on, to a file.
fn write(guest: &Guest, file: &Path) -> Result<()> {
    let mut qmp = Qmp::connect(&guest.setup().qmp_socket())?;
    qmp.run(r#"{"execute":"stop"}"#)?;
    migrate(&mut qmp, "migrate", file, WRITING)
}

/// Removes all but `left` snapshots, those first that were not in use for the longest time, and
/// what killed processes have left. The caller has the lock.
fn tidy(folder: &Path, left: usize) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        match path.extension().and_then(OsStr::to_str) {
            Some("ram") => {
                files.push((entry.metadata().and_then(|it| it.modified()).ok(), path));
            }
            // Files of other users stay.
            Some("new") => drop(fs::remove_file(path)),
            _ => {}
        }
    }
    files.sort();
    let surplus = files.len().saturating_sub(left);
    for (_, path) in files.into_iter().take(surplus) {
        // A guest that has opened it goes on reading. One that has not yet boots.
        let _stays = fs::remove_file(&path);
        let _absent = fs::remove_file(path.with_extension(FREQUENCY));
    }
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
        fs::write(folder.path().join("half.new"), "")?;
        tidy(folder.path(), 3);
        let kept = |number: &usize| at(*number).exists();
        let numbers: Vec<_> = (0..MAX_SNAPSHOTS + 2).filter(kept).collect();
        assert_eq!(numbers, [0, MAX_SNAPSHOTS, MAX_SNAPSHOTS + 1]);
        assert!(folder.path().join("lock").exists() && !folder.path().join("half.new").exists());
        Ok(())
    }

    /// Shows: tools
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

    #[test]
    fn a_packed_snapshot_is_unpacked_where_its_clock_is_right() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("a.ram");
        assert!(!unpack(&file, Accel::Tcg)?, "there is none");
        fs::write(&file, "state")?;
        let mut zstd = Command::new("zstd");
        zstd.args(["-q", "-o"]).args([&file.with_extension(PACKED), &file]);
        assert!(zstd.status()?.success());
        fs::remove_file(&file)?;

        fs::write(file.with_extension(FREQUENCY), "1000")?;
        let why = unpack(&file, Accel::Tcg).err().map(|error| error.to_string());
        assert!(why.is_some_and(|why| why.contains("runs at 1 MHz")) && !file.exists());
        tsc::note(&file.with_extension(FREQUENCY))?;
        assert!(!known(&file, Accel::Tcg)? && unpack(&file, Accel::Tcg)?);
        assert!(known(&file, Accel::Tcg)?);
        assert_eq!(fs::read_to_string(&file)?, "state");

        fs::write(file.with_extension(FREQUENCY), "1000")?;
        assert!(!known(&file, Accel::Tcg)? && known(&file, Accel::Kvm)?);
        fs::write(file.with_extension(PACKED), "no archive")?;
        tsc::note(&file.with_extension(FREQUENCY))?;
        assert!(unpack(&file, Accel::Tcg).is_err());
        Ok(())
    }
}
