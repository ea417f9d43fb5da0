//! Tables of modules at the tops of files, compared with the modules that the files declare.

use std::collections::BTreeSet;
use std::path::Path;

use crate::files;
use crate::modules::{code, declared};
use crate::suites;

/// A file that declares this number of modules with separate files, or more, must have a table of
/// them.
const MODULES: usize = 3;

/// Returns the faults of a file's table of modules. The table of all suites is `tests/suites.toml`.
pub(crate) fn check(file: &Path) -> Vec<String> {
    if suites::is_folder(file) {
        return Vec::new();
    }
    let wrong = compare(&files::text(file));
    wrong.into_iter().map(|wrong| format!("{}: {wrong}", file.display())).collect()
}

fn compare(text: &str) -> Vec<String> {
    let declared: Vec<_> = declared(&code(text)).into_iter().filter(|child| !child.test).collect();
    let files = declared.iter().filter(|child| !child.inline).count();
    let modules: BTreeSet<_> = declared.into_iter().map(|child| child.name).collect();
    let Some(rows) = table(text) else {
        let wanted = files >= MODULES;
        return wanted.then(|| "there is no table of modules".to_owned()).into_iter().collect();
    };
    let table: BTreeSet<_> = rows.iter().cloned().collect();
    let missing = modules.difference(&table).map(|name| format!("'{name}' is not in the table"));
    let unknown = table.difference(&modules).map(|name| format!("there is no module '{name}'"));
    let twice = table.iter().filter(|name| rows.iter().filter(|row| row == name).count() > 1);
    let twice = twice.map(|name| format!("'{name}' is in the table twice"));
    missing.chain(unknown).chain(twice).collect()
}

/// Returns the names in the first column of the table of modules, if the file's own documentation
/// has one.
fn table(text: &str) -> Option<Vec<String>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("//!")).map(str::trim);
    let mut rows = lines.skip_while(|line| !line.starts_with("| module |")).peekable();
    rows.peek()?;
    let names = rows.skip(2).take_while(|line| line.starts_with('|')).flat_map(|line| {
        let first = line.trim_matches('|').split('|').next().unwrap_or_default();
        // Every second part is between backquotes.
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
    let wrong =
        compare("//! | module | what |\n//! | --- | --- |\n//! | `a` |\n//! | `a` |\nmod a;\n");
    assert_eq!(wrong, ["'a' is in the table twice"]);
    assert!(compare("mod a;\nmod b;\n").is_empty());
    assert_eq!(compare("mod a;\nmod b;\nmod c;\n"), ["there is no table of modules"]);
}
