//! The plugin with the libibverbs of other distributions and of a Python wheel, which
//! `scripts/test layouts` fetches. There are no guests: the device is a folder of files that look
//! like sysfs, so the libraries find it, and load the plugin, but cannot open it. The table of
//! layouts is compared with the headers of each release whose source is there.
//!
//! Shows: programs
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`headers`] | the comparison with headers |
//! | [`gather`], [`items`] | the parts of the plugin's build that find headers and name items |
//! | [`interface`] | the sizes, offsets and functions of a release |
//! | [`root`] | a distribution's root, with the plugin and the device in it |

#[path = "../../../../provider/build/headers.rs"]
mod gather;
mod headers;
mod interface;
#[path = "../../../../provider/build/items.rs"]
mod items;
mod root;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use vrnic_tests::harness::{Case, Suite};

use self::root::Root;

/// The folder of a distribution whose libibverbs is that of the headers.
const BUILT: &str = "debian-trixie";
/// The libibverbs of that distribution.
const SYSTEM: &str = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1";

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    cases().map(Suite::alone).context("scripts/test layouts fetches the libraries")
}

fn cases() -> Result<Vec<Case>> {
    let folder = std::env::var_os("VRNIC_LIBRARIES").context("VRNIC_LIBRARIES is not set")?;
    let folder = PathBuf::from(folder);
    let case = |name: String, run: fn(&Path, &str) -> Result<()>| {
        let (folder, argument) = (folder.clone(), name.clone());
        Case::alone(name, move || run(&folder, &argument))
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let name = entry?
            .file_name()
            .into_string()
            .map_err(|name: OsString| anyhow::anyhow!("{} is not UTF-8", name.display()))?;
        if ["debian-", "ubuntu-", "built-"].iter().any(|start| name.starts_with(start)) {
            names.push(name);
        }
    }
    names.sort();
    ensure!(names.iter().any(|name| name == BUILT), "{} has no {BUILT}", folder.display());
    let mut cases: Vec<_> = names.into_iter().map(|name| case(name, serves)).collect();
    cases.push(case("a_wheels_library".into(), wheel));
    cases.push(case("an_unknown_library".into(), unknown));
    cases.push(case("the_table_agrees_with_headers".into(), headers::agree));
    Ok(cases)
}

/// The libibverbs of a distribution loads the plugin, which registers without a message.
fn serves(folder: &Path, name: &str) -> Result<()> {
    let root = Root::new(&folder.join(name))?;
    let said = root.run("/usr/bin/ibv_devices", &[])?;
    ensure!(said.out.contains("vrnic0") && said.err.is_empty(), "{said:?}");
    Ok(())
}

/// A wheel's libibverbs finds the device: alone, and together with the system's, in both orders.
fn wheel(folder: &Path, _name: &str) -> Result<()> {
    let root = Root::new(&folder.join(BUILT))?;
    let library = root.add_folder(&folder.join("wheel/libs"), "wheel", "libibverbs-")?;
    root.add_program(include_str!("devices.c"), "devices")?;
    for libraries in [&[&*library][..], &[SYSTEM, &library], &[&library, SYSTEM]] {
        let said = root.run("/devices", libraries)?;
        let expected: String = libraries.iter().map(|library| format!("{library} 1\n")).collect();
        ensure!(said.out == expected && said.err.is_empty(), "{said:?}");
    }
    Ok(())
}

/// With a libibverbs of a later release the plugin prints one line, and the program finds no
/// device.
fn unknown(folder: &Path, _name: &str) -> Result<()> {
    let root = Root::new(&folder.join(BUILT))?;
    root.rename_library("libibverbs.so.1.99.99.0")?;
    let said = root.run("/usr/bin/ibv_devices", &[])?;
    ensure!(!said.out.contains("vrnic0"), "{said:?}");
    let [line] = said.err.lines().collect::<Vec<_>>()[..] else { bail!("not one line: {said:?}") };
    for part in ["libvrnic: ", "libibverbs.so.1.99.99.0", "rdma-core 99", "knows rdma-core 36 to"] {
        ensure!(line.contains(part), "no '{part}' in {line}");
    }
    Ok(())
}
