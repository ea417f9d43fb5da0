//! Copies of libibverbs that programs bring with them.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use crate::container::verbs;

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

/// Returns a sentence about a copy, which loads the plugin if that knows its release.
#[must_use]
pub fn hint(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let copy = format!("{} is a libibverbs of a program's own", file.display());
    match vrnic_layouts::release(&name) {
        Some(release) if verbs::layout(release).is_some() => {
            format!("{copy}, of rdma-core {release}, which loads the plugin by itself")
        }
        Some(release) => format!(
            "{copy}, of rdma-core {release}, and the plugin fits {}; with --preload-verbs, the \
             program uses the system's",
            verbs::releases()
        ),
        None => format!(
            "{copy}, and its name does not tell its release; if the program finds no adapter, let \
             it use the system's with --preload-verbs"
        ),
    }
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

    #[test]
    fn only_a_copy_of_another_release_needs_the_system_s() {
        let says = |name: &str| hint(&Path::new("libs").join(name));
        assert!(!says("libibverbs-1de1263b.so.1.14.48.0").contains("--preload-verbs"));
        assert!(says("libibverbs-1de1263b.so.1.15.66.0").contains("fits 36 to 65; with --preload"));
        assert!(says("libibverbs-1de1263b.so.1").contains("--preload-verbs"));
    }
}
