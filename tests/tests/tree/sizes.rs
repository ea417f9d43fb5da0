//! Functions and files that are too long, folders with too many files, and types of one name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::listed::{self, Found};
use crate::{files, modules};

/// The last line of a function, counted from the line with its name.
const FUNCTION: usize = 60;
/// Number of lines of a file with Rust.
const FILE: usize = 500;
/// Number of files in a folder.
const FOLDER: usize = 20;

/// Functions that are tables: one `match` or one literal with a row for each thing of a kind.
const TABLES: [&str; 4] = [
    "abi/src/sq/opcode.rs: describe",
    "device/adapter/src/control/admin/mod.rs: execute",
    "driver/rdma/port/attr.rs: write_to",
    "provider/src/ffi/driver.rs: context_ops",
];

/// Folders that are lists, in which a reader looks for one name: pages for readers, and scripts and
/// programs each of which is used by itself.
const LISTS: [&str; 4] = ["ci/ports", "docs", "scripts/lib", "tests/programs"];

/// Functions that are still too long.
const LONG_FUNCTIONS: &[(&str, usize)] = &[];

/// Files that are still too long.
const LONG_FILES: &[(&str, usize)] = &[];

/// Folders that still have too many files.
const FULL_FOLDERS: &[(&str, usize)] = &[];

/// Crates that still have public types of one name, with the number of such names.
const SAME_NAMES: &[(&str, usize)] = &[
    ("abi", 7),
    ("device/adapter", 11),
    ("device/daemon", 7),
    ("device/dev/testdriver", 3),
    ("device/iwarp", 1),
    ("device/roce", 2),
];

/// Returns functions that are too long.
pub(crate) fn functions() -> Vec<String> {
    let files = files::with_extension("rs");
    let found = files.iter().flat_map(|file| {
        let functions = find_functions(&files::text(file));
        let named = |(name, lines)| (format!("{}: {name}", file.display()), lines);
        functions.into_iter().map(named).collect::<Vec<_>>()
    });
    let found: Vec<_> = found.filter(|(_, lines)| *lines > FUNCTION).collect();
    let (tables, found): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(name, _)| TABLES.contains(&name.as_str()));
    let mut wrong = listed::compare(&found, FUNCTION, LONG_FUNCTIONS);
    let gone = TABLES.iter().filter(|name| !tables.iter().any(|(table, _)| table == *name));
    wrong.extend(gone.map(|name| format!("{name}: it is no longer a long table")));
    wrong
}

/// Returns files with Rust that are too long.
pub(crate) fn files_of_rust() -> Vec<String> {
    let files = files::with_extension("rs");
    let lines = |file: &PathBuf| (file.display().to_string(), files::text(file).lines().count());
    listed::compare(&files.iter().map(lines).collect::<Vec<_>>(), FILE, LONG_FILES)
}

/// Returns folders with too many files.
pub(crate) fn folders() -> Vec<String> {
    let mut found = count_by_folder(&files::all());
    found.retain(|(name, _)| !LISTS.contains(&name.as_str()));
    listed::compare(&found, FOLDER, FULL_FOLDERS)
}

/// Returns public types of one name in one crate. Several configurations of one type are in one
/// file, and count as one.
pub(crate) fn types() -> Vec<String> {
    let mut crates: BTreeMap<String, BTreeMap<String, Vec<PathBuf>>> = BTreeMap::new();
    for file in files::with_extension("rs") {
        let Some(name) = crate_of(&file) else { continue };
        let types = crates.entry(name).or_default();
        for public in public_types(&modules::code(&files::text(&file))) {
            let places = types.entry(public).or_default();
            if places.last() != Some(&file) {
                places.push(file.clone());
            }
        }
    }
    let same = |types: &BTreeMap<String, Vec<PathBuf>>| {
        let several = types.iter().filter(|(_, places)| places.len() > 1);
        several.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    let same: Vec<_> = crates.iter().map(|(name, types)| (name, same(types))).collect();
    let found: Vec<_> = same.iter().map(|(name, same)| ((*name).clone(), same.len())).collect();
    let mut wrong = listed::compare(&found, 0, SAME_NAMES);
    for fault in &mut wrong {
        let of = same.iter().find(|(name, _)| fault.starts_with(&format!("{name}: ")));
        fault.push_str(&of.map_or_else(String::new, |(_, same)| format!(" ({})", same.join(", "))));
    }
    wrong
}

/// Returns the functions in a file as rustfmt writes it, with their numbers of lines. A declaration
/// without a body, as in a trait, is none.
fn find_functions(text: &str) -> Vec<Found> {
    let lines: Vec<_> = text.lines().collect();
    let functions = lines.iter().enumerate().filter_map(|(at, line)| {
        let indent = line.get(..line.len() - line.trim_start().len())?;
        let name = function_name(line.trim_start())?;
        let rest = lines.get(at..)?;
        let end = rest.iter().skip(1).position(|line| line.strip_prefix(indent) == Some("}"));
        has_body(rest, indent).then(|| Some((name.to_owned(), end? + 2)))?
    });
    functions.collect()
}

/// Returns the name of the function whose declaration begins with a line.
fn function_name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let qualifiers = before.split_whitespace().all(|word| {
        let known = ["pub", "const", "async", "unsafe", "extern"].contains(&word);
        known || word.starts_with("pub(") || word.starts_with("crate::") || word.starts_with('"')
    });
    let end = rest.find(|letter| !modules::is_word(letter)).unwrap_or(rest.len());
    let name = rest.get(..end)?;
    (qualifiers && !name.is_empty()).then_some(name)
}

