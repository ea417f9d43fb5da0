//! Paths in a root. Its symbolic links are those of the root: they lead to files of the root, and
//! never out of it.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Maximum number of symbolic links on the way to a file.
const LINKS: u32 = 40;

/// Returns the path on this machine of a file in `root`, with all symbolic links followed. Returns
/// nothing if the file does not exist.
#[must_use]
pub fn inside(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut left: Vec<OsString> = names(path).rev().collect();
    let mut found: Vec<OsString> = Vec::new();
    let mut links = 0;
    while let Some(name) = left.pop() {
        if name == ".." {
            found.pop();
            continue;
        }
        found.push(name);
        let at = at(root, &found);
        if fs::symlink_metadata(&at).ok()?.is_symlink() {
            links += 1;
            if links > LINKS {
                return None;
            }
            let target = fs::read_link(&at).ok()?;
            found.pop();
            if target.is_absolute() {
                found.clear();
            }
            left.extend(names(&target).rev());
        }
    }
    Some(at(root, &found))
}

fn at(root: &Path, names: &[OsString]) -> PathBuf {
    names.iter().fold(root.to_owned(), |path, name| path.join(name))
}

/// Returns the names in a path, with `..` but without `.` and the root.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_to_files_of_the_root() -> std::io::Result<()> {
        let root = tempfile::tempdir()?;
        let root = root.path();
        fs::create_dir_all(root.join("usr/bin"))?;
        fs::write(root.join("usr/bin/sh"), "")?;
        symlink("/usr/bin", root.join("bin"))?;
        symlink("../../../../../usr/bin/sh", root.join("usr/bin/up"))?;
        symlink("loop", root.join("loop"))?;
        let sh = Some(root.join("usr/bin/sh"));
        assert_eq!(inside(root, Path::new("/bin/sh")), sh);
        assert_eq!(inside(root, Path::new("bin/up")), sh);
        assert_eq!(inside(root, Path::new("/loop")), None);
        assert_eq!(inside(root, Path::new("/etc/passwd")), None);
        Ok(())
    }
}
