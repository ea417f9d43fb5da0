//! Checks of the source tree itself, without a guest: the length of lines of Markdown and of
//! comments, code in documentation, the files and names that documents mention, what tests say that
//! they show, the tables of modules, cycles between modules, the modules with `unsafe`, guards that
//! are made too early, parameters that are tuples, sizes of functions, files and folders, types of
//! one name, doc comments that do not stand alone, the commits of figures, and the suites of
//! whole-system tests.
//!
//! Shows: tools
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`listed`] | numbers that are compared with a limit, with a list of those beyond it |
//! | [`lines`] | lines of Markdown and of comments that are too long, and code in documentation |
//! | [`manuals`] | manual pages of direct verbs, compared with the header |
//! | [`modules`] | the modules of a crate, and the modules that each of them uses |
//! | [`names`] | names and numbers in documents that nothing in the repository has |
//! | [`paths`] | files that documents name |
//! | [`tables`] | tables of modules, compared with the modules |
//! | [`cycles`] | modules that use each other |
//! | [`figures`] | pages of figures that do not say of which commits they are |
//! | [`guards`] | guards that are made before the code knows whether they are needed |
//! | [`parameters`] | parameters of functions that are tuple patterns |
//! | [`sentences`] | doc comments that begin with "It" or the like |
//! | [`sizes`] | functions, files and folders that are too large; types of one name |
//! | [`suites`] | the suites of whole-system tests: modules, rows, the table in docs/testing.md, the record |
//! | [`unsafety`] | modules with `unsafe`, compared with the modules that the root names |

mod cycles;
mod figures;
mod guards;
mod lines;
mod listed;
mod manuals;
mod modules;
mod names;
mod parameters;
mod paths;
mod sentences;
mod sizes;
mod suites;
mod tables;
mod unsafety;

use std::path::PathBuf;

use vrnic_tests::tree::{files, shows};

/// Fails with a list of `found` unless it is empty.
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
    let files = files::with_extension("rs");
    let long: Vec<_> = files.iter().flat_map(|file| lines::comments(file)).collect();
    none_of(&long, "comments beyond column 100");
}

#[test]
fn documentation_has_no_code_that_nobody_runs() {
    let files = files::with_extension("rs");
    let code: Vec<_> = files.iter().flat_map(|file| lines::documented_code(file)).collect();
    none_of(&code, "code in documentation, which nothing runs (text has ```text)");
}

#[test]
fn documents_name_files_that_exist() {
    let files = files::with_extension("md");
    let sources = files::with_extension("rs");
    let missing: Vec<_> = files.iter().flat_map(|file| paths::missing(file, &sources)).collect();
    none_of(&missing, "files that documents name and that do not exist");
}

#[test]
fn documents_have_names_that_exist() {
    none_of(&names::unknown(), "names in documents that no source has");
}

#[test]
fn documents_and_comments_have_no_numbers_of_other_lists() {
    none_of(&names::numbers(), "numbers that only a list outside of the repository explains");
}

#[test]
fn what_tests_show_is_said_of_tests() {
    none_of(&shows::all().1, "tags 'Shows:' that are wrong");
}

#[test]
fn figures_have_commits() {
    none_of(&figures::undated(), "pages of figures without their commits");
}

#[test]
fn calls_have_manual_pages() {
    none_of(&manuals::check(), "calls of direct verbs and their manual pages that do not agree");
}

#[test]
fn suites_have_rows() {
    none_of(&suites::check(), "suites that are missing, or of which something else is said");
}

#[test]
fn suites_have_run() {
    none_of(&suites::forgotten(), "suites that .ci/record does not show to have run lately");
}

#[test]
fn tables_of_modules_are_true() {
    let files = files::with_extension("rs");
    let wrong: Vec<_> = files.iter().flat_map(|file| tables::check(file)).collect();
    none_of(&wrong, "tables of modules that are wrong");
}

#[test]
fn modules_form_no_cycle() {
    let roots = modules::roots();
    let cycles = |root: &PathBuf| {
        let cycles = cycles::find(&modules::Tree::read(root));
        cycles.iter().map(|cycle| format!("{}: {cycle}", root.display())).collect::<Vec<_>>()
    };
    none_of(&roots.iter().flat_map(cycles).collect::<Vec<_>>(), "modules that use each other");
}

#[test]
fn roots_name_their_modules_with_unsafe() {
    let roots = modules::roots().into_iter().filter(|root| modules::is_product(root));
    let wrong: Vec<_> = roots.flat_map(|root| unsafety::check(&root)).collect();
    none_of(&wrong, "modules with `unsafe`");
}

#[test]
fn no_parameter_is_a_tuple() {
    let wrong = parameters::check(&files::with_extension("rs"));
    none_of(&wrong, "parameters that are tuple patterns");
}

#[test]
fn no_guard_is_made_too_early() {
    let files = files::with_extension("rs");
    let early: Vec<_> = files.iter().flat_map(|file| guards::eager(file)).collect();
    none_of(&early, "guards that are made before the code knows whether they are needed");
}

#[test]
fn functions_have_at_most_60_lines() {
    none_of(&sizes::functions(), "functions that are too long, with their numbers of lines");
}

#[test]
fn files_have_at_most_500_lines() {
    none_of(&sizes::files_of_rust(), "files that are too long, with their numbers of lines");
}

#[test]
fn folders_have_at_most_20_files() {
    none_of(&sizes::folders(), "folders with too many files");
}

#[test]
fn public_types_of_a_crate_have_different_names() {
    none_of(&sizes::types(), "crates with several public types of one name");
}

#[test]
fn doc_comments_stand_alone() {
    none_of(&sentences::check(), "paragraphs that begin with It, Its, They or Those");
}
