//! Tables of modules at the tops of files, compared with the modules that the files declare.

use std::collections::BTreeSet;
use std::path::Path;

use crate::files;
use crate::modules::{code, declared};

/// Returns what is wrong with a file's table of modules.
pub(crate) fn check(file: &Path) -> Vec<String> {
    let wrong = compare(&files::text(file));
    wrong.into_iter().map(|wrong| format!("{}: {wrong}", file.display())).collect()
}

fn compare(text: &str) -> Vec<String> {
    let modules: BTreeSet<_> = declared(&code(text))
        .into_iter()
        .filter(|child| !child.test)
        .map(|child| child.name)
        .collect();
    let Some(table) = table(text) else { return Vec::new() };
    let missing = modules.difference(&table).map(|name| format!("'{name}' is not in the table"));
    let unknown = table.difference(&modules).map(|name| format!("there is no module '{name}'"));
    missing.chain(unknown).collect()
}

/// Returns the names in the first column of the table of modules, if there is one in the file's own
/// documentation.
fn table(text: &str) -> Option<BTreeSet<String>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("//!")).map(str::trim);
    let mut rows = lines.skip_while(|line| !line.starts_with("| module |")).peekable();
    rows.peek()?;
    let names = rows.skip(2).take_while(|line| line.starts_with('|')).flat_map(|line| {
        let first = line.trim_matches('|').split('|').next().unwrap_or_default();
        // Every second part stands between backquotes.
        first.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    });
    Some(names.collect())
}

#[test]
fn tables_are_compared() {
    let table =
        "//! Text.\n//!\n//! | module | what |\n//! | --- | --- |\n//! | [`a`], `b` | `x` |\n\n";
    assert!(compare(&format!("{table}pub mod a;\nmod b;\n#[cfg(test)]\nmod tests;\n")).is_empty());
    let wrong = compare(&format!("{table}mod a;\nmod c;\n"));
    assert_eq!(wrong, ["'c' is not in the table", "there is no module 'b'"]);
    assert!(compare("mod a;\n").is_empty());
}
