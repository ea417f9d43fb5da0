//! Pages of figures that are written by hand: each says of which commits its figures are.

use std::path::Path;
use std::process::Command;

use crate::files;

/// The pages, without the one that `scripts/bench` writes.
const FOLDER: &str = "docs/benchmarks";
const WRITTEN: &str = "README.md";

/// Returns the pages without such a paragraph, and commits in it that the history does not have.
pub(crate) fn undated() -> Vec<String> {
    let pages: Vec<_> = files::with_extension("md").into_iter().filter(|it| is_page(it)).collect();
    assert!(pages.len() > 5, "the pages are only {pages:?}");
    pages.iter().filter_map(|page| fault(page, &files::text(page))).collect()
}

fn is_page(file: &Path) -> bool {
    file.parent() == Some(Path::new(FOLDER)) && file.file_name().is_some_and(|it| it != WRITTEN)
}

/// Returns what is wrong with a page.
fn fault(page: &Path, text: &str) -> Option<String> {
    let page = page.display();
    let start = text.find("**Commit");
    let Some(paragraph) = start.and_then(|start| text.get(start..)?.split("\n\n").next()) else {
        return Some(format!("{page} does not say of which commits its figures are"));
    };
    let quoted = paragraph.split('`').skip(1).step_by(2);
    let is_commit = |word: &&str| word.len() == 8 && word.chars().all(|it| it.is_ascii_hexdigit());
    let commits: Vec<_> = quoted.filter(is_commit).collect();
    if commits.is_empty() {
        return Some(format!("{page} names no commit"));
    }
    let unknown = commits.iter().find(|commit| is_in_history(commit) == Some(false));
    unknown.map(|commit| format!("{page}: the history has no commit {commit}"))
}

/// Returns whether a commit is one of those that led to this one. A clone without the whole history
/// does not know.
fn is_in_history(commit: &str) -> Option<bool> {
    let git = |arguments: &[&str]| {
        Command::new("git").args(arguments).current_dir(files::top()).output().ok()
    };
    let shallow = git(&["rev-parse", "--is-shallow-repository"])?;
    if shallow.stdout != b"false\n" {
        return None;
    }
    Some(git(&["merge-base", "--is-ancestor", commit, "HEAD"])?.status.success())
}

#[test]
fn a_page_needs_a_commit_of_the_history() {
    let page = Path::new("docs/benchmarks/page.md");
    let said = |text: &str| fault(page, text).unwrap_or_default();
    assert!(said("# Page\n\nFigures.\n").contains("does not say"));
    assert!(said("# Page\n\n**Commits.** Of `scripts/bench`.\n").contains("names no commit"));
    let whole = is_in_history("HEAD").is_some();
    let unknown = said("# Page\n\n**Commit.** Of `00000000`.\n\nMore of `11111111`.\n");
    assert!(!whole || unknown.contains("no commit 00000000"), "{unknown}");
}
