//! Kernel modules that the guests' root does not contain.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::guest::Guest;
use crate::machine::paths::Paths;

/// Time limit for loading a module.
const TIME: Duration = Duration::from_secs(60);

/// Returns the files of these modules, which `scripts/setup` makes, for guests.
///
/// # Errors
/// If one cannot be read.
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

/// Loads these modules, in this order, from the files, unless they are loaded.
///
/// # Errors
/// If a guest does not load one.
pub fn load(guest: &Guest, names: &[&str]) -> Result<()> {
    names.iter().try_for_each(|name| {
        let loaded = format!("/sys/module/{}", name.replace('-', "_"));
        guest.check(&format!("[ -d {loaded} ] || insmod {}", path(name)), TIME).map(drop)
    })
}

/// The command that loads what programs need to use RDMA devices.
pub(crate) const LOAD_RDMA: &str = "modprobe -a ib_uverbs rdma_ucm";

/// The drivers of NVMe controllers that the guests' root does not contain.
pub const NVME: [&str; 1] = ["nvme"];

/// VFIO, and its driver of PCI devices.
pub const VFIO: [&str; 5] = ["irqbypass", "vfio", "vfio_iommu_type1", "vfio-pci-core", "vfio-pci"];

/// The driver of [`crate::iommu::Iommu::Virtio`], which a guest loads when it boots.
pub const VIRTIO_IOMMU: &str = "virtio-iommu";

/// Loads the driver of the guest's NVMe controller, if it is not loaded, and waits for the disk.
///
/// # Errors
/// If the guest does not load it, or there is no disk.
pub fn load_nvme(guest: &Guest) -> Result<()> {
    guest.check("modprobe nvme_core", TIME)?;
    if !guest.agent().run("[ -e /sys/module/nvme ]", TIME)?.ok() {
        load(guest, &NVME)?;
    }
    let disk =
        "for n in $(seq 100); do set -- /dev/nvme?n1; [ -b $1 ] && exit 0; sleep 0.1; done; exit 1";
    guest.check(disk, TIME).context("there is no disk").map(drop)
}

fn path(name: &str) -> String {
    format!("/vrnic/{name}.ko")
}
