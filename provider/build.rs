// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Generates bindings of the interface between libibverbs and its plugins. That interface is
//! private to one version of rdma-core, and no package contains its headers. So they come from the
//! source of the version that the guests run, which scripts/setup unpacks:
//!
//! | variable | names | default |
//! | --- | --- | --- |
//! | `VRNIC_RDMA_CORE_SRC` | rdma-core's source | `usr/src/rdma-core` of the tool root |
//! | `VRNIC_VERBS_LIB` | the folder of its libibverbs.so | `usr/lib/x86_64-linux-gnu` there |

use std::collections::HashMap;
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// The private ABI that src/ffi is written for: the number in the plugin's file name and in the
/// registration symbol.
const PRIVATE_ABI: &str = "34";

/// Releases whose private headers have been checked. The layouts have changed in others without a
/// new number, so the headers of an unknown release must be checked before its line is added.
const RELEASES: [&str; 1] = ["56.1"];

/// The functions that the plugin calls.
const FUNCTIONS: &str = "verbs_register_driver_.*|_verbs_init_and_alloc_context|\
    verbs_uninit_context|verbs_set_ops|verbs_init_cq|ibv_cmd_(get_context|query_device_any|query_port|\
    alloc_pd|dealloc_pd|reg_mr|rereg_mr|reg_dmabuf_mr|dereg_mr|alloc_mw|dealloc_mw|create_ah|destroy_ah|create_cq|create_cq_ex|modify_cq|resize_cq|destroy_cq|create_qp|query_qp|modify_qp|modify_qp_ex|\
    destroy_qp|create_qp_ex|open_qp|create_srq|create_srq_ex|modify_srq|query_srq|destroy_srq|\
    open_xrcd|close_xrcd|alloc_dm|free_dm|reg_dm_mr|query_mr|attach_mcast|detach_mcast)";
/// The types that the plugin uses, in addition to the arguments of those functions.
const TYPES: &str = "verbs_(qp_mask|device|context|context_ops|device_ops|match_ent|sysfs_dev|cq|srq|xrcd|qp|mr|dm)|\
    ibv_(send_wr|recv_wr|wc|sge|qp_attr|qp_init_attr|srq_attr|srq_init_attr)|\
    ibv_(srq_init_attr_(ex|mask)|srq_type|qp_init_attr_(ex|mask)|qp_open_attr|xrcd_init_attr)|\
    ibv_(wr|wc)_opcode|ibv_send_flags|\
    ibv_wc_(status|flags)|ibv_qp_(type|attr_mask|state)|ibv_access_flags|ibv_mw_(bind|type)|\
    ibv_(values_ex|values_mask|create_cq_wc_flags|create_cq_attr_flags|cq_init_attr_(ex|mask))|\
    ibv_(qp_create_send_ops_flags|data_buf)|\
    ib_uverbs_(alloc_mw|create_ah|rereg_mr)_resp|vrnicdv_(qp_attr|cq_attr|command|qp_flags|cq_flags|tag_form|mem_flags)|\
    vrnicdv_(range|range_state|transfer|transfer_flags|await)|\
    ib_uverbs_(ioctl_hdr|attr)|uverbs_(default_objects|methods_device|attrs_query_context_attr_ids)";

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=wrapper.h");
    println!("cargo::rerun-if-changed=vrnicdv.h");
    // Programs that use the direct verbs find the loaded plugin by this name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libvrnic.so.1");
    println!("cargo::rustc-env=VRNIC_RDMA_CORE_RELEASES={}", RELEASES.join(" "));
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let source = folder("VRNIC_RDMA_CORE_SRC", "usr/src/rdma-core", "libibverbs/driver.h")?;
    check_version(&source)?;
    let include = out.join("include");
    gather_headers(&source, &include)?;
    bind(&source, &include, &out.join("bindings.rs"))?;
    let library = folder("VRNIC_VERBS_LIB", "usr/lib/x86_64-linux-gnu", "libibverbs.so")?;
    link(&library.join("libibverbs.so"), &out.join("lib"))
}

/// Returns the folder that `variable` names, or `default` in the tool root; it must hold `file`.
fn folder(variable: &str, default: &str, file: &str) -> Result<PathBuf> {
    println!("cargo::rerun-if-env-changed={variable}");
    let folder = match env::var_os(variable) {
        Some(folder) => PathBuf::from(folder),
        None => tool_root()?.join(default),
    };
    let file = folder.join(file);
    ensure!(
        file.exists(),
        "{} is missing: run scripts/setup, or set {variable} to the folder of rdma-core {}",
        file.display(),
        RELEASES.join(" or "),
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

/// Refuses sources with another private ABI.
fn check_version(source: &Path) -> Result<()> {
    let file = source.join("CMakeLists.txt");
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let set = |name: &str| -> Result<String> {
        let start = format!("set({name} \"");
        let value = text.lines().find_map(|line| line.trim().strip_prefix(start.as_str()));
        let value = value.and_then(|rest| rest.split('"').next());
        Ok(value.with_context(|| format!("{} sets no {name}", file.display()))?.to_owned())
    };
    let (abi, release) = (set("IBVERBS_PABI_VERSION")?, set("PACKAGE_VERSION")?);
    if abi != PRIVATE_ABI || !RELEASES.contains(&release.as_str()) {
        bail!(
            "{} is rdma-core {release} with the private plugin ABI {abi}; libvrnic is written for \
             ABI {PRIVATE_ABI} of rdma-core {}. Point VRNIC_RDMA_CORE_SRC to that source, or port \
             provider/src/ffi and extend provider/build.rs",
            source.display(),
            RELEASES.join(" or "),
        );
    }
    Ok(())
}

/// Copies the headers to the places of rdma-core's own build, without running that build.
fn gather_headers(source: &Path, include: &Path) -> Result<()> {
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
        format!("#define IBVERBS_PABI_VERSION {PRIVATE_ABI}\n#define HAVE_STATEMENT_EXPR 1\n"),
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

fn bind(source: &Path, include: &Path, to: &Path) -> Result<()> {
    bindgen::Builder::default()
        .header("wrapper.h")
        .clang_arg(format!("-I{}", include.display()))
        // Its linux/ holds what the machine's own kernel headers may lack.
        .clang_arg(format!("-idirafter{}", source.join("kernel-headers").display()))
        .allowlist_function(FUNCTIONS)
        .allowlist_type(TYPES)
        .allowlist_var("VERBS_MATCH_.*|RDMA_IOCTL_MAGIC|UVERBS_ATTR_(UHW_.*|F_MANDATORY)")
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_copy(true)
        .layout_tests(true)
        .generate_comments(false)
        .generate()
        .context("binding infiniband/driver.h failed (is libclang-dev installed?)")?
        .write_to_file(to)?;
    Ok(())
}

/// Links only against libibverbs, so that the versions of its private symbols are recorded. The
/// folder contains nothing else, because the tool root's libc must not be found before the
/// machine's libc.
fn link(library: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let name = folder.join("libibverbs.so");
    if name.symlink_metadata().is_ok() {
        fs::remove_file(&name)?;
    }
    symlink(library.canonicalize()?, &name)?;
    println!("cargo::rustc-link-search=native={}", folder.display());
    println!("cargo::rustc-link-lib=dylib=ibverbs");
    // The guest provides the libraries that libibverbs itself needs (libnl, a newer libc).
    println!("cargo::rustc-link-arg=-Wl,--allow-shlib-undefined");
    Ok(())
}
