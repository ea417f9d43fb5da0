//! The files and logs that a run leaves.

use std::fs;
use std::io::{self, Seek, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::agent::Stream;
use crate::fleet::Fleet;
use crate::guest::Guest;
use crate::lab::script::OUTPUT;

/// Time limit of the copy of a guest's files.
const COPYING: Duration = Duration::from_secs(300);

/// Copies the contents of `$VRNIC_OUTPUT` into the folder `into`, with a folder for each guest, and
/// writes the logs of the daemon and of the kernels, and `more`, to `report.txt`. Copies only
/// regular files and folders.
///
/// # Errors
/// If a guest has ended, or files cannot be written here.
pub fn collect(fleet: &Fleet, more: &str, into: &Path) -> Result<()> {
    let failure = || format!("cannot write to {}", into.display());
    fs::create_dir_all(into).with_context(failure)?;
    // The logs come first: they are on this machine, while a guest may have ended.
    fs::write(into.join("report.txt"), fleet.report() + more).with_context(failure)?;
    let copied = fleet.guests().map(|guest| {
        let folder = into.join(&guest.setup().name);
        fs::create_dir_all(&folder).with_context(failure)?;
        unpack(guest, &folder)
    });
    // Copies the files of all guests, even if one of them has ended.
    copied.collect::<Vec<_>>().into_iter().collect()
}

/// Makes the folder of a file that will be written, if it is missing.
///
/// # Errors
/// If that fails.
pub fn make_folder_of(file: &Path) -> Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}

/// Unpacks an archive of the guest's files.
fn unpack(guest: &Guest, folder: &Path) -> Result<()> {
    let failure = || format!("cannot copy the files of guest {}", guest.setup().name);
    let mut file = tempfile::tempfile().with_context(failure)?;
    let script = format!("mkdir -p {OUTPUT} && tar -C {OUTPUT} -c .");
    let running = guest.agent().start(&script)?;
    let code = running.follow(COPYING, |stream, data| match stream {
        Stream::Stdout => file.write_all(data).with_context(failure),
        Stream::Stderr => {
            eprint!("{}: {}", guest.setup().name, String::from_utf8_lossy(data));
            Ok(())
        }
    })?;
    if code != Some(0) {
        let _gone = running.kill();
        bail!("{}: tar ended with {code:?}", failure());
    }
    file.rewind()?;
    unpack_archive(file, folder).with_context(failure)
}

/// Unpacks the regular files and folders of an archive, which may be hostile. Writes nothing
/// outside of `folder`.
fn unpack_archive(archive: impl io::Read, folder: &Path) -> io::Result<()> {
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind.is_file() || kind.is_dir() {
            entry.unpack_in(folder)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_file_is_made() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("new/folder/file");
        make_folder_of(&file)?;
        fs::write(&file, "")?;
        make_folder_of(&file)?;
        make_folder_of(Path::new("file"))?;
        assert!(make_folder_of(&file.join("below/a")).is_err());
        Ok(())
    }

    /// Adds an entry to an archive, with any name.
    fn entry(archive: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType, data: &[u8]) {
        let mut header = tar::Header::new_gnu();
        let bytes = &mut header.as_gnu_mut().expect("a GNU header").name;
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(data.len() as u64);
        header.set_mode(0o4755);
        if kind.is_symlink() {
            header.set_link_name("/etc").expect("a link's target");
        }
        header.set_cksum();
        archive.append(&header, data).expect("an entry");
    }

    /// Shows: hostile
    #[test]
    fn a_hostile_archive_writes_only_files_into_its_folder() -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let outer = tempfile::tempdir()?;
        let folder = outer.path().join("inner");
        fs::create_dir(&folder)?;
        let mut archive = tar::Builder::new(Vec::new());
        entry(&mut archive, "./", tar::EntryType::Directory, b"");
        entry(&mut archive, "./sub/", tar::EntryType::Directory, b"");
        entry(&mut archive, "./sub/good", tar::EntryType::Regular, b"text");
        entry(&mut archive, "../outside", tar::EntryType::Regular, b"text");
        entry(&mut archive, "link", tar::EntryType::Symlink, b"");
        entry(&mut archive, "disk", tar::EntryType::Block, b"");
        unpack_archive(archive.into_inner()?.as_slice(), &folder)?;
        let names = |folder: &Path| -> Result<Vec<_>> {
            Ok(fs::read_dir(folder)?
                .map(|entry| entry.map(|it| it.file_name()))
                .collect::<Result<_, _>>()?)
        };
        assert_eq!(names(outer.path())?, ["inner"]);
        assert_eq!(names(&folder)?, ["sub"]);
        let good = folder.join("sub/good");
        assert_eq!(fs::read(&good)?, b"text");
        assert_eq!(fs::metadata(good)?.permissions().mode() & 0o7000, 0);
        Ok(())
    }
}
