//! The regions and interrupts of a function, as GET_REGION_INFO and GET_IRQ_INFO describe them.

use std::os::fd::RawFd;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_BAR2_REGION_INDEX,
    VFIO_PCI_BAR4_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_MMAP,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
    vfio_region_sparse_mmap_area,
};
use vfio_user::{IrqInfo, ServerRegion, SparseArea};
use vrnic_abi::pci::{BAR_MSIX_LEN, BAR_REGS_LEN, BAR_UAR_LEN, MSIX_VECTORS};

use super::device::RegionId;
use crate::pci::config::CONFIG_LEN;

/// The region with this vfio number, if the function has it.
#[must_use]
pub fn region(index: u32) -> Option<RegionId> {
    Some(match index {
        VFIO_PCI_BAR0_REGION_INDEX => RegionId::Regs,
        VFIO_PCI_BAR2_REGION_INDEX => RegionId::Uar,
        VFIO_PCI_BAR4_REGION_INDEX => RegionId::Msix,
        VFIO_PCI_CONFIG_REGION_INDEX => RegionId::Config,
        _ => return None,
    })
}

/// Length of a region in bytes.
#[must_use]
pub fn region_len(region: RegionId) -> u64 {
    match region {
        RegionId::Regs => BAR_REGS_LEN,
        RegionId::Uar => BAR_UAR_LEN,
        RegionId::Msix => BAR_MSIX_LEN,
        RegionId::Config => CONFIG_LEN as u64,
    }
}

/// All regions; `uar` is the memory file of BAR2, mapped whole by the VMM.
#[must_use]
pub fn regions(uar: RawFd) -> Vec<ServerRegion> {
    (0..VFIO_PCI_NUM_REGIONS).map(|index| describe(index, uar)).collect()
}

fn describe(index: u32, uar: RawFd) -> ServerRegion {
    let known = region(index);
    let mapped = known == Some(RegionId::Uar);
    let mut flags = 0;
    if known.is_some() {
        flags |= VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
    }
    if mapped {
        flags |= VFIO_REGION_INFO_FLAG_MMAP;
    }
    let size = known.map_or(0, region_len);
    let argsz = u32::try_from(size_of::<vfio_region_info>()).unwrap_or(u32::MAX);
    let area = SparseArea { area: vfio_region_sparse_mmap_area { offset: 0, size } };
    ServerRegion {
        region_info: vfio_region_info { argsz, flags, index, cap_offset: 0, size, offset: 0 },
        sparse_areas: if mapped { vec![area] } else { Vec::new() },
        mmap_fd: mapped.then_some(uar),
    }
}

/// All interrupts: MSI-X only. An error interrupt, if offered, would let us stop the VM.
#[must_use]
pub fn irqs() -> Vec<IrqInfo> {
    let count = |index| if index == VFIO_PCI_MSIX_IRQ_INDEX { u32::from(MSIX_VECTORS) } else { 0 };
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| IrqInfo { index, flags: VFIO_IRQ_INFO_EVENTFD, count: count(index) })
        .collect()
}
