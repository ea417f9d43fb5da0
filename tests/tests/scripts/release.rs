//! What `scripts/release` checks before it builds anything.
//!
//! Shows: tools

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use vrnic_tests::repository::script::top;

use crate::{NO_CACHE, functions};

/// Makes a clone with one commit that could be released, and changes it by shell text. Then runs
/// the checks there. Returns what they print.
fn checks(change: &str, folder: &Path) -> Result<String> {
    let setting = r#"
        export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b
        export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        licences=$VRNIC_TOP
        VRNIC_TOP=$VRNIC_CACHE/clone
        mkdir -p "$VRNIC_TOP/docs/benchmarks" && cd "$VRNIC_TOP"
        cp -r "$licences"/LICENSE* .
        printf '[workspace.package]\nversion = "1.2.3"\n' >Cargo.toml
        printf '# Changes\n\n## 1.2.3, 2026-11-29\n' >CHANGELOG.md
        echo '{}' >docs/benchmarks/figures.json
        commit() { git add -A && git commit -q --allow-empty -m change; }
        git init -q . && commit
        checks() {
            check_release_tree
            check_release_changes "$(release_version)"
            check_release_tag "$(release_version)"
            check_release_licences
            check_release_figures
            echo ready
        }
    "#;
    functions(&["release"], &format!("{setting}\n{change}\nchecks"), folder)
}

#[test]
fn a_tree_that_can_be_released_passes() -> Result<()> {
    for change in ["", "git tag v1.2.3"] {
        let folder = tempfile::tempdir()?;
        let said = checks(change, folder.path())?;
        ensure!(said == "ready\n", "{change}: {said}");
    }
    Ok(())
}

#[test]
fn what_is_not_ready_is_named() -> Result<()> {
    for (change, part) in [
        ("echo >new", "changes that no commit has"),
        ("rm -rf .git", "no clone with commits"),
        ("sed -i s/1.2.3/1.2.4/ Cargo.toml; commit", "no section '## 1.2.4'"),
        ("sed -i 's/, 2026.*/, unreleased/' CHANGELOG.md; commit", "and a date such as"),
        ("git tag v1.2.3; commit", "the tag v1.2.3 is at another commit"),
        ("echo more >>LICENSE-MIT; commit", "LICENSE-MIT is not LICENSES/MIT.txt"),
        ("RELEASE_FIGURES_MAX=1; commit; commit", "is 2 commits old, and may be 1"),
        ("git rm -q docs/benchmarks/figures.json; git commit -q --amend -m none", "no commit has"),
    ] {
        let folder = tempfile::tempdir()?;
        let said = checks(change, folder.path())?;
        let alone = said.lines().count() == 1 && said.starts_with("error: ");
        ensure!(alone && said.contains(part), "{change}: {said}");
    }
    Ok(())
}

#[test]
fn sums_are_those_of_all_files() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let text = "mkdir -p \"$VRNIC_CACHE/a b\"; cd \"$VRNIC_CACHE\"; echo x >'a b/c d'; echo y >e\n\
                release_sums .; release_sums .; sha256sum --check --quiet SHA256SUMS; wc -l <SHA256SUMS";
    let said = functions(&["release"], text, folder.path())?;
    ensure!(said == "2\n", "{said}");
    Ok(())
}

#[test]
fn the_readme_shows_the_version() -> Result<()> {
    let version = functions(&["release"], "release_version", Path::new(NO_CACHE))?;
    let version = version.trim();
    let readme = fs::read_to_string(top()?.join("README.md"))?;
    let (name, badge) = (format!("[![version {version}]"), format!("/version-{version}-"));
    ensure!(readme.contains(&name) && readme.contains(&badge), "README.md has not {version}");
    Ok(())
}
