//! The crates of the workspace that changed files belong to, and the crates that depend on them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

/// What `cargo metadata --no-deps` prints.
#[derive(Debug, Deserialize)]
pub struct Workspace {
    packages: Vec<Package>,
    workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    #[serde(default)]
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    /// A folder, for a crate of the workspace.
    path: Option<PathBuf>,
}

impl Workspace {
    /// Reads what cargo has printed.
    ///
    /// # Errors
    /// If that is no description of a workspace.
    pub fn of(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("cargo metadata has printed something else")
    }

    /// Returns the crate to which a file belongs, by its path in the repository.
    fn owner(&self, file: &Path) -> Option<&str> {
        let file = self.workspace_root.join(file);
        let folder = |package: &Package| package.manifest_path.parent().map(Path::to_path_buf);
        let owners = self.packages.iter().filter_map(|package| Some((folder(package)?, package)));
        let owners = owners.filter(|(folder, _)| file.starts_with(folder));
        let nearest = owners.max_by_key(|(folder, _)| folder.components().count());
        nearest.map(|(_, package)| package.name.as_str())
    }

    /// Returns the crates of the files. All crates are meant if the workspace itself has changed.
    #[must_use]
    pub fn crates<'a>(&'a self, files: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
        let mut found = BTreeSet::new();
        for file in files {
            if matches!(file, "Cargo.toml" | "Cargo.lock") {
                return self.packages.iter().map(|package| package.name.as_str()).collect();
            }
            // Documents change no crate.
            if !file.ends_with(".md") {
                found.extend(self.owner(Path::new(file)));
            }
        }
        found
    }

    /// Returns a crate by its name, with or without `vrnic-`.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&str> {
        let mut names = self.packages.iter().map(|package| package.name.as_str());
        names.find(|known| *known == name || known.strip_prefix("vrnic-") == Some(name))
    }

    /// Returns whether the crate has a library, whose unit tests can run.
    #[must_use]
    pub fn has_library(&self, name: &str) -> bool {
        let mut named = self.packages.iter().filter(|package| package.name == name);
        let mut kinds = named.next().into_iter().flat_map(|package| &package.targets);
        kinds.any(|target| target.kind.iter().any(|kind| kind == "lib"))
    }

    /// Returns the crates, and those that depend on them.
    #[must_use]
    pub fn with_dependants<'a>(&'a self, crates: BTreeSet<&'a str>) -> BTreeSet<&'a str> {
        let mut all = crates;
        loop {
            let uses = |package: &&Package| {
                let own = package.dependencies.iter().filter(|other| other.path.is_some());
                own.map(|other| other.name.as_str()).any(|other| all.contains(other))
            };
            let more: Vec<_> =
                self.packages.iter().filter(uses).map(|package| package.name.as_str()).collect();
            let before = all.len();
            all.extend(more);
            if all.len() == before {
                return all;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"workspace_root":"/w","packages":[
        {"name":"vrnic-a","manifest_path":"/w/a/Cargo.toml","dependencies":[]},
        {"name":"b","manifest_path":"/w/a/b/Cargo.toml","dependencies":[
            {"name":"vrnic-a","path":"/w/a"},{"name":"x","path":null}]},
        {"name":"c","manifest_path":"/w/c/Cargo.toml","dependencies":[{"name":"b","path":"/w/a/b"}]},
        {"name":"x","manifest_path":"/w/x/Cargo.toml","dependencies":[],
            "targets":[{"kind":["bin"]},{"kind":["lib"]}]}]}"#;

    #[test]
    fn files_belong_to_the_nearest_crate() -> Result<()> {
        let workspace = Workspace::of(TEXT)?;
        let crates = |files: &[&'static str]| workspace.crates(files.iter().copied());
        assert_eq!(crates(&["a/b/src/x.rs", "docs/a.md", "a/x.md"]), ["b"].into());
        assert_eq!(crates(&["a/src/lib.rs", "driver/x.rs"]), ["vrnic-a"].into());
        assert_eq!(crates(&["Cargo.lock"]).len(), 4);
        Ok(())
    }

    #[test]
    fn dependants_of_dependants_are_found() -> Result<()> {
        let workspace = Workspace::of(TEXT)?;
        let a = workspace.named("a").context("a")?;
        assert_eq!(workspace.with_dependants([a].into()), ["b", "c", "vrnic-a"].into());
        assert_eq!(workspace.with_dependants(["x"].into()), ["x"].into());
        assert_eq!(workspace.named("other"), None);
        assert!(workspace.has_library("x") && !workspace.has_library("b"));
        Ok(())
    }
}
