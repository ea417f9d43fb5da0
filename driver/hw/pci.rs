// SPDX-License-Identifier: GPL-2.0
//! Functions of PCI devices that the kernel crate lacks.

use kernel::{
    bindings,
    device::{Bound, Core},
    pci,
    prelude::*,
    types::NotThreadSafe, //
};

/// The lock of a device, under which the kernel probes, unbinds, resets and suspends it.
///
/// # Invariants
///
/// This thread has locked it.
pub(crate) struct DeviceLock<'a> {
    pdev: &'a pci::Device<Bound>,
    /// The thread that has locked it unlocks it.
    _here: NotThreadSafe,
}

impl<'a> DeviceLock<'a> {
    /// Locks the device, unless it is locked.
    pub(crate) fn try_get(pdev: &'a pci::Device<Bound>) -> Option<Self> {
        // SAFETY: the device is alive, and its lock initialised.
        let locked = unsafe { bindings::mutex_trylock(Self::mutex(pdev)) };
        if locked == 0 {
            return None;
        }
        // INVARIANT: it was locked just now.
        Some(Self { pdev, _here: NotThreadSafe })
    }

    fn mutex(pdev: &pci::Device<Bound>) -> *mut bindings::mutex {
        let raw = core::ptr::from_ref(pdev).cast_mut().cast::<bindings::pci_dev>();
        // SAFETY: the wrapper is transparent, and its device alive; no reference is made.
        unsafe { &raw mut (*raw).dev.mutex }
    }
}

impl Drop for DeviceLock<'_> {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants this thread has locked it.
        unsafe { bindings::mutex_unlock(Self::mutex(self.pdev)) };
    }
}

/// A device whose memory this driver uses. The device is disabled on drop.
pub(crate) struct Enabled<'a>(&'a pci::Device<Bound>);

impl<'a> Enabled<'a> {
    /// Enables the memory of a device.
    pub(crate) fn new(pdev: &'a pci::Device<Core<'_>>) -> Result<Self> {
        pdev.enable_device_mem()?;
        Ok(Self(pdev))
    }
}

impl Drop for Enabled<'_> {
    fn drop(&mut self) {
        let raw = core::ptr::from_ref(self.0).cast_mut().cast::<bindings::pci_dev>();
        // SAFETY: the wrapper is transparent, and its device alive. It was enabled once for this.
        unsafe { bindings::pci_disable_device(raw) };
    }
}

/// Turns bus mastering on. The adapter must have been reset before, because it may still have
/// addresses that an earlier kernel gave it, and this kernel uses that memory for other purposes.
pub(crate) fn start_dma(pdev: &pci::Device<Bound>) {
    let raw = core::ptr::from_ref(pdev).cast_mut().cast::<bindings::pci_dev>();
    // SAFETY: the wrapper is transparent, and its device alive.
    unsafe { bindings::pci_set_master(raw) };
}

/// Turns bus mastering off. Returns whether the command register confirms this.
pub(crate) fn stop_dma(pdev: &pci::Device) -> bool {
    /// Bits of the command register that no function sets: if they are set, nothing has answered.
    const RESERVED: u16 = 0xf800;
    const MASTER: u16 = bindings::PCI_COMMAND_MASTER as u16;
    let mut command = RESERVED;
    let raw = core::ptr::from_ref(pdev).cast_mut().cast::<bindings::pci_dev>();
    // SAFETY: the wrapper is transparent, and its device alive.
    unsafe { bindings::pci_clear_master(raw) };
    let register = bindings::PCI_COMMAND as i32;
    // SAFETY: the wrapper is transparent, and its device alive; `command` is a valid place.
    let read = unsafe { bindings::pci_read_config_word(raw, register, &mut command) };
    read == 0 && command & (RESERVED | MASTER) == 0
}