/// Returns true if a function whose declaration begins with the first of these lines has a body of
/// several lines.
fn has_body(lines: &[&str], indent: &str) -> bool {
    let of_declaration = |line: &&&str| {
        let own = line.strip_prefix(indent).unwrap_or_default();
        own.starts_with([' ', ')', '{', '>']) || own.starts_with("where")
    };
    let first = lines.iter().take(1);
    let mut declaration = first.chain(lines.iter().skip(1).take_while(of_declaration));
    let end = declaration.find(|line| line.ends_with(['{', ';', '}']));
    end.is_some_and(|line| line.ends_with('{'))
}

/// Returns the number of files in each folder.
fn count_by_folder(files: &[PathBuf]) -> Vec<Found> {
    let mut folders = BTreeMap::new();
    for folder in files.iter().filter_map(|file| file.parent()) {
        *folders.entry(folder.display().to_string()).or_insert(0) += 1;
    }
    folders.into_iter().collect()
}

/// Returns the folder of the crate to whose product code a file belongs.
fn crate_of(file: &Path) -> Option<String> {
    if let Ok(below) = file.strip_prefix("driver") {
        return (!below.starts_with("tests")).then(|| "driver".to_owned());
    }
    let folder = file.ancestors().find(|folder| folder.ends_with("src"))?.parent()?;
    Some(folder.display().to_string())
}

/// Returns the names of the types in code that other crates may name.
fn public_types(code: &str) -> Vec<String> {
    let name = |line: &str| {
        let declaration = line.trim_start().strip_prefix("pub ")?;
        let declaration = declaration.strip_prefix("unsafe ").unwrap_or(declaration);
        let (kind, rest) = declaration.split_once(' ')?;
        let end = rest.find(|letter| !modules::is_word(letter)).unwrap_or(rest.len());
        let of_types = ["struct", "enum", "union", "trait", "type"].contains(&kind);
        of_types.then(|| rest.get(..end).map(str::to_owned))?
    };
    code.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_functions_are_found() {
        let line = "        let a = [0; 3];\n";
        let long = format!(
            "impl A {{\n    pub(crate) fn long<T>(\n        a: T,\n    ) -> Vec<T>\n    where\n        \
             T: B,\n    {{\n{}        if a {{\n        }}\n    }}\n\n    fn short(&self) {{\n    }}\n}}\n",
            line.repeat(FUNCTION)
        );
        let found = find_functions(&long);
        assert_eq!(found, [("long".to_owned(), FUNCTION + 9), ("short".to_owned(), 2)]);
    }

    #[test]
    fn declarations_are_no_functions() {
        let text = "trait A {\n    fn a(&self);\n    fn b(\n        &self,\n    ) -> B;\n    \
                    fn c(&self) {}\n}\ncalls! {\n    fn d(a: A) -> B,\n    fn e(b: B),\n}\n\
                    let often = |fn_of| {\n};\n";
        assert!(find_functions(text).is_empty());
        let text = "pub const unsafe extern \"C\" fn f() {\n    g();\n}\n";
        assert_eq!(find_functions(text), [("f".to_owned(), 3)]);
        let text = "pub(in crate::a) fn f() {\n    g();\n}\n";
        assert_eq!(find_functions(text), [("f".to_owned(), 3)]);
    }

    #[test]
    fn files_are_counted_in_their_own_folder() {
        let files = ["a/b/c.rs", "a/b/d.md", "a/e.rs"].map(PathBuf::from);
        assert_eq!(count_by_folder(&files), [("a".to_owned(), 1), ("a/b".to_owned(), 2)]);
    }

    #[test]
    fn public_types_are_found() {
        let code = "pub struct A<T>(T);\npub unsafe trait B {\n    pub type C = D;\n}\nstruct E;\n\
                    pub(crate) enum F {}\npub fn g() {}\npub union H {\n";
        assert_eq!(public_types(code), ["A", "B", "C", "H"]);
    }

    #[test]
    fn product_code_belongs_to_crates() {
        let of = |file: &str| crate_of(Path::new(file));
        assert_eq!(of("device/dev/simlink/src/a/b.rs").as_deref(), Some("device/dev/simlink"));
        assert_eq!(of("driver/rdma/mod.rs").as_deref(), Some("driver"));
        assert_eq!(of("driver/tests/kping/kping.rs"), None);
        assert_eq!(of("device/roce/tests/pair.rs"), None);
    }
}
