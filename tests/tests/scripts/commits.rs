//! What `scripts/check-commits` says of commits, in a clone of its own.
//!
//! Shows: tools

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use tempfile::TempDir;
use vrnic_tests::repository::script::{run, said, succeed, top};

use crate::plain;

/// Makes a clone that has the script, what it reads, and one commit.
fn clone() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let of_lib =
        ["common", "modules", "stock", "system"].map(|name| format!("scripts/lib/{name}.sh"));
    let files = ["scripts/check-commits", "qemu/versions.env", "CONTRIBUTING.md"];
    for file in files.into_iter().chain(of_lib.iter().map(String::as_str)) {
        let copy = folder.path().join(file);
        fs::create_dir_all(copy.parent().unwrap_or(folder.path()))?;
        fs::copy(top()?.join(file), copy)?;
    }
    git(folder.path(), &["init", "--quiet"])?;
    commit(
        folder.path(),
        1,
        &["tests: Give the scripts under test no settings of the outer script"],
    )?;
    Ok(folder)
}

fn git(clone: &Path, arguments: &[&str]) -> Result<String> {
    let who = ["-c", "user.name=a", "-c", "user.email=a@b.c"];
    succeed(plain("git").args(who).args(arguments).current_dir(clone))
}

/// Commits a file with so many lines, and a message of these paragraphs.
fn commit(clone: &Path, lines: usize, paragraphs: &[&str]) -> Result<String> {
    fs::write(clone.join("file"), format!("{}\n", paragraphs.concat()).repeat(lines))?;
    git(clone, &["add", "--all"])?;
    let paragraphs: Vec<&str> = paragraphs.iter().flat_map(|text| ["-m", text]).collect();
    git(clone, &[&["commit", "--quiet"], &paragraphs[..]].concat())
}

fn check(clone: &Path, arguments: &[&str]) -> Result<(bool, String)> {
    let output = run(plain(clone.join("scripts/check-commits")).args(arguments))?;
    Ok((output.status.success(), said(&output)))
}

#[test]
fn commits_in_order_pass() -> Result<()> {
    let clone = clone()?;
    commit(clone.path(), 40, &["adapter, driver: Do this"])?;
    commit(clone.path(), 200, &["tests: Do that", "Because of this."])?;
    fs::rename(clone.path().join("file"), clone.path().join("moved"))?;
    git(clone.path(), &["add", "--all"])?;
    git(clone.path(), &["commit", "--quiet", "-m", "all: Move a file"])?;
    for (range, number) in [(&[][..], 3), (&["HEAD~2.."][..], 2)] {
        let (passed, text) = check(clone.path(), range)?;
        let said = format!("the messages of {number} commits are in order");
        ensure!(passed && text.contains(&said), "{range:?}: {text}");
    }
    let (passed, text) = check(clone.path(), &["nonsense..HEAD"])?;
    ensure!(!passed && text.contains("git knows no commits 'nonsense..HEAD'"), "{text}");
    Ok(())
}

/// A clone with a part of the history has its first commit without the one before.
#[test]
fn a_shallow_clone_is_not_checked() -> Result<()> {
    let clone = clone()?;
    commit(clone.path(), 2, &["do this"])?;
    let shallow = tempfile::tempdir()?;
    let from = format!("file://{}", clone.path().display());
    git(shallow.path(), &["clone", "--quiet", "--depth", "1", &from, "."])?;
    let (passed, text) = check(shallow.path(), &[])?;
    ensure!(passed && text.contains("only a part of the history"), "{text}");
    Ok(())
}

#[test]
fn each_fault_of_a_message_is_named() -> Result<()> {
    let long = format!("tests: Do {}", "this and ".repeat(8));
    for (lines, message, part) in [
        (1, &["Do this"][..], "is not of the form"),
        (1, &["tests: do this"], "is not of the form"),
        (1, &["tests: do this: That"], "is not of the form"),
        (1, &["tests, cli: Do this"], "has no component 'cli'"),
        (1, &["tests: Do this."], "ends with a full stop"),
        (1, &[&long], "characters, and at most 72"),
        (200, &["tests: Do this"], "lines change, and no body says why"),
        (200, &["tests: Do this", "Signed-off-by: A <a@b.c>"], "no body says why"),
    ] {
        let clone = clone()?;
        commit(clone.path(), lines, message)?;
        let (passed, text) = check(clone.path(), &[])?;
        ensure!(!passed && text.contains(part), "{message:?}: {text}");
        ensure!(text.contains("1 of 1 commits"), "{message:?}: {text}");
    }
    Ok(())
}

#[test]
fn the_hook_refuses_a_commit() -> Result<()> {
    let clone = clone()?;
    let (passed, text) = check(clone.path(), &["--hook"])?;
    ensure!(passed, "{text}");
    let refused = commit(clone.path(), 2, &["tests: do this"]);
    let text = refused.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(text.contains("is not of the form"), "{text}");
    commit(clone.path(), 2, &["tests: Do this"])?;
    commit(clone.path(), 3, &["fixup! tests: Do this"])?;
    git(clone.path(), &["checkout", "--quiet", "-b", "other", "HEAD~1"])?;
    fs::write(clone.path().join("other"), "text")?;
    git(clone.path(), &["add", "--all"])?;
    git(clone.path(), &["commit", "--quiet", "-m", "tests: Do that"])?;
    git(clone.path(), &["merge", "--quiet", "--no-edit", "-"])?;
    Ok(())
}
