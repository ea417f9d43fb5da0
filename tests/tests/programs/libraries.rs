//! Programs in guests that bring a libibverbs: those of other distributions with their whole C
//! library, and one with the libibverbs of a Python wheel. `scripts/test layouts` fetches them.
//!
//! Shows: programs

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{PINGPONG, SHORT_TIMEOUT, both, both_xsrq};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::repository::script::succeed;

/// The programs, in the distributions' folder of programs.
const PROGRAMS: [&str; 5] =
    ["ibv_devinfo", "ibv_rc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong", "ibv_xsrq_pingpong"];
/// The beginnings of the names of their libraries.
const LIBRARIES: [&str; 8] = [
    "libibverbs.so.1",
    "libnl-3.so",
    "libnl-route-3.so",
    "libc.so.6",
    "libgcc_s.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "libm.so.6",
];
/// The distribution with whose programs the wheel's libibverbs is tested.
const WHEEL_IN: &str = "debian-trixie";
/// The folder of the files in guests.
const HERE: &str = "/lab";

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let (tree, cases) = cases().context("scripts/test libraries fetches the libraries")?;
    let options =
        Options { tree: Some(tree.path().to_owned()), memory: 2048, ..Options::default() };
    Ok(Suite::new(options, cases).keeping(tree))
}

/// Returns a folder with the files for guests, and the cases.
fn cases() -> Result<(TempDir, Vec<Case>)> {
    let from = std::env::var_os("VRNIC_LIBRARIES").context("VRNIC_LIBRARIES is not set")?;
    let from = PathBuf::from(from);
    let tree = TempDir::new_in("/var/tmp")?;
    let mut names = Vec::new();
    for entry in fs::read_dir(&from)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if ["debian-", "ubuntu-", "built-"].iter().any(|start| name.starts_with(start)) {
            gather(&from.join(&name), &tree.path().join(&name))?;
            names.push(name);
        }
    }
    gather(&from.join(WHEEL_IN), &tree.path().join("wheel"))?;
    replace(&from.join("wheel/libs"), &tree.path().join("wheel"))?;
    names.push("wheel".into());
    names.sort();
    let cases = names.into_iter().map(|name| {
        Case::new(name.clone(), move |pair: &mut Pair| programs(pair, &format!("{HERE}/{name}")))
    });
    Ok((tree, cases.collect()))
}

/// Copies the programs of a distribution, their libraries and their loader into one folder.
fn gather(root: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for program in PROGRAMS {
        copy(&root.join("usr/bin").join(program), to)?;
    }
    for folder in ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"] {
        let folder = root.join(folder);
        if !folder.exists() {
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if LIBRARIES.iter().any(|library| name.starts_with(library)) {
                copy(&folder.join(name), to)?;
            }
        }
    }
    let loader =
        ["lib64", "usr/lib64"].map(|folder| root.join(folder).join("ld-linux-x86-64.so.2"));
    let loader = loader.iter().find(|path| path.symlink_metadata().is_ok()).context("no loader")?;
    // A link in the root leads to a path of the root.
    let target = fs::read_link(loader).unwrap_or_else(|_| loader.clone());
    let name = target.file_name().context("a name")?;
    let file = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "lib64", "usr/lib64"]
        .map(|folder| root.join(folder).join(name));
    let file = file.iter().find(|path| path.is_file()).context("no file of the loader")?;
    fs::copy(file, to.join("loader"))?;
    Ok(())
}

/// Puts a wheel's libibverbs in the place of the distribution's.
fn replace(wheel: &Path, to: &Path) -> Result<()> {
    let link = to.join("libibverbs.so.1");
    fs::remove_file(to.join(fs::read_link(&link)?))?;
    fs::remove_file(&link)?;
    for entry in fs::read_dir(wheel)? {
        let file = entry?;
        copy(&file.path(), to)?;
        if file.file_name().to_string_lossy().starts_with("libibverbs-") {
            symlink(file.file_name(), &link)?;
        }
    }
    ensure!(link.exists(), "the wheel has no libibverbs");
    Ok(())
}

fn copy(file: &Path, to: &Path) -> Result<()> {
    succeed(Command::new("cp").arg("-a").arg(file).arg(to)).map(drop)
}

/// The programs find the device without a message, and exchange data: by both interfaces for
/// posting, by the extended interface of completion queues, as datagrams, with shared receive
/// queues and by XRC.
fn programs(pair: &mut Pair, folder: &str) -> Result<()> {
    let call =
        |program: &str| format!("{folder}/loader --library-path {folder} {folder}/{program}");
    let said = pair.a.check(&format!("{} -v 2>&1", call("ibv_devinfo")), SHORT_TIMEOUT)?;
    ensure!(said.contains("PORT_ACTIVE") && said.contains("max_sge"), "{said}");
    // libibverbs may warn of the guest's other plugins, which are of one release.
    ensure!(!said.contains("libvrnic"), "{said}");
    for command in [
        "ibv_rc_pingpong -g 1 -c -n 200",
        "ibv_rc_pingpong -g 1 -c -n 200 -N -e",
        "ibv_rc_pingpong -g 1 -c -n 200 -t",
        "ibv_ud_pingpong -g 1 -c -n 200",
        "ibv_srq_pingpong -g 1 -c -n 200",
    ] {
        let said =
            both(&pair.b, &pair.a, &call(command), PINGPONG).with_context(|| command.to_owned())?;
        ensure!(!said.contains("libvrnic"), "{said}");
    }
    let command = "ibv_xsrq_pingpong -g 1 -n 200";
    let said = both_xsrq(&pair.b, &pair.a, &call(command)).with_context(|| command.to_owned())?;
    ensure!(!said.contains("libvrnic"), "{said}");
    Ok(())
}
