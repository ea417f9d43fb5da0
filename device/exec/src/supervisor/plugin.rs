//! The plugin of libibverbs. libibverbs takes the names of further plugins from an environment
//! variable, and adds the number of its private interface to them.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use vrnic_layouts::LAYOUTS;

/// The environment variable with the names of plugins.
const DRIVERS: &str = "IBV_DRIVERS";
/// The environment variable with the plugin's file, if it is somewhere else.
pub const PLUGIN: &str = "VRNIC_PLUGIN";
/// The folders in which a package has installed the plugin.
const FOLDERS: [&str; 2] = ["/usr/lib/x86_64-linux-gnu/libibverbs", "/usr/lib64/libibverbs"];

/// Returns the file of the plugin.
///
/// # Errors
/// Says where it was not found.
pub fn find() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(PLUGIN).map(PathBuf::from) {
        let found = path.canonicalize();
        return found
            .with_context(|| format!("{PLUGIN}={}: there is no such file", path.display()));
    }
    // A build has it next to this program.
    let own = std::env::current_exe().ok().and_then(|path| path.canonicalize().ok());
    let built = own.iter().filter_map(|path| path.parent()).map(|path| path.join("libvrnic.so"));
    let names = LAYOUTS.iter().map(|layout| format!("libvrnic-rdmav{}.so", layout.number));
    let names: Vec<_> = names.collect();
    let installed = FOLDERS
        .iter()
        .flat_map(|folder| names.iter().map(move |name| Path::new(folder).join(name)));
    let mut places = built.chain(installed);
    match places.find(|path| path.exists()) {
        Some(path) => Ok(path),
        None => bail!(
            "the plugin of libibverbs, libvrnic.so, is neither next to this program nor in {}. Set \
             {PLUGIN} to its file",
            FOLDERS.join(" or ")
        ),
    }
}

/// Makes the plugin known under all names that a libibverbs may look for, in this folder. Returns
/// the environment variable that names it.
///
/// # Errors
/// The error of creating a file.
pub fn offer(plugin: &Path, folder: &Path) -> anyhow::Result<(OsString, OsString)> {
    std::fs::create_dir_all(folder)?;
    for layout in &LAYOUTS {
        let name = folder.join(format!("libvrnic-rdmav{}.so", layout.number));
        if !name.exists() {
            symlink(plugin, name)?;
        }
    }
    let mut names = folder.join("libvrnic").into_os_string();
    if let Some(others) = std::env::var_os(DRIVERS) {
        names.push(":");
        names.push(others);
    }
    Ok((DRIVERS.into(), names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_private_interface_finds_the_plugin() {
        let folder = tempfile::tempdir().expect("a folder");
        let plugin = folder.path().join("libvrnic.so");
        std::fs::write(&plugin, "plugin").expect("a file");
        let (name, value) = offer(&plugin, &folder.path().join("lib")).expect("links");
        assert_eq!(name, "IBV_DRIVERS");
        for number in [34, 57] {
            let value = value.to_str().expect("text").split(':').next().expect("a name");
            let file = format!("{value}-rdmav{number}.so");
            assert_eq!(std::fs::read_to_string(file).expect("a link"), "plugin");
        }
    }
}
