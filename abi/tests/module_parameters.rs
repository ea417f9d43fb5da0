//! Compares the table of `docs/guests.md` with the parameters that the kernel modules declare.

use std::{collections::BTreeMap, fs, path::Path};

/// The modules and the files that declare them.
const MODULES: [(&str, &str); 4] = [
    ("vrnic", "driver/vrnic.rs"),
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

/// Returns the names and defaults in a module's rows of the table.
fn documented(page: &str, module: &str) -> BTreeMap<String, String> {
    let start = format!("| {module} | ");
    let rows = page.lines().filter(|line| line.starts_with(&start));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    cells.map(|cells| (cells[2].trim_matches('`').to_owned(), cells[3].to_owned())).collect()
}

#[test]
fn the_page_has_all_parameters() {
    let page = read("docs/guests.md");
    for (module, file) in MODULES {
        let declared = declared(&read(file));
        assert!(!declared.is_empty(), "{file} declares no parameters");
        assert_eq!(documented(&page, module), declared, "docs/guests.md and {file}");
    }
}
