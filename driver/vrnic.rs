// SPDX-License-Identifier: GPL-2.0
//! Driver of the vrnic RDMA adapter.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`rdma`] | abstractions over the RDMA core, the one place with bindings of it |

extern crate vrnic_abi as abi;

use kernel::{device::Core, pci, prelude::*};

mod rdma;

struct Driver;

const DEVICE_ID: pci::DeviceId = {
    let id = kernel::bindings::pci_device_id {
        vendor: abi::pci::VENDOR_ID as u32,
        device: abi::pci::DEVICE_ID as u32,
        subvendor: kernel::bindings::PCI_ANY_ID as u32,
        subdevice: kernel::bindings::PCI_ANY_ID as u32,
        class: 0,
        class_mask: 0,
        driver_data: 0,
        override_only: 0,
    };
    // SAFETY: `DeviceId` is a transparent wrapper of this struct.
    unsafe { core::mem::transmute(id) }
};

kernel::pci_device_table!(PCI_TABLE, <Driver as pci::Driver>::IdInfo, [(DEVICE_ID, ())]);

impl pci::Driver for Driver {
    type IdInfo = ();
    type Data<'bound> = Self;
    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        _pdev: &'bound pci::Device<Core<'_>>,
        _info: Option<&'bound Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        Err(ENODEV)
    }
}

kernel::module_pci_driver! {
    type: Driver,
    name: "vrnic",
    authors: ["vrnic"],
    description: "vrnic RDMA adapter",
    license: "GPL v2",
}
