//! Copies of libibverbs that programs bring with them.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of files that are looked at.
const FILES_MAX: usize = 300_000;

/// Returns the first copy in a folder that is named as tools that bundle libraries name it, such as
/// `libibverbs-1de1263b.so.1.14.48.0`.
#[must_use]
pub fn find(folder: &Path) -> Option<PathBuf> {
    let mut left = VecDeque::from([folder.to_owned()]);
    let mut seen = 0;
    while let Some(folder) = left.pop_front() {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            seen += 1;
            if seen > FILES_MAX {
                return None;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if bundled(&name) {
                return Some(entry.path());
            }
            // Links are not followed, so the walk ends.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push_back(entry.path());
            }
        }
    }
    None
}

/// Returns whether this is the name of a copy.
fn bundled(name: &str) -> bool {
    name.starts_with("libibverbs-") && name.contains(".so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_found_by_its_name() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let libraries = folder.path().join("site-packages/nixl.libs");
        fs::create_dir_all(&libraries)?;
        fs::write(folder.path().join("libibverbs.so.1"), "")?;
        assert_eq!(find(folder.path()), None);
        let copy = libraries.join("libibverbs-1de1263b.so.1.14.48.0");
        fs::write(&copy, "")?;
        assert_eq!(find(folder.path()), Some(copy));
        Ok(())
    }
}
