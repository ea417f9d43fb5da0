//! The comparison of the table of layouts with headers. Each release must be like the one that the
//! plugin is built with, except for what the table has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use vrnic_layouts::{BUILT_OPS, LAYOUTS, Layout};
use vrnic_qemu::machine::paths::Paths;
use vrnic_tests::repository::script::succeed;

use super::interface::Interface;

/// Structs that the plugin only passes on.
const PASSED_ON: [&str; 1] = ["ibv_port_attr"];
/// Bytes of a function's address.
const OP: usize = size_of::<usize>();

/// The table agrees with the headers of the tool root, with those of the distributions, and with
/// those of each release in the git repository that `VRNIC_RDMA_CORE_GIT` names.
pub(crate) fn agree(folder: &Path, _name: &str) -> Result<()> {
    let paths = Paths::from_env()?;
    fs::create_dir_all(&paths.build)?;
    let work = TempDir::new_in(&paths.build)?;
    let built = Interface::read(&paths.toolroot.join("usr/src/rdma-core"), work.path())?;
    ensure!(built.layout.len() > 500 && built.functions.len() > 40, "too little is compared");
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder)? {
        sources.push(entry?.path().join("src"));
    }
    sources.retain(|source| source.join("libibverbs/driver.h").exists());
    let mut compared = vec![compare(&built, &built)?];
    for source in sources {
        compared.push(compare(&built, &Interface::read(&source, work.path())?)?);
    }
    if let Some(repository) = std::env::var_os("VRNIC_RDMA_CORE_GIT") {
        for tag in tags(&PathBuf::from(&repository))? {
            let source = work.path().join("source");
            let text = "rm -rf \"$2\"; mkdir \"$2\"; cd \"$0\"; git archive \"$1\" \
                        CMakeLists.txt libibverbs kernel-headers ccan util | tar -x -C \"$2\"";
            let mut command = Command::new("bash");
            command.args(["-euc", text]).arg(&repository).arg(&tag).arg(&source);
            succeed(&mut command)?;
            compared.push(compare(&built, &Interface::read(&source, work.path())?)?);
        }
    }
    println!("compared: {}", compared.join(" "));
    Ok(())
}

/// Returns the tags of the releases that the table has.
fn tags(repository: &Path) -> Result<Vec<String>> {
    let tags =
        succeed(Command::new("git").arg("-C").arg(repository).args(["tag", "--list", "v*"]))?;
    let known = |tag: &&str| {
        let major = tag.trim_start_matches('v').split('.').next().and_then(|n| n.parse().ok());
        major.is_some_and(|major| LAYOUTS.iter().any(|layout| layout.releases.contains(&major)))
    };
    Ok(tags.lines().filter(known).map(str::to_owned).collect())
}

/// Compares a release with the one that the plugin is built with. Returns its name.
fn compare(built: &Interface, other: &Interface) -> Result<String> {
    let release = &other.release;
    let major = other.major()?;
    let layout = LAYOUTS.iter().find(|layout| layout.releases.contains(&major));
    let layout = layout.with_context(|| format!("the table has no release {release}"))?;
    ensure!(layout.number == other.number, "{release} has the number {}", other.number);
    for (name, was) in &built.layout {
        let found = other.layout.get(name);
        match expected(layout, name, *was) {
            Expected::Is(expected) => {
                ensure!(found == Some(&expected), "{release}: {name}: {found:?}, not {expected}");
            }
            Expected::IsOrAbsent => {
                ensure!(found.is_none_or(|found| found == was), "{release}: {name}")
            }
            Expected::Any => {}
        }
    }
    for op in layout.added_ops {
        let name = format!("Offset of field: verbs_context_ops::{}", op.name);
        ensure!(other.layout.get(&name) == Some(&(op.slot * OP)), "{release}: {name}");
    }
    let ops = other.layout.keys().filter(|name| name.contains(": verbs_context_ops::")).count();
    ensure!(ops == layout.ops(), "{release} has {ops} operations");
    for (name, was) in &built.functions {
        let found =
            other.functions.get(name).with_context(|| format!("{release} has no {name}"))?;
        check_function(layout, name, was, found).with_context(|| format!("{release}: {found}"))?;
    }
    Ok(release.clone())
}

/// What a size or an offset must be in another release.
enum Expected {
    Is(usize),
    /// As it was, or not there.
    IsOrAbsent,
    Any,
}

fn expected(layout: &Layout, name: &str, was: usize) -> Expected {
    let item = name.trim_start_matches("Offset of field: ").trim_start_matches("Size of ");
    let (item, field) = item.split_once("::").unwrap_or((item, ""));
    match (item, field) {
        _ if name.starts_with("Alignment of ") => Expected::Is(was),
        ("verbs_context", "") => Expected::Is(layout.context_size),
        ("verbs_context", "context") => Expected::Is(layout.context_offset()),
        ("verbs_context", "sz") => Expected::Is(layout.context_sz_offset()),
        // The other fields are libibverbs' own.
        ("verbs_context", _) => Expected::Any,
        ("verbs_context_ops", "") => Expected::Is(layout.ops() * OP),
        ("verbs_context_ops", _) => Expected::Is(slot(layout, was / OP) * OP),
        ("verbs_qp", "") => Expected::Is(layout.qp_size),
        ("verbs_qp", "comp_mask") => Expected::Is(layout.qp_comp_mask_offset()),
        ("verbs_qp", "xrcd") => Expected::Is(layout.qp_size - OP),
        ("ibv_qp_ex" | "verbs_qp__bindgen_ty_1", "") => Expected::Is(layout.qp_comp_mask_offset()),
        ("ibv_qp_ex", "wr_atomic_write" | "wr_flush") => Expected::IsOrAbsent,
        (item, _) if PASSED_ON.contains(&item) => Expected::Any,
        _ => Expected::Is(was),
    }
}

/// Returns the slot of the operation with this slot in the release that the plugin is built with.
fn slot(layout: &Layout, built: usize) -> usize {
    let added = |slot: &usize| layout.added_ops.iter().any(|op| op.slot == *slot);
    (0..layout.ops()).filter(|slot| !added(slot)).nth(built).unwrap_or(BUILT_OPS)
}

/// The last argument of functions that pass data of the driver.
const DRIVER: &str = ",driver:*mutibv_command_buffer";

/// Checks the type of a function.
fn check_function(layout: &Layout, name: &str, was: &str, found: &str) -> Result<()> {
    match name {
        "ibv_cmd_get_context" => {
            ensure!(found.contains("fd_arr:") == layout.get_context_takes_files);
            ensure!(found.replace("fd_arr:*mutibv_fd_arr,", "") == was);
        }
        "ibv_cmd_create_cq_ex" => {
            ensure!(found.contains("prov_attr:") == layout.create_cq_ex_takes_memory);
            ensure!(found.replace("prov_attr:*mutverbs_create_cq_prov_attr,", "") == was);
        }
        // The plugin gives the last argument, which earlier releases do not read.
        "ibv_cmd_reg_dmabuf_mr" => {
            ensure!(found.replace(DRIVER, "") == was.replace(DRIVER, ""));
        }
        "ibv_cmd_create_qp_ex2" => {
            ensure!(found.contains(DRIVER) == layout.create_qp_ex2_takes_data);
            ensure!(found.replace(DRIVER, "") == was);
        }
        _ => ensure!(found == was, "it was {was}"),
    }
    Ok(())
}
