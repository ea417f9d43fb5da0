// SPDX-License-Identifier: GPL-2.0
//! Peer-to-peer memory: a part of a BAR for which the kernel has page structs, so that other PCI
//! devices may be given it as the place of their transfers.
//!
//! C header: `include/linux/pci-p2pdma.h`.

use core::{ffi::c_void, ptr::NonNull};

use kernel::{
    device::Bound,
    error::{from_err_ptr, to_result},
    pci,
    prelude::*,
    sync::aref::ARef,
};

use crate::bindings;

/// Lets the kernel allocate from `length` bytes at `offset` of a BAR until the driver is unbound.
/// The length must be a multiple of the unit in which the kernel adds memory (2 MiB).
///
/// # Errors
///
/// `EOPNOTSUPP` if the kernel was configured without this.
pub(crate) fn offer(pdev: &pci::Device<Bound>, bar: u32, offset: u64, length: usize) -> Result {
    // SAFETY: the device is bound, and the callee checks the range.
    to_result(unsafe { bindings::hw_p2p_offer(raw(pdev), bar.try_into()?, length, offset) })
}

/// A part of the offered memory, which is given back on drop.
///
/// # Invariants
///
/// `memory` points to `length` bytes of the pool of `pdev`, and this type owns these bytes. The
/// pool is not freed before all of its memory has been given back.
pub(crate) struct PeerMemory {
    pdev: ARef<pci::Device>,
    memory: NonNull<c_void>,
    length: usize,
}

// SAFETY: the memory is a number of pages in a pool with a lock of its own, which takes them back
// from any thread; they are not accessed by this type.
unsafe impl Send for PeerMemory {}

// SAFETY: the memory is a number of pages in a pool with a lock of its own; they are not accessed
// by this type, whose shared operations read fields that do not change.
unsafe impl Sync for PeerMemory {}

impl PeerMemory {
    /// Takes a whole BAR of `length` bytes. Must be called before memory is offered, because an
    /// allocation cannot choose its place. The memory is not accessed.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the kernel was configured without this, `EBUSY` if something else was
    /// allocated.
    pub(crate) fn of_bar(pdev: &pci::Device<Bound>, bar: u32, length: usize) -> Result<Self> {
        // SAFETY: the device is bound, and the callee checks the range.
        let memory = unsafe { bindings::hw_p2p_take(raw(pdev), bar.try_into()?, length) };
        let memory = NonNull::new(from_err_ptr(memory)?).ok_or(ENOMEM)?;
        // INVARIANT: allocated just now.
        let this = Self { pdev: pdev.into(), memory, length };
        if this.offset(bar)? == 0 { Ok(this) } else { Err(EBUSY) }
    }

    /// Allocates `length` bytes, which are whole pages, and zeroes them. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if nothing was offered, or too little is left.
    pub(crate) fn alloc(pdev: &pci::Device<Bound>, length: usize) -> Result<Self> {
        // SAFETY: the device is bound; without a pool the callee returns null.
        let memory = unsafe { bindings::hw_p2p_alloc(raw(pdev), length) };
        let memory = NonNull::new(memory).ok_or(ENOMEM)?;
        // INVARIANT: allocated just now.
        Ok(Self { pdev: pdev.into(), memory, length })
    }

    /// Returns its address for the kernel, which has page structs for it.
    pub(crate) fn start(&self) -> NonNull<c_void> {
        self.memory
    }

    /// Returns the address by which PCI devices reach it.
    pub(crate) fn bus_address(&self) -> u64 {
        // SAFETY: by the type's invariants it is memory of the device's pool.
        unsafe { bindings::hw_p2p_bus_address(raw(&self.pdev), self.memory.as_ptr()) }
    }

    /// Returns the offset of its first byte in the BAR that it was offered of.
    pub(crate) fn offset(&self, bar: u32) -> Result<u64> {
        let bar = bar.try_into()?;
        // SAFETY: by the type's invariants it is memory of the device's pool.
        Ok(unsafe { bindings::hw_p2p_offset(raw(&self.pdev), bar, self.memory.as_ptr()) })
    }
}

impl Drop for PeerMemory {
    fn drop(&mut self) {
        // SAFETY: the type owns the memory by its invariants, and gives it back once.
        unsafe { bindings::hw_p2p_free(raw(&self.pdev), self.memory.as_ptr(), self.length) };
    }
}

fn raw<Ctx: kernel::device::DeviceContext>(pdev: &pci::Device<Ctx>) -> *mut bindings::pci_dev {
    core::ptr::from_ref(pdev).cast_mut().cast()
}
