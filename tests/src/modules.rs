//! Modules of the kernel that the guests' root lacks.

use anyhow::{Context, Result};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::paths::Paths;

use crate::talk::SHORT;

/// Returns the files of these modules, which `scripts/setup` makes, for guests.
pub fn files(names: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
    let folder = Paths::from_env()?.modules;
    let read = |name: &&str| {
        let file = folder.join(format!("{name}.ko"));
        let data = std::fs::read(&file)
            .with_context(|| format!("{}; scripts/setup makes it", file.display()))?;
        Ok((path(name), data))
    };
    names.iter().map(read).collect()
}

/// Loads these modules, in this order, from the files.
pub fn load(guest: &Guest, names: &[&str]) -> Result<()> {
    names
        .iter()
        .try_for_each(|name| guest.check(&format!("insmod {}", path(name)), SHORT).map(drop))
}

fn path(name: &str) -> String {
    format!("/vrnic/{name}.ko")
}
