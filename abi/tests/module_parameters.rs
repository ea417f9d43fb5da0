//! Compares the tables of parameters of kernel modules with the parameters that these declare:
//! `docs/guests.md` has those of `vrnic`, and `docs/testing.md` those of the modules for tests.
//!
//! Shows: tools

use std::{collections::BTreeMap, fs, path::Path};

/// The modules for tests and the files that declare them.
const MODULES: [(&str, &str); 3] = [
    ("vrnic_kverbs", "driver/tests/kverbs/kverbs.rs"),
    ("vrnic_kping", "driver/tests/kping/kping.rs"),
    ("vrnic_kdirect", "driver/tests/kdirect/kdirect.rs"),
];

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    fs::read_to_string(root.join(path)).expect(path)
}

/// Returns the names and defaults of the parameters in a `module!` declaration.
fn declared(source: &str) -> BTreeMap<String, String> {
    let (_, parameters) = source.split_once("    params: {\n").expect("parameters");
    let mut found = BTreeMap::new();
    let mut name = None;
    for line in parameters.lines().map(str::trim) {
        if let Some((before, _)) = line.split_once(": ").filter(|_| line.ends_with('{')) {
            name = Some(before.to_owned());
        } else if let Some(default) = line.strip_prefix("default: ") {
            found.insert(name.take().expect("a name"), default.trim_end_matches(',').to_owned());
        }
    }
    found
}

/// Returns the names and defaults in the rows of a table that begin with this text.
fn documented(page: &str, start: &str) -> BTreeMap<String, String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix(start));
    let cells = rows.filter_map(|row| row.split_once("` | "));
    let pairs = cells.filter_map(|(name, rest)| Some((name, rest.split_once(" |")?.0)));
    pairs.map(|(name, default)| (name.to_owned(), default.to_owned())).collect()
}

#[test]
fn the_page_of_guests_has_all_parameters() {
    let page = read("docs/guests.md");
    let (_, table) = page.split_once("| parameter | default |").expect("a table");
    let table = table.split("\n\n").next().unwrap_or_default();
    assert_eq!(documented(table, "| `"), declared(&read("driver/vrnic.rs")));
}

#[test]
fn the_page_of_tests_has_all_parameters() {
    let page = read("docs/testing.md");
    for (module, file) in MODULES {
        let declared = declared(&read(file));
        assert!(!declared.is_empty(), "{file} declares no parameters");
        let documented = documented(&page, &format!("| {module} | `"));
        assert_eq!(documented, declared, "docs/testing.md and {file}");
    }
}
