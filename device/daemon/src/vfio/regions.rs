//! The regions and interrupts of an adapter, as GET_REGION_INFO and GET_IRQ_INFO describe them.

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_BAR2_REGION_INDEX,
    VFIO_PCI_BAR4_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_CAP_SPARSE_MMAP,
    VFIO_REGION_INFO_FLAG_MMAP, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
};
use vrnic_abi::pci::{BAR_REGS_LEN, BAR_UAR_LEN, BAR_WINDOW_LEN, MSIX_VECTORS};

use super::device::RegionId;
use super::wire::{IrqInfo, RegionInfo, SparseMmap};
use crate::pci::config::CONFIG_LEN;

/// Returns the region with this vfio number, if the adapter has one.
#[must_use]
pub fn region(index: u32) -> Option<RegionId> {
    Some(match index {
        VFIO_PCI_BAR0_REGION_INDEX => RegionId::Regs,
        VFIO_PCI_BAR2_REGION_INDEX => RegionId::Uar,
        VFIO_PCI_BAR4_REGION_INDEX => RegionId::Window,
        VFIO_PCI_CONFIG_REGION_INDEX => RegionId::Config,
        _ => return None,
    })
}

/// Returns the length of a region in bytes.
#[must_use]
pub fn region_len(region: RegionId) -> u64 {
    match region {
        RegionId::Regs => BAR_REGS_LEN,
        RegionId::Uar => BAR_UAR_LEN,
        RegionId::Window => BAR_WINDOW_LEN,
        RegionId::Config => CONFIG_LEN as u64,
    }
}

/// Returns the description of the region with this number. A region that the adapter lacks has the
/// length 0. Returns none beyond the last number.
#[must_use]
pub fn region_info(index: u32) -> Option<RegionInfo> {
    if index >= VFIO_PCI_NUM_REGIONS {
        return None;
    }
    let known = region(index);
    let mut flags = 0;
    if known.is_some() {
        flags |= VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
    }
    if known == Some(RegionId::Uar) {
        flags |= VFIO_REGION_INFO_FLAG_MMAP;
    }
    let size = known.map_or(0, region_len);
    Some(RegionInfo { argsz: len_of::<RegionInfo>(), flags, index, cap_offset: 0, size, offset: 0 })
}

/// Returns the area that the VMM can map: all of BAR2.
#[must_use]
pub fn uar_areas() -> SparseMmap {
    // The number is below 2^16.
    let id = VFIO_REGION_INFO_CAP_SPARSE_MMAP as u16;
    SparseMmap { id, version: 1, next: 0, areas: 1, reserved: 0, offset: 0, size: BAR_UAR_LEN }
}

/// Returns the description of the interrupts with this index. Only MSI-X has any. An error
/// interrupt is not offered, because with it the daemon could stop the VM. Returns none beyond the
/// last index.
#[must_use]
pub fn irq_info(index: u32) -> Option<IrqInfo> {
    let count = if index == VFIO_PCI_MSIX_IRQ_INDEX { u32::from(MSIX_VECTORS) } else { 0 };
    let info = IrqInfo { argsz: len_of::<IrqInfo>(), flags: VFIO_IRQ_INFO_EVENTFD, index, count };
    (index < VFIO_PCI_NUM_IRQS).then_some(info)
}

/// Returns the length of a structure, for its field `argsz`.
#[must_use]
pub fn len_of<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX)
}
