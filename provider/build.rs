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

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use vrnic_bind::ToolRoot;

/// The release whose headers the plugin is written for, and its private ABI.
const RELEASE: (&str, &str) = ("56.1", "34");

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=wrapper.h");
    println!("cargo::rerun-if-changed=vrnicdv.h");
    println!("cargo::rerun-if-changed=vrnicqueues.h");
    // Programs that use the direct verbs find the loaded plugin by this name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libvrnic.so.1");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let root = ToolRoot::find()?;
    let source = source(&root)?;
    check_version(&source)?;
    let include = out.join("include");
    headers::gather(&source, &include)?;
    fs::write(out.join("bindings.rs"), functions::by_address(&bind(&root, &source, &include)?)?)?;
    Ok(())
}

/// Returns the folder of rdma-core's source.
fn source(root: &ToolRoot) -> Result<PathBuf> {
    let variable = "VRNIC_RDMA_CORE_SRC";
    println!("cargo::rerun-if-env-changed={variable}");
    let folder = match env::var_os(variable) {
        Some(folder) => PathBuf::from(folder),
        None => root.join("usr/src/rdma-core"),
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
fn bind(root: &ToolRoot, source: &Path, include: &Path) -> Result<String> {
    let options = [
        "--allowlist-function",
        items::FUNCTIONS,
        "--allowlist-type",
        items::TYPES,
        "--allowlist-var",
        "VERBS_MATCH_.*|RDMA_IOCTL_MAGIC|UVERBS_ATTR_(UHW_.*|F_MANDATORY)",
        "--with-derive-default",
    ];
    let kernel = source.join("kernel-headers");
    // The folder linux/ in it holds what the guests' own kernel headers may lack.
    let clang =
        [OsStr::new("-I"), include.as_os_str(), OsStr::new("-idirafter"), kernel.as_os_str()];
    root.bind("wrapper.h", &options, &clang)
}
