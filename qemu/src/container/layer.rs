//! The files of a layer of an image. A layer may be hostile: nothing is written outside of the
//! root.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nix::unistd::geteuid;

/// Beginning of the names that remove a file of the layers below.
const WHITEOUT: &str = ".wh.";
/// The name that removes all files of the layers below from its folder.
const OPAQUE: &str = ".wh..wh..opq";

/// Removes what a layer removes of those below.
///
/// # Errors
/// If the layer cannot be read, or a file cannot be removed.
pub fn remove(layer: impl Read, root: &Path) -> Result<()> {
    for entry in tar::Archive::new(layer).entries()? {
        let entry = entry?;
        let path = plain(&entry.path()?)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(hidden) = name.strip_prefix(WHITEOUT) else { continue };
        let Some(folder) = existing(root, path.parent().unwrap_or(Path::new("")))? else {
            continue;
        };
        if name == OPAQUE {
            for entry in fs::read_dir(&folder)? {
                clear(&entry?.path())?;
            }
        } else {
            ensure!(!["", ".", ".."].contains(&hidden), "the layer removes '{hidden}'");
            clear(&folder.join(hidden))?;
        }
    }
    Ok(())
}

/// Unpacks folders, files and links. Devices are left out, because the guests have their own.
///
/// # Errors
/// If the layer is damaged, leads out of the root, or the disk is full.
pub fn unpack(layer: impl Read, root: &Path) -> Result<()> {
    let privileged = geteuid().is_root();
    let mut archive = tar::Archive::new(layer);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(privileged);
    archive.set_preserve_mtime(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        let wanted = kind.is_file()
            || kind.is_dir()
            || kind.is_symlink()
            || kind.is_hard_link()
            || kind.is_contiguous()
            || kind.is_gnu_sparse();
        let path = plain(&entry.path()?)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !wanted || name.starts_with(WHITEOUT) {
            continue;
        }
        let failure = || format!("cannot unpack {}", path.display());
        let target = root.join(&path);
        if kind.is_hard_link() {
            let first = entry.link_name()?.unwrap_or_default();
            hard_link(root, &path, &first)?;
            continue;
        }
        make_room(root, &path, kind.is_dir())?;
        let unpacked = entry.unpack_in(root).with_context(failure)?;
        ensure!(unpacked, "the name {} leads out of the root", path.display());
        if kind.is_dir() && !privileged {
            // The files of a folder are written next, and removed at the end, by a user who is not
            // root.
            let mode = fs::metadata(&target).with_context(failure)?.permissions().mode() | 0o700;
            fs::set_permissions(&target, fs::Permissions::from_mode(mode)).with_context(failure)?;
        }
    }
    Ok(())
}

/// Makes `path` a second name of a file that is there. The archive may say of both that they begin
/// at its root.
fn hard_link(root: &Path, path: &Path, first: &Path) -> Result<()> {
    let link = || format!("the hard link {} to {}", path.display(), first.display());
    let plain = plain(first).with_context(link)?;
    if plain == path {
        return Ok(());
    }
    let place = |path: &Path| -> Result<Option<PathBuf>> {
        let folder = existing(root, path.parent().unwrap_or(Path::new(""))).with_context(link)?;
        Ok(folder.zip(path.file_name()).map(|(folder, name)| folder.join(name)))
    };
    let target = place(&plain)?.filter(|file| fs::symlink_metadata(file).is_ok());
    let target = target.with_context(|| {
        format!("{} is damaged: the archive has no such file before it", link())
    })?;
    ensure!(!fs::symlink_metadata(&target)?.is_dir(), "{} is damaged: that is a folder", link());
    make_room(root, path, false)?;
    let second = place(path)?.with_context(|| {
        format!("{} is damaged: the archive has no folder for it before it", link())
    })?;
    fs::hard_link(target, second).with_context(link)
}

/// Removes a file that a layer replaces by one of another kind.
fn make_room(root: &Path, path: &Path, folder: bool) -> Result<()> {
    let Some(parent) = existing(root, path.parent().unwrap_or(Path::new("")))? else {
        return Ok(());
    };
    let Some(name) = path.file_name() else { return Ok(()) };
    let target = parent.join(name);
    let Ok(found) = fs::symlink_metadata(&target) else { return Ok(()) };
    if found.is_dir() && folder { Ok(()) } else { clear(&target) }
}

/// Returns a folder of the root if it exists.
fn existing(root: &Path, path: &Path) -> Result<Option<PathBuf>> {
    let Ok(folder) = root.join(path).canonicalize() else { return Ok(None) };
    let root = root.canonicalize()?;
    ensure!(folder.starts_with(&root), "the path {} leads out of the root", path.display());
    Ok(Some(folder))
}

/// Returns a path of an archive without `.` and `/` at its beginning.
fn plain(path: &Path) -> Result<PathBuf> {
    let up = path.components().any(|component| component == Component::ParentDir);
    ensure!(!up, "the name {} leads out of the root", path.display());
    Ok(path.components().filter(|part| matches!(part, Component::Normal(_))).collect())
}

