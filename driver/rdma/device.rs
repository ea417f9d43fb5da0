// SPDX-License-Identifier: GPL-2.0
//! The RDMA device.

use core::{alloc::Layout, cell::UnsafeCell, mem::offset_of, ptr::NonNull};

use kernel::{device, ffi::c_char, prelude::*, sync::aref::ARef, types::Opaque};

use super::{driver::Driver, port::netdev::NetdevRef};
use crate::bindings;

/// An RDMA device: `struct ib_device` first, then what the trampolines need.
///
/// # Invariants
///
/// `ib` was allocated by the core. `data` points to the data of the
/// [`Registration`](super::registration::Registration) while operations can be called.
#[repr(C)]
pub(crate) struct Device<T: Driver> {
    ib: Opaque<bindings::ib_device>,
    pub(super) data: UnsafeCell<NonNull<T::Data<'static>>>,
}

impl<T: Driver> Device<T> {
    /// The size that the core allocates.
    pub(super) const SIZE: usize = {
        assert!(offset_of!(Self, ib) == 0, "the core's struct must come first");
        Layout::new::<Self>().pad_to_align().size()
    };

    /// Borrows the device behind the core's pointer.
    ///
    /// # Safety
    ///
    /// `ptr` must point to the `ib_device` of a registered `Device<T>`, for `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: the caller passes the `ib_device` of a `Device<T>` that lives for `'a`: its first
        // field (see `SIZE`).
        unsafe { &*ptr.cast() }
    }

    /// Returns the core's struct.
    pub(super) fn as_raw(&self) -> *mut bindings::ib_device {
        self.ib.get()
    }

    /// Returns a reference with which the device's memory stays, even when it is unregistered.
    pub(super) fn reference(&self) -> ARef<device::Device> {
        // SAFETY: the device is alive, as it is borrowed; only the field's address is made.
        let own = unsafe { &raw mut (*self.as_raw()).__bindgen_anon_1.dev };
        // SAFETY: the device is alive, so its `struct device`, with which both views of the union
        // begin, has references. The core releases it on any thread.
        unsafe { device::Device::get_device(own.cast()) }
    }

    /// Calls `f` with the registration's data. The higher-ranked closure keeps the erased
    /// lifetime from escaping.
    ///
    /// # Safety
    ///
    /// Must be called from an operation of the device: those run only while it is registered.
    pub(super) unsafe fn with_data<R>(
        &self,
        f: impl for<'a> FnOnce(&'a Self, &'a T::Data<'a>) -> R,
    ) -> R {
        // SAFETY: the caller promises that operations can be called, so no code writes to the
        // field.
        let data = unsafe { *self.data.get() };
        // SAFETY: by the type's invariants the pointer refers to live data; lifetimes do not affect
        // layout.
        let data = unsafe { data.cast::<T::Data<'_>>().as_ref() };
        f(self, data)
    }

    /// Returns the Ethernet device that a port is paired with, if it is there.
    pub(crate) fn netdev(&self, port: u32) -> Option<NetdevRef> {
        // SAFETY: the device is alive, as it is borrowed.
        unsafe { NetdevRef::of_port(NonNull::new(self.as_raw())?, port) }
    }
}

/// The changes to a device that an administrator asks for.
///
/// C: `struct ib_device_modify`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceChange {
    /// GUID of the system image, first byte first.
    pub(crate) sys_image_guid: Option<[u8; 8]>,
    /// The description of the node.
    pub(crate) node_desc: Option<[c_char; bindings::IB_DEVICE_NODE_DESC_MAX as usize]>,
}

impl DeviceChange {
    /// Converts the C struct, of which `mask` (`enum ib_device_modify_flags`) names the valid
    /// fields.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if it names others.
    ///
    /// # Safety
    ///
    /// `raw` must point to a struct that does not change during the call, and whose fields that
    /// `mask` names are initialised.
    pub(super) unsafe fn from_raw(
        raw: *const bindings::ib_device_modify,
        mask: i32,
    ) -> Result<Self> {
        const GUID: u32 = bindings::ib_device_modify_flags_IB_DEVICE_MODIFY_SYS_IMAGE_GUID;
        const DESCRIPTION: u32 = bindings::ib_device_modify_flags_IB_DEVICE_MODIFY_NODE_DESC;
        // CAST: a bit mask.
        let mask = mask as u32;
        if mask & !(GUID | DESCRIPTION) != 0 {
            return Err(EOPNOTSUPP);
        }
        Ok(Self {
            // SAFETY: the caller passes a struct in which this is initialised if the mask names it.
            sys_image_guid: (mask & GUID != 0)
                .then(|| unsafe { (*raw).sys_image_guid }.to_ne_bytes()),
            // SAFETY: the caller passes a struct in which this is initialised if the mask names it.
            node_desc: (mask & DESCRIPTION != 0).then(|| unsafe { (*raw).node_desc }),
        })
    }
}

// SAFETY: the core allows its device from any thread; `data` only changes while no operation
// can be called.
unsafe impl<T: Driver> Sync for Device<T> {}

// SAFETY: the core allows its device from any thread, and frees it itself.
unsafe impl<T: Driver> Send for Device<T> {}
