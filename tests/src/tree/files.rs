//! The files of the tree.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders of build results.
const RESULTS: [&str; 2] = ["target", "build"];

/// Returns the root of the tree.
///
/// # Panics
///
/// Panics if the crate is not in a folder of the tree.
#[must_use]
pub fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder")
}

/// Returns the text of a file, whose path starts at the root of the tree.
///
/// # Panics
///
/// Panics if the file cannot be read.
#[must_use]
pub fn text(file: &Path) -> String {
    fs::read_to_string(top().join(file))
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the files with an extension, without hidden folders and build results. Their paths start
/// at the root of the tree.
///
/// # Panics
///
/// Panics if a folder cannot be read, or if there are hardly any such files.
#[must_use]
pub fn with_extension(extension: &str) -> Vec<PathBuf> {
    let mut found = all();
    found.retain(|path| path.extension().is_some_and(|of| of == extension));
    assert!(found.len() > 5, "the tree has more .{extension} files than {found:?}");
    found
}

/// Returns all files, without hidden ones and build results. Their paths start at the root of the
/// tree.
///
/// # Panics
///
/// Panics if a folder cannot be read.
#[must_use]
pub fn all() -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(top(), &mut found);
    found.sort();
    found
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        if entry.file_type().expect("a type").is_dir() {
            let result = folder == top() && RESULTS.contains(&&*name);
            if !name.starts_with('.') && !result {
                collect(&path, found);
            }
        } else if !name.starts_with('.') {
            found.push(path.strip_prefix(top()).expect("below the root").to_owned());
        }
    }
}
