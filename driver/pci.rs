// SPDX-License-Identifier: GPL-2.0
//! The PCI driver: from device to registered verbs and back.

use kernel::{
    bindings,
    device::{Bound, Core, Device},
    dma::{Device as _, DmaMask},
    pci,
    prelude::*,
};

use crate::{
    nic::Nic,
    rdma::{Registration, device::Config},
    verbs::{Hca, Verbs},
};

/// The driver.
pub(crate) struct Driver;

/// What is alive while a device is bound.
pub(crate) struct Bond<'a> {
    _registration: Registration<'a, Verbs>,
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
    pdev.enable_device_mem()?;
    // SAFETY: nothing was allocated for DMA yet.
    unsafe { pdev.dma_set_mask_and_coherent(DmaMask::new::<64>()) }?;
    // Pinned memory may then be described in pages as large as it is contiguous.
    // SAFETY: as above.
    unsafe { pdev.dma_set_max_seg_size(u32::MAX) };

    let nic = Nic::new(pdev)?;
    let config = Config {
        name: c"vrnic%d",
        mac: nic.mac(),
        num_comp_vectors: u32::try_from(nic.handlers().len())?,
    };
    let listeners = nic.listeners();
    let device: &'a Device<Bound> = pdev.as_ref();
    // SAFETY: the registration becomes the driver's data, which is dropped on unbinding.
    let registration = unsafe { Registration::new(device, &config, Hca::new(nic)) }?;
    listeners.set_device(registration.link());
    Ok(Bond { _registration: registration })
}

/// Turns bus mastering on. What the adapter was given before must have been taken from it by a reset: it may be a
/// former kernel's, whose memory this one uses for something else.
pub(crate) fn start_dma(pdev: &pci::Device<Bound>) {
    let raw = core::ptr::from_ref(pdev).cast_mut().cast::<bindings::pci_dev>();
    // SAFETY: the wrapper is transparent, and its device alive.
    unsafe { bindings::pci_set_master(raw) };
}

/// Turns bus mastering off; whether the function says that it is.
pub(crate) fn stop_dma(pdev: &pci::Device) -> bool {
    /// Bits of the command register that no function sets: an answer with them is none.
    const RESERVED: u16 = 0xf800;
    const MASTER: u16 = bindings::PCI_COMMAND_MASTER as u16;
    let mut command = RESERVED;
    let raw = core::ptr::from_ref(pdev).cast_mut().cast::<bindings::pci_dev>();
    // SAFETY: the wrapper is transparent, and its device alive; `command` is a valid place.
    let read = unsafe {
        bindings::pci_clear_master(raw);
        bindings::pci_read_config_word(raw, bindings::PCI_COMMAND as i32, &mut command)
    };
    read == 0 && command & (RESERVED | MASTER) == 0
}
