//! Unpacks a cpio archive, as the kernel does with an initramfs.

use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use cpio::newc;

/// The bits of a mode that [`Permissions`] take.
const PERMISSIONS: u32 = 0o7777;
/// The bits of a mode that are the kind of an entry, and three kinds.
const KIND: u32 = 0o170_000;
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// Unpacks files, folders and symbolic links below the folder `root`. Files and links replace those
/// of the same name. Folders that exist keep their contents.
///
/// # Errors
/// If this is no such archive, an entry is of another kind, or something cannot be written.
pub fn unpacked(mut archive: impl Read, root: &Path) -> io::Result<()> {
    loop {
        let mut entry = newc::Reader::new(archive)?;
        if entry.entry().is_trailer() {
            return Ok(());
        }
        let path = root.join(entry.entry().name().trim_start_matches('/'));
        let mode = entry.entry().mode();
        match mode & KIND {
            FOLDER => fs::create_dir_all(&path)?,
            LINK => {
                let mut target = String::new();
                entry.read_to_string(&mut target)?;
                absent(&path)?;
                symlink(target, &path)?;
            }
            FILE => {
                absent(&path)?;
                io::copy(&mut entry, &mut fs::File::create_new(&path)?)?;
                fs::set_permissions(&path, Permissions::from_mode(mode & PERMISSIONS))?;
            }
            _ => return Err(io::Error::other(format!("{} is no file", path.display()))),
        }
        archive = entry.finish()?;
    }
}

/// Removes a file or a link, if there is one.
fn absent(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::overlay::Overlay;

    #[test]
    fn an_archive_is_unpacked_over_what_exists() -> io::Result<()> {
        let mut overlay = Overlay::new(Vec::new());
        overlay.dir("/sub")?;
        overlay.file("/sub/file", 0o4750, b"new")?;
        overlay.link("/sub/link", "file")?;
        overlay.file("/empty", 0o600, b"")?;
        let archive = overlay.finish()?;
        let root = tempfile::tempdir()?;
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("sub"))?;
        fs::write(at("sub/kept"), "kept")?;
        fs::write(at("sub/target"), "target")?;
        symlink("target", at("sub/file"))?;
        fs::write(at("sub/link"), "a file")?;
        for _ in 0..2 {
            unpacked(archive.as_slice(), root.path())?;
        }
        assert_eq!(fs::read_to_string(at("sub/link"))?, "new", "the link leads to the file");
        assert_eq!(fs::symlink_metadata(at("sub/file"))?.permissions().mode() & 0o7777, 0o4750);
        assert_eq!(fs::read_to_string(at("sub/target"))?, "target", "no link is followed");
        assert_eq!(fs::read_to_string(at("sub/kept"))?, "kept");
        assert_eq!(fs::metadata(at("empty"))?.len(), 0);
        Ok(())
    }

    #[test]
    fn what_is_no_archive_is_refused() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        for bytes in [&b""[..], b"070701", &[0; 200]] {
            assert!(unpacked(bytes, root.path()).is_err());
        }
        Ok(())
    }
}
