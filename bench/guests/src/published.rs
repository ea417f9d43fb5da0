//! The run that is checked in: its JSON, the page that was written with it, and the table of the
//! README. With the variable `VRNIC_WRITE_FIGURES`, the tests write page and table anew from the
//! JSON.

use std::collections::BTreeSet;
use std::fs;

use vrnic_figures::Figure;

use crate::goals::goals;
use crate::markdown::{number, report, table};
use crate::plan::{Device, SIZES};
use crate::results::Results;

const RUN: &str = include_str!("../../../docs/benchmarks/figures.json");
/// The path of the page.
const PAGE: &str = "docs/benchmarks/README.md";
/// The text of the page before the table of what was measured without guests.
const WITHOUT_GUESTS: &str = "\
| measure | figure | cache line's round trip before and after, µs |
| --- | ---: | ---: |
";
/// The first line of the README's table.
const COLUMNS: [&str; 4] = ["measure", "vrnic against", "ratio", "goal"];

/// The rows of the README's table: measure, what vrnic is compared with, the name of the ratio, and
/// the words after it.
const ROWS: [(&str, &str, &str, &str); 3] = [
    ("ib_write_bw, 64 KiB", "rxe", "guest_write64k_vs_rxe", "×"),
    ("ib_write_lat, 8 B", "siw", "guest_write_lat8_siw_over_vrnic", "× faster"),
    (
        "64 KiB WRITE without guests",
        "memcpy of the same block",
        "native_write64k_vs_memcpy",
        "of its bandwidth",
    ),
];

fn run() -> Results {
    serde_json::from_str(RUN).expect("the JSON has all figures of a run")
}

fn read(file: &str) -> String {
    let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(path).expect("a file of the repository")
}

/// Compares a file with its text, or writes it.
fn check(file: &str, text: &str) {
    if std::env::var_os("VRNIC_WRITE_FIGURES").is_some() {
        let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
        fs::write(path, text).expect("the file is written");
    }
    let old = read(file);
    for (line, (is, should)) in (1..).zip(old.lines().zip(text.lines())) {
        assert_eq!(
            is, should,
            "line {line} of {file} is not of the run: run this test with VRNIC_WRITE_FIGURES=1"
        );
    }
    assert_eq!(old.lines().count(), text.lines().count(), "{file} has other lines");
}

/// Returns the table of what was measured without guests: the rows of the page, in its order, with
/// the figures of the run.
fn without_guests(page: &str, results: &Results) -> String {
    let figures = &results.native.as_ref().expect("figures without guests").figures;
    let (_, rows) = page.split_once(WITHOUT_GUESTS).expect("the page has the table");
    let mut left: BTreeSet<&Figure> = figures.keys().collect();
    let rows = rows.lines().map_while(|line| line.strip_prefix("| ")).map(|row| {
        // The round trips are in the page only.
        let cells: Vec<&str> = row.rsplitn(4, '|').collect();
        let [_, trips, _, name] = cells[..] else { panic!("'{row}' has other columns") };
        let name = name.trim();
        let figure: Figure = name.parse().unwrap_or_else(|error| panic!("'{name}': {error}"));
        assert!(left.remove(&figure), "the run has no figure '{name}'");
        format!("| {figure} | {:.3} |{trips}|\n", figures[&figure])
    });
    let table = WITHOUT_GUESTS.to_owned() + &rows.collect::<String>();
    assert!(left.is_empty(), "the page lacks {left:?}");
    table
}

/// Returns the README's table of a run.
fn readme(results: &Results) -> String {
    let goals = goals(results);
    let row = |(measure, against, name, unit): (&str, &str, &str, &str)| {
        let goal = goals.iter().find(|goal| goal.name == Some(name)).expect("a ratio's name");
        let value = number(goal.value.expect("a whole run"));
        let missed = if goal.reached() { "" } else { ", **missed**" };
        let cells =
            [measure, against, &format!("{value} {unit}"), &format!("{}{missed}", goal.aim)];
        cells.map(str::to_owned).to_vec()
    };
    // The columns of this table have words.
    table(&COLUMNS.map(str::to_owned), &ROWS.map(row)).replace("---:", "---")
}

#[test]
fn the_page_has_the_figures_of_its_run() {
    let (page, mut results) = (read(PAGE), run());
    let table = without_guests(&page, &results);
    results.native.as_mut().expect("figures without guests").table = table;
    let devices = [Device::Vrnic, Device::Rxe, Device::Siw];
    check(PAGE, &report(&results, &devices, &SIZES, true));
}

/// Shows: tools
#[test]
fn the_readme_has_the_figures_of_the_run() {
    let text = read("README.md");
    let start = text.find("| measure | vrnic against |").expect("the README has the table");
    let (before, old) = text.split_at(start);
    let end = old.find("\n\n").expect("text behind the table") + 1;
    check("README.md", &format!("{before}{}{}", readme(&run()), &old[end..]));
}
