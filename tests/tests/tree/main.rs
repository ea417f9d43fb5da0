//! Checks of the source tree itself, without a guest: the length of lines of Markdown and of
//! comments, the files that documents name, the tables of modules, and cycles between modules.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`files`] | the files of the tree |
//! | [`lines`] | lines of Markdown and of comments that are too long |
//! | [`modules`] | the modules of a crate, and what each of them uses |
//! | [`paths`] | files that documents name |
//! | [`tables`] | tables of modules, compared with the modules |
//! | [`cycles`] | modules that use each other |

mod cycles;
mod files;
mod lines;
mod modules;
mod paths;
mod tables;

use std::path::Path;

/// Modules that are still part of a cycle, by the last parts of their crate's root file. Lower a
/// number when there are fewer; raise none.
const IN_CYCLES: &[(&str, usize)] =
    &[("device/testdriver/src/lib.rs", 3), ("tests/verbs/src/lib.rs", 8)];

/// Folders whose comments are not wrapped yet. Take an entry out when they are; add none.
const UNWRAPPED: &[&str] = &[];

/// Fails with a list of what was found, if anything was.
fn none_of(found: &[String], what: &str) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn lines_of_markdown_end_at_column_120() {
    let files = files::with_extension("md");
    let long: Vec<_> = files.iter().flat_map(|file| lines::markdown(file)).collect();
    none_of(&long, "lines of Markdown beyond column 120");
}

#[test]
fn comments_end_at_column_100() {
    let found = files::with_extension("rs");
    let unwrapped = |file: &Path| UNWRAPPED.iter().any(|folder| file.starts_with(folder));
    let wrapped = found.iter().filter(|file| !unwrapped(file));
    let long: Vec<_> = wrapped.flat_map(|file| lines::comments(file)).collect();
    none_of(&long, "comments beyond column 100");
    for folder in UNWRAPPED {
        let files = found.iter().filter(|file| file.starts_with(folder));
        let long = files.flat_map(|file| lines::comments(file)).count();
        assert!(long > 0, "comments in {folder} are wrapped: take it out of UNWRAPPED");
    }
}

#[test]
fn documents_name_files_that_exist() {
    let files = files::with_extension("md");
    let missing: Vec<_> = files.iter().flat_map(|file| paths::missing(file)).collect();
    none_of(&missing, "files that documents name and that do not exist");
}

#[test]
fn tables_of_modules_are_true() {
    let files = files::with_extension("rs");
    let wrong: Vec<_> = files.iter().flat_map(|file| tables::check(file)).collect();
    none_of(&wrong, "tables of modules that are not true");
}

#[test]
fn modules_form_no_cycle() {
    let mut wrong = Vec::new();
    for root in modules::roots() {
        let cycles = cycles::find(&modules::Tree::read(&root));
        let count = cycles.iter().map(|cycle| cycle.members.len()).sum::<usize>();
        let allowed = IN_CYCLES.iter().find(|(of, _)| root.ends_with(of));
        let allowed = allowed.map_or(0, |(_, count)| *count);
        if count > allowed {
            let cycles: Vec<_> = cycles.iter().map(ToString::to_string).collect();
            wrong.push(format!(
                "{}: {count}, not {allowed}, {}",
                root.display(),
                cycles.join("\n")
            ));
        } else if count < allowed {
            wrong.push(format!("{}: lower the number in IN_CYCLES to {count}", root.display()));
        }
    }
    none_of(&wrong, "modules that use each other");
}
