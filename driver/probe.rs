// SPDX-License-Identifier: GPL-2.0
//! The PCI driver: probing a device up to the registration of its verbs, and unbinding.

use abi::{
    pci::{BAR_UAR, BAR_WINDOW, BAR_WINDOW_LEN},
    regs,
    uar::{DEVICE_MEMORY_MAX, DEVICE_MEMORY_OFFSET, DEVICE_MEMORY_UNIT},
};
use kernel::{
    bindings,
    device::{Bound, Core},
    dma::{Device as _, DmaMask},
    pci,
    prelude::*,
    sync::Arc,
};

use crate::{
    adapter_memory::AdapterMemory,
    hw::{
        p2p::{self, PeerMemory},
        pci::Enabled,
        regs::Registers,
    },
    recovery::Recovery,
};

pub(crate) struct Driver;

/// The driver's data of a bound device.
pub(crate) struct Bond<'a> {
    recovery: Arc<Recovery>,
    /// Declared after the recovery, which uses the device until it is dropped.
    _enabled: Enabled<'a>,
}

impl Drop for Bond<'_> {
    fn drop(&mut self) {
        self.recovery.end();
    }
}

const DEVICE_ID: pci::DeviceId = {
    let id = bindings::pci_device_id {
        vendor: abi::pci::VENDOR_ID as u32,
        device: abi::pci::DEVICE_ID as u32,
        subvendor: bindings::PCI_ANY_ID as u32,
        subdevice: bindings::PCI_ANY_ID as u32,
        class: 0,
        class_mask: 0,
        driver_data: 0,
        override_only: 0,
    };
    // SAFETY: `DeviceId` is a transparent wrapper of this struct; its constructor only takes
    // vendors of the kernel's own list.
    unsafe { core::mem::transmute(id) }
};

kernel::pci_device_table!(PCI_TABLE, <Driver as pci::Driver>::IdInfo, [(DEVICE_ID, ())]);

impl pci::Driver for Driver {
    type IdInfo = ();
    type Data<'bound> = Bond<'bound>;
    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        _info: Option<&'bound Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        bind(pdev)
    }
}

fn bind<'a>(pdev: &'a pci::Device<Core<'_>>) -> Result<Bond<'a>> {
    let enabled = Enabled::new(pdev)?;
    // SAFETY: nothing was allocated for DMA yet.
    unsafe { pdev.dma_set_mask_and_coherent(DmaMask::new::<64>()) }?;
    // Pinned memory may then be described in pages as large as it is contiguous.
    // SAFETY: nothing was allocated for DMA yet.
    unsafe { pdev.dma_set_max_seg_size(u32::MAX) };

    let window = take_window(pdev)?;
    let peer_memory = AdapterMemory { device_memory: offer_device_memory(pdev)?, window };
    // SAFETY: ended by the bond, which becomes the driver's data and is dropped on unbinding.
    let recovery = unsafe { Recovery::start(pdev, peer_memory) }?;
    Ok(Bond { recovery, _enabled: enabled })
}

/// Makes page structs for the window of direct transfers. If this fails, drivers of disks cannot
/// use it.
///
/// # Errors
///
/// `ENODEV` if there is no adapter that this driver knows.
fn take_window(pdev: &pci::Device<Bound>) -> Result<Option<Arc<PeerMemory>>> {
    // An adapter of another version may have no such BAR.
    Registers::map(pdev)?;
    match PeerMemory::of_bar(pdev, BAR_WINDOW, BAR_WINDOW_LEN.try_into()?) {
        Ok(window) => Ok(Some(Arc::new(window, GFP_KERNEL)?)),
        Err(error) => {
            dev_warn!(pdev, "other drivers cannot use the window: {error:?}\n");
            Ok(None)
        }
    }
}

/// Gives the device memory of the adapter to the kernel's allocator. Returns its length in bytes.
/// If this fails, the adapter works without device memory.
///
/// # Errors
///
/// `ENODEV` if there is no adapter that this driver knows.
fn offer_device_memory(pdev: &pci::Device<Bound>) -> Result<u64> {
    let units = Registers::map(pdev)?.read(regs::DEVICE_MEMORY);
    let length = u64::from(units) * DEVICE_MEMORY_UNIT;
    if !(1..=DEVICE_MEMORY_MAX).contains(&length) {
        return Ok(0);
    }
    match p2p::offer(pdev, BAR_UAR, DEVICE_MEMORY_OFFSET, length.try_into()?) {
        Ok(()) => Ok(length),
        Err(error) => {
            dev_warn!(pdev, "device memory is not available to programs: {error:?}\n");
            Ok(0)
        }
    }
}
