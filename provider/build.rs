// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Generates bindings of the interface between libibverbs and its plugins. That interface is
//! private to a release of rdma-core, and no package contains its headers. So they come from the
//! source of the release that the guests run, which scripts/setup unpacks into the tool root as
//! `usr/src/rdma-core`. `VRNIC_RDMA_CORE_SRC` names another folder with it. What is different in
//! other releases is in the crate `vrnic-layouts`.
//!
//! The plugin is not linked against libibverbs: it calls the functions of the copy that loads it.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`headers`] | the private headers, at the places that they name each other by |
//! | [`items`] | the functions and types that the plugin uses |
//! | [`functions`] | functions that are called by addresses |

#[path = "build/functions.rs"]
mod functions;
#[path = "build/headers.rs"]
mod headers;
#[path = "build/items.rs"]
mod items;

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The release whose headers the plugin is written for, and its private ABI.
const RELEASE: (&str, &str) = ("56.1", "34");

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=wrapper.h");
    println!("cargo::rerun-if-changed=vrnicdv.h");
    println!("cargo::rerun-if-changed=vrnicqueues.h");
    // Programs that use the direct verbs find the loaded plugin by this name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libvrnic.so.1");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let source = source()?;
    check_version(&source)?;
    let include = out.join("include");
    headers::gather(&source, &include)?;
    fs::write(out.join("bindings.rs"), functions::by_address(&bind(&source, &include)?)?)?;
    Ok(())
}

/// Returns the folder of rdma-core's source.
fn source() -> Result<PathBuf> {
    let variable = "VRNIC_RDMA_CORE_SRC";
    println!("cargo::rerun-if-env-changed={variable}");
    let folder = match env::var_os(variable) {
        Some(folder) => PathBuf::from(folder),
        None => tool_root()?.join("usr/src/rdma-core"),
    };
    let file = folder.join("libibverbs/driver.h");
    ensure!(
        file.exists(),
        "{} is missing: run scripts/setup, or set {variable} to the folder of rdma-core {}",
        file.display(),
        RELEASE.0,
    );
    println!("cargo::rerun-if-changed={}", file.display());
    Ok(folder)
}

/// Returns the tool root of scripts/setup, named as scripts/lib/common.sh does.
fn tool_root() -> Result<PathBuf> {
    for variable in ["VRNIC_TOOLROOT", "VRNIC_CACHE", "XDG_CACHE_HOME", "HOME"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    if let Some(root) = env::var_os("VRNIC_TOOLROOT") {
        return Ok(root.into());
    }
    let versions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qemu/versions.env");
    println!("cargo::rerun-if-changed={}", versions.display());
    let text = fs::read_to_string(&versions)
        .with_context(|| format!("cannot read {}", versions.display()))?;
    let values: HashMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once('=')).collect();
    let value = |name: &str| {
        values.get(name).with_context(|| format!("{} sets no {name}", versions.display()))
    };
    let name = format!(
        "toolroot-{}-{}-{}",
        value("VRNIC_SUITE")?,
        value("VRNIC_KERNEL_SERIES")?,
        value("VRNIC_RECIPE")?
    );
    let variable = |name: &str| env::var_os(name).map(PathBuf::from);
    let cache = variable("VRNIC_CACHE")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("vrnic")))
        .or_else(|| Some(variable("HOME")?.join(".cache/vrnic")))
        .context("none of VRNIC_TOOLROOT, VRNIC_CACHE, XDG_CACHE_HOME and HOME is set")?;
    Ok(cache.join(name))
}

/// Refuses sources of another release.
fn check_version(source: &Path) -> Result<()> {
    let found = headers::version(source)?;
    ensure!(
        (found.release.as_str(), found.abi.as_str()) == RELEASE,
        "{} is rdma-core {} with the private plugin ABI {}; libvrnic is built with the headers of \
         rdma-core {}, and knows other releases by the table of provider/layouts. Point \
         VRNIC_RDMA_CORE_SRC to that source",
        source.display(),
        found.release,
        found.abi,
        RELEASE.0,
    );
    Ok(())
}

/// Returns the bindings.
fn bind(source: &Path, include: &Path) -> Result<String> {
    let bindings = bindgen::Builder::default()
        .header("wrapper.h")
        .clang_arg(format!("-I{}", include.display()))
        // Its linux/ holds what the machine's own kernel headers may lack.
        .clang_arg(format!("-idirafter{}", source.join("kernel-headers").display()))
        .allowlist_function(items::FUNCTIONS)
        .allowlist_type(items::TYPES)
        .allowlist_var("VERBS_MATCH_.*|RDMA_IOCTL_MAGIC|UVERBS_ATTR_(UHW_.*|F_MANDATORY)")
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_copy(true)
        .layout_tests(true)
        .generate_comments(false)
        .generate()
        .context("binding infiniband/driver.h failed (is libclang-dev installed?)")?;
    Ok(bindings.to_string())
}
