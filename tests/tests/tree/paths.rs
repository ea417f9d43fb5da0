//! Files that documents name.

use std::path::{Path, PathBuf};

use crate::files;

/// Folders of the root with which paths of files begin.
const FOLDERS: [&str; 12] = [
    "abi",
    "bench",
    "check",
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

/// Returns the files that a document names and that do not exist: paths in backquotes, which start
/// at the root of the tree or are the end of the path of one of the `sources`, and targets of
/// links, which start at the document's folder.
pub(crate) fn missing(document: &Path, sources: &[PathBuf]) -> Vec<String> {
    let text = files::text(document);
    let folder = files::top().join(document.parent().expect("a folder"));
    let quoted = quoted(&text).filter(|name| !files::top().join(name).exists());
    let linked = linked(&text).filter(|name| !folder.join(name).exists());
    let exists = |name: &&str| sources.iter().any(|source| source.ends_with(name));
    let partial = partial(&text).filter(|name| !exists(name));
    let names = quoted.chain(linked).chain(partial);
    names.map(|name| format!("{}: {name}", document.display())).collect()
}

/// Returns the paths of files or folders in backquotes that start at the root of the tree.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    in_backquotes(text).filter(|name| starts_at_root(name))
}

/// Returns the other paths of sources in backquotes.
fn partial(text: &str) -> impl Iterator<Item = &str> {
    let is_source = |name: &str| Path::new(name).extension().is_some_and(|of| of == "rs");
    in_backquotes(text).filter(move |name| is_source(name) && !starts_at_root(name))
}

/// Returns what is a path, and no pattern, in backquotes.
fn in_backquotes(text: &str) -> impl Iterator<Item = &str> {
    let plain = |letter: char| letter.is_alphanumeric() || "/._-".contains(letter);
    let names = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    names.filter(move |name| name.contains('/') && name.chars().all(plain))
}

fn starts_at_root(name: &str) -> bool {
    name.split_once('/').is_some_and(|(folder, _)| FOLDERS.contains(&folder))
}

/// Returns targets of links to files.
fn linked(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let files = targets.map(|(target, _)| target.split('#').next().unwrap_or_default());
    files.filter(|file| !file.is_empty() && !file.contains("://"))
}

#[test]
fn names_are_found() {
    let text =
        "`abi/src/lib.rs`, `abi/*.rs`, `a/b.rs`, `hosts/a`; [x](y.md#z) [h](https://h) [s](#s)";
    assert_eq!(quoted(text).collect::<Vec<_>>(), ["abi/src/lib.rs"]);
    assert_eq!(partial(text).collect::<Vec<_>>(), ["a/b.rs"]);
    assert_eq!(linked(text).collect::<Vec<_>>(), ["y.md"]);
}
