//! Generates bindings to the public APIs of libibverbs and librdmacm of the tool root, so that
//! programs for the guests are built with the headers of the guests' libraries.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use vrnic_bind::ToolRoot;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=wrapper.h");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    bind(&found("VRNIC_VERBS_INCLUDE", "infiniband/verbs.h")?, &out.join("verbs.rs"))?;
    link(&found("VRNIC_VERBS_LIB", "libibverbs.so")?, &out)
}

/// Returns the folder that a variable names. It must contain `file`.
fn found(variable: &str, file: &str) -> Result<PathBuf, String> {
    println!("cargo::rerun-if-env-changed={variable}");
    let folder = env::var_os(variable).map(PathBuf::from).ok_or_else(|| {
        format!("{variable} is not set: build through scripts/run or scripts/test")
    })?;
    if !folder.join(file).exists() {
        return Err(format!("{}/{file} is missing: run scripts/setup", folder.display()));
    }
    Ok(folder)
}

fn bind(include: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let options = [
        "--allowlist-function",
        "_?ibv_.*|rdma_.*",
        "--allowlist-type",
        "ibv_.*|verbs_context|rdma_.*|sockaddr_in",
        "--allowlist-var",
        "IBV_.*|RDMA_.*",
        "--no-layout-tests",
    ];
    let clang = [OsStr::new("-I"), include.as_os_str()];
    std::fs::write(to, ToolRoot::find()?.bind("wrapper.h", &options, &clang)?)?;
    Ok(())
}

/// The libraries with bindings.
const LIBRARIES: [&str; 2] = ["ibverbs", "rdmacm"];

/// Links against these libraries through a folder that contains only them: the libc of the root
/// must not be found before the libc of the host.
fn link(libraries: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let folder = out.join("lib");
    std::fs::create_dir_all(&folder)?;
    for library in LIBRARIES {
        let file = format!("lib{library}.so");
        let name = folder.join(&file);
        if name.symlink_metadata().is_ok() {
            std::fs::remove_file(&name)?;
        }
        symlink(libraries.join(&file).canonicalize()?, &name)?;
        println!("cargo::rustc-link-lib=dylib={library}");
    }
    println!("cargo::rustc-link-search=native={}", folder.display());
    // The guest provides the libraries that these libraries need (libnl, a newer libc).
    println!("cargo::rustc-link-arg=-Wl,--allow-shlib-undefined");
    Ok(())
}
