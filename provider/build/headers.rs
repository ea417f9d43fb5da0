// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The private headers of libibverbs, at the places that rdma-core's own build puts them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};

/// The version of a source of rdma-core.
pub(crate) struct Version {
    /// The release, such as 56.1.
    pub(crate) release: String,
    /// The number of the private interface.
    pub(crate) abi: String,
}

/// Reads the version of a source.
pub(crate) fn version(source: &Path) -> Result<Version> {
    let file = source.join("CMakeLists.txt");
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let set = |name: &str| -> Result<String> {
        let start = format!("set({name} \"");
        let value = text.lines().find_map(|line| line.trim().strip_prefix(start.as_str()));
        let value = value.and_then(|rest| rest.split('"').next());
        Ok(value.with_context(|| format!("{} sets no {name}", file.display()))?.to_owned())
    };
    Ok(Version { release: set("PACKAGE_VERSION")?, abi: set("IBVERBS_PABI_VERSION")? })
}

/// Links the headers of a source into `include`, without running its build.
pub(crate) fn gather(source: &Path, include: &Path) -> Result<()> {
    if include.exists() {
        fs::remove_dir_all(include)?;
    }
    let verbs = include.join("infiniband");
    fs::create_dir_all(&verbs)?;
    for entry in fs::read_dir(source.join("libibverbs"))? {
        let path = entry?.path();
        if let (Some("h"), Some(name)) =
            (path.extension().and_then(|e| e.to_str()), path.file_name())
        {
            symlink(&path, verbs.join(name))?;
        }
    }
    let kernel = source.join("kernel-headers");
    let ioctl = "rdma/ib_user_ioctl_verbs.h";
    symlink(kernel.join(ioctl), verbs.join("ib_user_ioctl_verbs.h"))?;
    symlink(kernel.join("rdma"), include.join("rdma"))?;
    symlink(source.join("ccan"), include.join("ccan"))?;
    symlink(source.join("util"), include.join("util"))?;
    fs::write(
        include.join("config.h"),
        format!(
            "#define IBVERBS_PABI_VERSION {}\n#define HAVE_STATEMENT_EXPR 1\n",
            version(source)?.abi
        ),
    )?;
    let commands = fs::read_to_string(kernel.join("rdma/ib_user_verbs.h"))?;
    fs::create_dir(include.join("kernel-abi"))?;
    fs::write(include.join("kernel-abi/ib_user_verbs.h"), tagless(&commands))?;
    Ok(())
}

/// Returns the macros `_STRUCT_name`, by which kern-abi.h defines a twin without a tag for each
/// kernel struct.
fn tagless(commands: &str) -> String {
    let mut macros = String::new();
    let mut inside = false;
    for line in commands.lines() {
        if let Some(name) = line.strip_prefix("struct ").and_then(|rest| rest.strip_suffix(" {")) {
            macros += &format!("#define _STRUCT_{name} struct {{ \\\n");
            inside = true;
        } else if inside && line == "};" {
            macros += "}\n";
            inside = false;
        } else if inside {
            macros += &format!("{line} \\\n");
        }
    }
    macros
}