fn clear(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    };
    removed.with_context(|| format!("cannot remove {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of a layer.
    struct File<'a> {
        name: &'a str,
        kind: tar::EntryType,
        /// The content, or the target of a link.
        data: &'a str,
    }

    fn layer(files: &[File<'_>]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for File { name, kind, data } in files {
            let mut header = tar::Header::new_gnu();
            let bytes = &mut header.as_gnu_mut().expect("a GNU header").name;
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_mode(if kind.is_dir() { 0o777 } else { 0o644 });
            let links = kind.is_symlink() || kind.is_hard_link();
            let data = if links {
                header.set_link_name(data).expect("a link's target");
                &[]
            } else {
                data.as_bytes()
            };
            header.set_size(data.len() as u64);
            header.set_cksum();
            archive.append(&header, data).expect("an entry");
        }
        archive.into_inner().expect("an archive")
    }

    fn file<'a>(name: &'a str, data: &'a str) -> File<'a> {
        File { name, kind: tar::EntryType::Regular, data }
    }

    fn folder(name: &str) -> File<'_> {
        File { name, kind: tar::EntryType::Directory, data: "" }
    }

    fn link<'a>(name: &'a str, data: &'a str) -> File<'a> {
        File { name, kind: tar::EntryType::Symlink, data }
    }

    fn apply(root: &Path, files: &[File<'_>]) -> Result<()> {
        let layer = layer(files);
        remove(layer.as_slice(), root)?;
        unpack(layer.as_slice(), root)
    }

    #[test]
    fn a_layer_replaces_and_removes_what_is_below() -> Result<()> {
        let root = tempfile::tempdir()?;
        let root = root.path();
        apply(root, &[folder("d/"), file("d/old", "1"), file("d/kept", "1"), link("l", "d")])?;
        apply(root, &[folder("o/"), file("o/below", "1"), folder("r/"), file("r/x", "1")])?;
        apply(
            root,
            &[file("d/.wh.old", ""), file("d/kept", "2"), folder("l/"), file("l/new", "3")],
        )?;
        apply(root, &[file("o/above", "4"), file("o/.wh..wh..opq", ""), file("r", "5")])?;
        assert!(!root.join("d/old").exists() && !root.join("o/below").exists());
        assert_eq!(fs::read(root.join("d/kept"))?, b"2");
        assert_eq!(fs::read(root.join("l/new"))?, b"3");
        assert!(!root.join("d/new").exists());
        assert_eq!(fs::read(root.join("o/above"))?, b"4");
        assert_eq!(fs::read(root.join("r"))?, b"5");
        Ok(())
    }

    #[test]
    fn hard_links_that_lead_nowhere_are_named() -> Result<()> {
        let root = tempfile::tempdir()?;
        let root = root.path();
        let hard = |name, data| File { name, kind: tar::EntryType::Link, data };
        apply(root, &[folder("d/"), file("d/file", "1"), hard("second", "d/file")])?;
        assert_eq!(fs::read(root.join("second"))?, b"1");
        // Another name for itself is nothing new, and the file stays.
        apply(root, &[hard("second", "./second")])?;
        assert_eq!(fs::read(root.join("second"))?, b"1");
        apply(root, &[hard("third", "/d/file")])?;
        assert_eq!(fs::read(root.join("third"))?, b"1");
        let error = |name, data| {
            apply(root, &[hard(name, data)]).map_or_else(|it| format!("{it:#}"), |()| String::new())
        };
        let absent = "the hard link x to d/none is damaged: the archive has no such file before it";
        assert_eq!(error("x", "d/none"), absent);
        assert!(error("x", "none/file").contains("no such file before it"));
        assert!(error("none/x", "d/file").contains("no folder for it before it"));
        assert_eq!(error("x", "d"), "the hard link x to d is damaged: that is a folder");
        let out = error("x", "../file");
        assert_eq!(out, "the hard link x to ../file: the name ../file leads out of the root");
        // The file that a damaged link would replace is still there.
        assert!(error("second", "none").contains("no such file") && root.join("second").exists());
        Ok(())
    }

    /// Shows: hostile: a hostile layer of an image writes and removes nothing outside
    #[test]
    fn a_hostile_layer_writes_and_removes_nothing_outside() -> Result<()> {
        let outer = tempfile::tempdir()?;
        let (root, other) = (outer.path().join("root"), outer.path().join("other"));
        fs::create_dir(&root)?;
        fs::create_dir(&other)?;
        fs::set_permissions(&other, fs::Permissions::from_mode(0o700))?;
        fs::write(other.join("file"), "kept")?;
        let target = other.to_string_lossy().into_owned();
        apply(&root, &[link("out", &target), link("up", "..")])?;
        for hostile in [
            file("out/new", "x"),
            file("out/file", "x"),
            file("up/new", "x"),
            file("out/.wh.file", ""),
            file("out/.wh..wh..opq", ""),
            file("../other/file", "x"),
            file(".wh...", ""),
            File { name: "hard", kind: tar::EntryType::Link, data: "out/file" },
        ] {
            let name = hostile.name;
            assert!(apply(&root, &[hostile]).is_err(), "{name} was taken");
        }
        // A folder takes the place of the link, and does not change what the link led to.
        apply(&root, &[folder("out/")])?;
        assert_eq!(fs::metadata(&other)?.permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read(other.join("file"))?, b"kept");
        assert_eq!(fs::read_dir(&other)?.count(), 1);
        assert_eq!(fs::read_dir(outer.path())?.count(), 2);
        Ok(())
    }
}
