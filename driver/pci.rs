// SPDX-License-Identifier: GPL-2.0
//! The PCI driver: from device to registered verbs and back.

use core::marker::PhantomData;

use kernel::{
    bindings,
    device::{Bound, Core},
    dma::{Device as _, DmaMask},
    pci,
    prelude::*,
    sync::Arc,
    types::NotThreadSafe,
};

use crate::recovery::Recovery;

/// The driver.
pub(crate) struct Driver;

/// What is alive while a device is bound.
pub(crate) struct Bond<'a> {
    recovery: Arc<Recovery>,
    _bound: PhantomData<&'a pci::Device<Bound>>,
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
    pdev.enable_device_mem()?;
    // SAFETY: nothing was allocated for DMA yet.
    unsafe { pdev.dma_set_mask_and_coherent(DmaMask::new::<64>()) }?;
    // Pinned memory may then be described in pages as large as it is contiguous.
    // SAFETY: as above.
    unsafe { pdev.dma_set_max_seg_size(u32::MAX) };

    // SAFETY: ended by the bond, which becomes the driver's data and is dropped on unbinding.
    let recovery = unsafe { Recovery::start(pdev) }?;
    Ok(Bond { recovery, _bound: PhantomData })
}

/// The lock of a device, under which the kernel probes, unbinds, resets and suspends it.
pub(crate) struct DeviceLock<'a> {
    pdev: &'a pci::Device<Bound>,
    /// Who has locked it unlocks it.
    _here: NotThreadSafe,
}

impl<'a> DeviceLock<'a> {
    /// Locks the device, unless it is locked.
    pub(crate) fn try_get(pdev: &'a pci::Device<Bound>) -> Option<Self> {
        // SAFETY: the device is alive, and its lock initialised.
        let locked = unsafe { bindings::mutex_trylock(Self::mutex(pdev)) };
        (locked != 0).then_some(Self { pdev, _here: NotThreadSafe })
    }

    fn mutex(pdev: &pci::Device<Bound>) -> *mut bindings::mutex {
        let raw = core::ptr::from_ref(pdev).cast_mut().cast::<bindings::pci_dev>();
        // SAFETY: the wrapper is transparent, and its device alive; no reference is made.
        unsafe { &raw mut (*raw).dev.mutex }
    }
}

impl Drop for DeviceLock<'_> {
    fn drop(&mut self) {
        // SAFETY: locked by `try_get`, in this thread.
        unsafe { bindings::mutex_unlock(Self::mutex(self.pdev)) };
    }
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
