// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Generates bindings of C headers with the program bindgen of the tool root that scripts/setup
//! makes, which builds the kernel module, too. So this machine needs no libclang, and the C library
//! whose headers are bound is that of the guests.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The root of Debian packages from which the build takes tools and headers.
#[derive(Clone, Debug)]
pub struct ToolRoot(PathBuf);

impl ToolRoot {
    /// Finds the root of scripts/setup, which has the name that scripts/lib/common.sh gives it.
    /// Tells cargo what that depends on.
    ///
    /// # Errors
    /// If no variable says where it is.
    pub fn find() -> Result<Self> {
        for variable in ["VRNIC_TOOLROOT", "VRNIC_CACHE", "XDG_CACHE_HOME", "HOME"] {
            println!("cargo::rerun-if-env-changed={variable}");
        }
        if let Some(root) = env::var_os("VRNIC_TOOLROOT") {
            return Ok(Self(root.into()));
        }
        let versions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../qemu/versions.env");
        println!("cargo::rerun-if-changed={}", versions.display());
        let text = fs::read_to_string(&versions)
            .with_context(|| format!("cannot read {}", versions.display()))?;
        let name = name(&text).with_context(|| format!("of {}", versions.display()))?;
        let variable = |name: &str| env::var_os(name).map(PathBuf::from);
        let cache = variable("VRNIC_CACHE")
            .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("vrnic")))
            .or_else(|| Some(variable("HOME")?.join(".cache/vrnic")))
            .context("none of VRNIC_TOOLROOT, VRNIC_CACHE, XDG_CACHE_HOME and HOME is set")?;
        Ok(Self(cache.join(name)))
    }

    /// Returns the path of a file of the root.
    #[must_use]
    pub fn join(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Returns bindings of a header of this machine. `options` are those of bindgen, `clang` those
    /// of the compiler. All other headers are the root's.
    ///
    /// # Errors
    /// If there is no root, or bindgen fails.
    pub fn bind(&self, header: &str, options: &[&str], clang: &[&OsStr]) -> Result<String> {
        let bindgen = self.join("usr/bin/bindgen");
        ensure!(bindgen.exists(), "{} is missing: run scripts/setup", bindgen.display());
        let library = newest(&self.join("usr/lib"), "lib/libclang.so")?.join("lib");
        let headers = newest(&library.join("clang"), "include/stddef.h")?;
        // The root's loader starts it, because it needs the libraries of that root's Debian.
        let output = Command::new(self.join("lib64/ld-linux-x86-64.so.2"))
            .arg("--library-path")
            .arg(self.join("usr/lib/x86_64-linux-gnu"))
            .arg(&bindgen)
            .arg(header)
            .args(["--rust-target", "1.85", "--rust-edition", "2024", "--formatter", "none"])
            .args(["--no-prepend-enum-name", "--no-doc-comments"])
            .args(options)
            .arg("--")
            .args(clang)
            .args([OsStr::new("-resource-dir"), headers.as_os_str()])
            .args([OsStr::new("--sysroot"), self.0.as_os_str()])
            // This machine's compilers and settings must not matter.
            .env_clear()
            .env("LIBCLANG_PATH", library)
            .env("PATH", "/nonexistent")
            .output()
            .with_context(|| format!("cannot start {}", bindgen.display()))?;
        if !output.status.success() {
            bail!("binding {header} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).context("bindgen did not write UTF-8")
    }
}

/// Returns the folder in `folder` that contains `file`. Folders of clang have a version in their
/// names.
fn newest(folder: &Path, file: &str) -> Result<PathBuf> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let folders = entries.flatten().map(|entry| entry.path());
    folders
        .filter(|folder| folder.join(file).exists())
        .max()
        .with_context(|| format!("{}/*/{file} is missing: run scripts/setup", folder.display()))
}

/// Returns the name of the root of these versions.
fn name(versions: &str) -> Result<String> {
    let values: HashMap<&str, &str> =
        versions.lines().filter_map(|line| line.split_once('=')).collect();
    let value = |name: &str| values.get(name).with_context(|| format!("there is no {name}"));
    Ok(format!(
        "toolroot-{}-{}-{}",
        value("VRNIC_SUITE")?,
        value("VRNIC_KERNEL_SERIES")?,
        value("VRNIC_RECIPE")?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_the_name_of_its_versions() -> Result<()> {
        let text = "# A comment\nVRNIC_SUITE=trixie\nVRNIC_KERNEL_SERIES=7.3\nVRNIC_RECIPE=2\n";
        assert_eq!(name(text)?, "toolroot-trixie-7.3-2");
        assert!(name("VRNIC_SUITE=trixie").is_err());
        Ok(())
    }

    #[test]
    fn the_newest_version_is_taken() -> Result<()> {
        let folder = tempfile::tempdir()?;
        for (version, name) in [("18", "libclang.so"), ("19", "libclang.so"), ("20", "libLLVM.so")]
        {
            let folder = folder.path().join(version);
            fs::create_dir(&folder)?;
            fs::write(folder.join(name), "")?;
        }
        assert_eq!(newest(folder.path(), "libclang.so")?, folder.path().join("19"));
        assert!(newest(folder.path(), "libclang-cpp.so").is_err());
        Ok(())
    }

    #[test]
    fn a_root_that_is_missing_is_named() {
        let root = ToolRoot("/nowhere".into());
        let error = root.bind("header.h", &[], &[]).expect_err("there is no root");
        assert_eq!(error.to_string(), "/nowhere/usr/bin/bindgen is missing: run scripts/setup");
    }
}
