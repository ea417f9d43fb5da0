//! The suites of whole-system tests, compared with what documents and `scripts/test` say of them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::files;

/// The suites of `tests/Cargo.toml`.
struct Suites {
    /// Those that run without a name.
    default: BTreeSet<String>,
    /// Those that run by name, and with `--all`.
    by_name: BTreeSet<String>,
}

impl Suites {
    fn of(manifest: &str) -> Self {
        let programs = manifest.split("[[test]]").skip(1).filter_map(|program| {
            let name = program.split("name = \"").nth(1)?.split('"').next()?.to_owned();
            let named = ["test = false", "required-features"].iter().any(|it| program.contains(it));
            Some((name, named))
        });
        let (by_name, default): (Vec<_>, Vec<_>) = programs.partition(|(_, named)| *named);
        let names = |all: Vec<(String, bool)>| all.into_iter().map(|(name, _)| name).collect();
        Self { default: names(default), by_name: names(by_name) }
    }
}

/// Returns the names of suites in the last cells of the rows for which `wanted` is true of the row.
fn named(page: &str, wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let rows = page.lines().filter(|line| line.starts_with('|') && wanted(line));
    let cells = rows.filter_map(|row| row.trim_end_matches(" |").rsplit('|').next());
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let names = words.map(|word| word.trim_start_matches("scripts/test "));
    names.filter(|name| !name.contains(['/', '-'])).map(str::to_owned).collect()
}

/// Returns what is said wrongly.
pub(crate) fn check() -> Vec<String> {
    let text = |file: &str| files::text(Path::new(file));
    let suites = Suites::of(&text("tests/Cargo.toml"));
    let (page, script) = (text("docs/testing.md"), text("scripts/test"));
    let mut wrong = Vec::new();
    let mut compare = |what: &str, named: &BTreeSet<String>, suites: &BTreeSet<String>| {
        wrong.extend(suites.symmetric_difference(named).map(|name| format!("{what}: {name}")));
    };
    let default = named(&page, |row| row.starts_with("| whole system |"));
    compare("docs/testing.md, whole system", &default, &suites.default);
    let by_name = named(&page, |row| row.contains("| by name: "));
    compare("docs/testing.md, by name", &by_name, &suites.by_name);
    let (runs, lints) = script.split_once("lints of tests by name").expect("both parts");
    for (what, part) in [("scripts/test runs", runs), ("scripts/test lints", lints)] {
        let words = part.split("--test ").skip(1).filter_map(|rest| rest.split_whitespace().next());
        let words: BTreeSet<_> = words.map(str::to_owned).collect();
        compare(what, &words.intersection(&suites.by_name).cloned().collect(), &suites.by_name);
    }
    let (some, all) = (suites.default.len(), suites.default.len() + suites.by_name.len());
    for file in ["README.md", "CONTRIBUTING.md"] {
        let words = format!("{some} of the {all} suites");
        if !text(file).contains(&words) {
            wrong.push(format!("{file} does not say '{words}'"));
        }
    }
    wrong
}

#[test]
fn suites_by_name_are_told_apart() {
    let manifest = "[[test]]\nname = \"a\"\n\n[[test]]\nname = \"b\"\ntest = false\n";
    let Suites { default, by_name } = Suites::of(manifest);
    assert_eq!((default, by_name), (["a".into()].into(), ["b".into()].into()));
    let page = "| x | `scripts/test a`, `c` |\n| y | by name: `b`, `scripts/test b/NAME` |\n";
    assert_eq!(named(page, |row| row.contains("| by name: ")), ["b".into()].into());
    assert_eq!(named(page, |row| row.starts_with("| x")), ["a".into(), "c".into()].into());
}
