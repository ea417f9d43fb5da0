//! Files that documents name.

use std::path::Path;

use crate::files;

/// Folders of the root that names of files begin with.
const FOLDERS: [&str; 11] = [
    "abi",
    "bench",
    "ci",
    "device",
    "docs",
    "driver",
    "packaging",
    "provider",
    "qemu",
    "scripts",
    "tests",
];

/// Returns the files that a document names and that do not exist: names in backquotes, from the
/// root of the tree on, and targets of links, from the document's folder on.
pub(crate) fn missing(document: &Path) -> Vec<String> {
    let text = files::text(document);
    let folder = files::top().join(document.parent().expect("a folder"));
    let quoted = quoted(&text).filter(|name| !files::top().join(name).exists());
    let linked = linked(&text).filter(|name| !folder.join(name).exists());
    quoted.chain(linked).map(|name| format!("{}: {name}", document.display())).collect()
}

/// Returns names in backquotes that are those of files or folders, and no patterns.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let plain = |letter: char| letter.is_alphanumeric() || "/._-".contains(letter);
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(move |name| {
        let folder = name.split_once('/').map(|(folder, _)| folder);
        folder.is_some_and(|folder| FOLDERS.contains(&folder)) && name.chars().all(plain)
    })
}

/// Returns targets of links to files.
fn linked(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let files = targets.map(|(target, _)| target.split('#').next().unwrap_or_default());
    files.filter(|file| !file.is_empty() && !file.contains("://"))
}

#[test]
fn names_are_found() {
    let text = "`abi/src/lib.rs`, `abi/*.rs` and `hosts/a`; [x](y.md#z) [h](https://h) [s](#s)";
    assert_eq!(quoted(text).collect::<Vec<_>>(), ["abi/src/lib.rs"]);
    assert_eq!(linked(text).collect::<Vec<_>>(), ["y.md"]);
}
